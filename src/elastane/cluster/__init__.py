"""The live cluster daemon that drives scheduling policies."""
