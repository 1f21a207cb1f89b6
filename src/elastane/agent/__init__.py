"""The per-node process that starts, watches and ends workers."""
