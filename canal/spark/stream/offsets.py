"""The offset of a Spark stream: a position of the source, and how often the source has become another one.

Never holds a batch id, a clock or a counter: the document of an offset that did not move is the same, which is how Spark
compares.
"""

from __future__ import annotations

import json
from typing import Any, Final

import attrs

from canal.errors import CursorError
from canal.position import Position
from canal.snapshot.chunks import SnapshotPlan

VERSION: Final = 1

#: What Spark is given before anything is known. The first batch, which has no rows, pins the real start.
INITIAL: Final = {"v": VERSION, "ph": "init"}

_REMEDY: Final = "Restore the checkpoint, or begin a new one with startingPosition"


@attrs.frozen
class Offset:
    """Where a stream is: everything up to ``position`` is done. ``epoch`` rises when the source's identity changes.

    With ``plan`` it is in a snapshot, of which ``done`` chunks are read; the stream then begins at the plan's position.
    ``types`` are the declared types of the columns that the rows before it had, as a ``Watch`` gives them; those before
    ``types_at``, a position, where executors alone have read what lies between. ``since`` is where a first
    batch began whose start Spark did not know; offsets that differ in nothing else are equal.
    """

    position: Position
    epoch: int = 0
    plan: SnapshotPlan | None = None
    done: int = 0
    types: str = ""
    types_at: str = ""
    since: Offset | None = attrs.field(default=None, eq=False)

    @property
    def chunks_left(self) -> int:
        return 0 if self.plan is None else self.plan.size - self.done

    def to_document(self) -> dict[str, Any]:
        """What Spark writes down, its keys always in the same order."""
        if self.plan is not None:
            return {"v": VERSION, "ph": "snap", "ep": self.epoch, "done": self.done, "plan": self.plan.to_document()}
        found = {"v": VERSION, "ph": "bin", "ep": self.epoch, "position": self.position.to_document()}
        if self.types:
            found["types"] = json.loads(self.types)
        if self.types_at:
            found["types_at"] = self.types_at
        if self.since is not None:
            found["since"] = self.since.to_document()
        return found

    @classmethod
    def from_document(cls, value: Any) -> Offset | None:
        """Read what ``to_document`` gave; None for the initial offset.

        Raises:
            CursorError: it is neither.
        """
        if not isinstance(value, dict):
            raise CursorError("the offset of a stream is not a JSON object", remedy=_REMEDY)
        version, phase, epoch = value.get("v"), value.get("ph"), value.get("ep", 0)
        if version != VERSION:
            raise CursorError(
                f"the offset of a stream has format {version!r}, not {VERSION}",
                remedy="Read the checkpoint with the version of this library that wrote it, or a later one",
            )
        if phase == "init":
            return None
        if phase == "snap" and type(epoch) is int and epoch >= 0:
            plan, done = SnapshotPlan.from_document(value.get("plan")), value.get("done")
            if type(done) is int and 0 <= done <= plan.size:
                return cls(plan.position, epoch, plan, done, plan.types)
        if phase != "bin" or type(epoch) is not int or epoch < 0:
            raise CursorError(f"the offset of a stream has the phase {phase!r} and the epoch {epoch!r}", remedy=_REMEDY)
        types, at = json.dumps(value["types"]) if "types" in value else "", str(value.get("types_at", ""))
        since = cls.from_document(value["since"]) if "since" in value else None
        return cls(Position.from_document(value.get("position")), epoch, types=types, types_at=at, since=since)
