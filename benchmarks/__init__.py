"""Benchmarks of elastane: one module per row, each runnable alone, and `run` for all of them.

Every row compares two systems that take turns within one invocation, because machines are noisy. Figures are
medians with their smallest and largest value. Nothing here is imported by the library or timed in its tests.
"""
