"""The training runtime inside a worker process: everything that touches torch."""
