"""What stands in the way of a CDI document."""

from __future__ import annotations


class DriverNotReadyError(Exception):
    """The driver root has no usable driver (yet); the message says what is missing, and where."""
