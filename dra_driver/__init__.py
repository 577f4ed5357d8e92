"""The node agent: GPUs → ResourceSlices; ResourceClaims → grants → CDI documents; health, metrics.

    configuration/  settings, the node configuration
    cards/          NVML, MIG → inventory, taints
    slices/         inventory → ResourceSlices → API server
    claims/         allocation → plan → ledger, grant files, CDI document; reconcile
    monitor/        usage files → who may have how much compute for now
    kubelet/        registration, the DRA and health services, sockets, the lock between two agents
    metrics/        what Prometheus reads
    process/        logs, signals, tasks, HTTP
    agent           puts them together; main starts it

Without IO: cards.inventory, cards.taints, cards.xids, slices.documents, slices.diff, claims.plan,
claims.document, claims.config, monitor.control, and what they are made of. One module an effect: cards.nvml,
claims.ledger, claims.grants, claims.library, monitor.monitor, slices.publisher, kubelet.sockets and their
like.
"""
