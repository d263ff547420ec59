"""Laws hold on a busy machine too: hypothesis sets no deadline."""

from hypothesis import settings

settings.register_profile("busy", deadline=None)
settings.load_profile("busy")
