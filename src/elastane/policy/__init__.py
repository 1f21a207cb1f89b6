"""Cluster scheduling policies: small pure objects that turn a view of the cluster into a plan."""
