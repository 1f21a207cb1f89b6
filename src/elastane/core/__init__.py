"""Decisions about one job: topology changes, placement, data order. Pure functions, no I/O."""
