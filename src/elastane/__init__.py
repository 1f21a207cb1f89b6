"""Elastic PyTorch training: jobs that grow, shrink, move and survive without changing a bit."""
