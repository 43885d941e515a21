"""A page to look at what the instances of a process do: see :func:`canal.web.app`."""

from canal.web.app import app

__all__ = ["app"]
