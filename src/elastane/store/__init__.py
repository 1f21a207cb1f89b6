"""The coordination store: one small interface with etcd's semantics over several back ends."""
