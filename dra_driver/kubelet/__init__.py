"""The kubelet's protocols, and which of two agents it talks to."""
