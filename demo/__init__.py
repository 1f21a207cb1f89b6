"""The demonstration: a job that is resized, shot at and moved, against the same script undisturbed."""
