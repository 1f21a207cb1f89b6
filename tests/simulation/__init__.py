"""A seeded world in which the real rules of the protocol drive simulated processes."""
