"""Container Device Interface documents: model, the NVIDIA driver's part of them, their place on disk.

Knows nothing of Kubernetes. https://github.com/cncf-tags/container-device-interface describes the format.
"""
