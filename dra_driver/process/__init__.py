"""What any daemon needs: logs, signals, tasks, an HTTP endpoint."""
