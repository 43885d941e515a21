"""Replacements without effect for the names that hot modules use from ``cython``, if Cython is not installed.

They must be in the module's .py file: Cython ignores them in a .pxd.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

_Class = TypeVar("_Class")

#: True in the compiled build.
compiled = False


def cclass(made: _Class) -> _Class:
    """Declare a C class."""
    return made


def no_gc(made: _Class) -> _Class:
    """Exclude objects from garbage collection. They cannot be part of a cycle."""
    return made


def freelist(size: int) -> Callable[[_Class], _Class]:
    """Keep up to ``size`` freed objects for reuse."""
    return lambda made: made


def critical_section(*held: Any) -> AbstractContextManager[None]:
    """Lock these objects in interpreters without a global lock."""
    return nullcontext()
