"""Settings for every test: noisy machines must not turn a property into a timing assertion."""

from hypothesis import settings

settings.register_profile("veilgp", deadline=None)
settings.load_profile("veilgp")
