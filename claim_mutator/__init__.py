"""The admission webhook that turns Pods written for HAMi into Pods with a ResourceClaim.

Pure core: pod, amounts, container, selection, shape, template, patch, conversion. Shell: everything else.
"""
