"""Set-up for all tests: how long an example of a property takes says nothing about whether it holds."""

from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
