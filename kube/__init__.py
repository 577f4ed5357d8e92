"""What both programs need in a cluster: settings, configuration, a raw-JSON API client, a reflector, a
leader, Events, quantities, and a server for those of the cluster who call.

Imports nothing else of this project.
"""
