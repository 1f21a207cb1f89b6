"""Throughput, efficiency and overhead models. Pure functions."""
