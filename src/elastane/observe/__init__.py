"""Event log, metrics and snapshots: what a person or another program can see of a job."""
