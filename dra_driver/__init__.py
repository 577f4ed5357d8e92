"""The node agent: GPUs → ResourceSlices; ResourceClaims → grants → CDI documents; health, metrics.

Pure: inventory, versions, slices.documents, slices.diff, slices.stored, claims, config, plan. One module an
effect: nvml, sysfs, ledger, grants, library, slices.publisher, registration, service, http.
"""
