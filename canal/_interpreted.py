"""What the hot modules use of ``cython``, for the interpreted build where Cython is not installed: it does nothing.

Cython takes these from a module's .py alone; in its .pxd they are without effect.
"""

from typing import TypeVar

_Class = TypeVar("_Class")


def cclass(made: _Class) -> _Class:
    """A C class."""
    return made


def no_gc(made: _Class) -> _Class:
    """Objects that the collector never looks at: they cannot be part of a cycle."""
    return made
