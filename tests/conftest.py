"""What holds for all tests."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("tessera", deadline=None)  # how long an example takes says something of the machine
settings.load_profile("tessera")
