"""ResourceQuotas on the resource names that a conversion takes away, kept as Kubernetes keeps its own.

What is used is never stored: it is counted from the Pods that there are, and from the few that have been let
in and are not to be seen yet. Only these are written down, and the write is what two replicas race for.
"""
