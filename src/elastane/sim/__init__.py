"""The cluster simulator that drives the same scheduling policies over traces."""
