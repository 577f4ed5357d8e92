"""What both programs need of Kubernetes: configuration, a raw-JSON API client, a reflector, quantities.

Imports nothing else of this project.
"""
