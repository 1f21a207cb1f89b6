"""Checkpoints as files: targets, manifests, the list of those there are. Knows neither torch nor training."""
