"""The node's ResourceSlices: `documents`: what should be, `diff`: what to write, `publisher`: writes it."""
