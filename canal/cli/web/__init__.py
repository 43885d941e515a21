"""A web page that shows the instances of a process: see :func:`canal.cli.web.app`."""

from canal.cli.web.app import app

__all__ = ["app"]
