"""What hypothesis tries is the same in every run: no change fails by what it did not touch.

Nor has a case a deadline: laws hold on a busy machine too.
"""

from hypothesis import settings

settings.register_profile("same", deadline=None, derandomize=True)
settings.load_profile("same")
