"""Registry of objects in use, so that two instances do not share an object that serves one at a time.

Calls never wait.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from canal.errors import StateError

_lock = threading.Lock()
#: By id: the object (a reference keeps the id valid), its user, and the destination.
_claims: dict[int, tuple[object, object, str]] = {}


def claim(owner: object, destination: str, *parts: object) -> Callable[[], None]:
    """Claim objects for an owner. Return a function that releases them.

    Raises:
        StateError: an object is in use. No object is claimed.
    """
    mine = {id(part): (part, owner, destination) for part in parts}
    with _lock:
        for key in mine:
            part, other, user = _claims.get(key, (None, owner, ""))
            if other is not owner:
                raise StateError(
                    f"{_shown(part)} is in use by the instance of {user!r}",
                    destination=destination,
                    remedy="Give each instance an object of its own; attrs.evolve() gives a config the same ones again.",
                )
        _claims.update(mine)

    def let_go() -> None:
        with _lock:
            for key, value in mine.items():
                if _claims.get(key) is value:
                    del _claims[key]

    return let_go


def _shown(part: object) -> str:
    """Return a description of an object for messages; for a FileMeta, with the directory."""
    name, directory = type(part).__name__, getattr(part, "directory", None)
    return name if directory is None else f"{name}({str(directory)!r})"


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()  # another thread of the parent process may have held the old lock
    _claims.clear()


os.register_at_fork(after_in_child=_after_fork)
