"""What the hot modules use of ``cython``, for the interpreted build where Cython is not installed: it does nothing.

Cython takes these from a module's .py alone; in its .pxd they are without effect.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

_Class = TypeVar("_Class")

#: Whether this is the compiled build.
compiled = False


def cclass(made: _Class) -> _Class:
    """A C class."""
    return made


def no_gc(made: _Class) -> _Class:
    """Objects that the collector never looks at: they cannot be part of a cycle."""
    return made


def freelist(size: int) -> Callable[[_Class], _Class]:
    """So many objects that are freed are kept, to be made anew."""
    return lambda made: made


def critical_section(*held: Any) -> AbstractContextManager[None]:
    """One thread at a time for each of these objects, where Python has no lock of its own."""
    return nullcontext()
