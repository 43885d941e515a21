"""A page to look at what the instances of a process do: see :func:`canal.cli.web.app`."""

from canal.cli.web.app import app

__all__ = ["app"]
