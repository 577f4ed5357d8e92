"""The GPUs of a node: found, described, watched over."""
