"""The chunks of a snapshot's plan, kept in a file while a checkpoint names it: they hold keys, and may be thousands.

Never needed for what is read to be right: where the file is gone, a snapshot in chunks begins anew at the same position.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import time
from pathlib import Path
from typing import Final

import attrs

from canal._util.disk import own_folder, private
from canal.errors import CursorError, SourceError, StoreError
from canal.snapshot.chunks import SnapshotPlan

log = logging.getLogger("canal.spark")

#: Seconds after which a file is held to be of a checkpoint that is no more.
_OLD: Final = 30 * 86400.0


def keep(plan: SnapshotPlan, root: str | None) -> SnapshotPlan:
    """Write a plan down; gives what a checkpoint has of it.

    Args:
        root: the directory; None for one of the user in the system's temporary directory.

    Raises:
        StoreError: it cannot be written.
    """
    kept = attrs.evolve(plan, chunks=(), kept=f"plan-{secrets.token_hex(8)}.json", count=len(plan.chunks))
    try:
        path = _path(kept, root)
        _remove_old(path.parent)
        fresh = path.with_name(f".{path.name}")
        with open(fresh, "w", encoding="utf-8", opener=private) as file:
            file.write(plan.to_text())
            file.flush()
            os.fsync(file.fileno())
        fresh.rename(path)
    except OSError as error:
        raise StoreError(
            f"the plan of the snapshot of {plan.name} cannot be written: {error}",
            remedy="Let snapshotDir be a directory that can be written; then start the query again.",
        ) from error
    return kept


def whole(plan: SnapshotPlan, root: str | None) -> SnapshotPlan | None:
    """A plan with its chunks; None where its file is gone, or no such plan.

    Raises:
        SourceError: nor are there the files of the rows then.
        StoreError: it cannot be read.
    """
    if not plan.kept:
        return plan
    try:
        found = SnapshotPlan.from_text(_path(plan, root).read_text(encoding="utf-8"))
        if len(found.chunks) == plan.count:
            return attrs.evolve(plan, chunks=found.chunks)
    except (FileNotFoundError, CursorError, UnicodeDecodeError):
        pass
    except OSError as error:
        raise StoreError(f"the plan of the snapshot of {plan.name} cannot be read: {error}") from error
    if plan.files:
        raise SourceError(
            f"the files of the snapshot of {plan.name} are not in {plan.files} any more",
            remedy="Let snapshotDir be a directory that later runs have under the same path; begin anew, with a new checkpoint.",
        )
    return None


def forget(plan: SnapshotPlan, root: str | None) -> None:
    """All chunks are read for good."""
    if plan.kept:
        with contextlib.suppress(OSError):
            _path(plan, root).unlink(missing_ok=True)


def _path(plan: SnapshotPlan, root: str | None) -> Path:
    """With the files of the rows, where there are any."""
    if Path(plan.kept).name != plan.kept:
        raise CursorError(f"the plan of a snapshot cannot be in a file {plan.kept!r}")
    return (Path(plan.files) if plan.files else own_folder(root, "canal-plans")) / plan.kept


def _remove_old(parent: Path) -> None:
    for path in parent.glob("*plan-*.json"):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > _OLD:
                path.unlink()
