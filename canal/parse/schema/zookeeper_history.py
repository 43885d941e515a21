"""The schema history in ZooKeeper, shared by all processes that embed the destination.

Never decides which process may write: with a fence, it refuses writes of a process that is no longer active.
"""

from __future__ import annotations

import contextlib
import json
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

from canal.errors import ConnectionLostError, CoordinationError, CursorError, HistoryError, NotActiveError
from canal.parse.schema.history import Snapshot, Table, Version, count_done
from canal.position import Position
from canal.zookeeper.session import Create, Delete, Fence, NodeExists, NodeMissing, Session, Set, VersionChanged, Write, ZooKeeper

_FORMAT: Final = 1
#: Bytes per node and per transaction. ZooKeeper refuses requests of 1 MiB, and keeps the last 500 in memory.
_PIECE: Final = 100_000
_INFLATED: Final = 256 << 20  # bytes that a step may have when it is inflated: some 100,000 tables
_DELETES: Final = 1000  # per transaction
#: Merge the steps that are done when they exceed this fraction of the first one's size, or this number.
_WORTH, _MANY = 1 / 4, 100
_YOUNG: Final = 2000  # maximum steps to keep because of their age: ZooKeeper holds all data in memory
_DAMAGED: Final = "Delete the node while no process runs the destination: tables are then read from the source again."


@attrs.frozen
class _Step:
    """The index entry of a step, stored in the node with the step's number and in further nodes for more pieces."""

    id: int
    position: Position
    made: int
    size: int
    pieces: int  # besides the first

    def names(self) -> list[str]:
        return [_name(self.id), *(_name(self.id, piece) for piece in range(1, self.pieces + 1))]


class ZooKeeperHistory:
    """Stores the schema history in ``<root>/destinations/<destination>/schema``, shared by all processes of the destination.

    The node ``schema`` lists the steps. Each step is a compressed node below it, in several pieces if it is large. Steps
    that are not listed do not count: the list is written last, in one transaction with the step, so a crash leaves the
    previous state. With ``ha=`` every write checks the fence. Without ``ha``, it opens a separate session, and detects a
    second writer by the version of the list.

    Args:
        config: the ZooKeeper connection options.
        keep_days: keep steps younger than this (at most the last 2000), regardless of cursors, for a start in the past.
        clock: returns Unix seconds.

    Raises ConnectionLostError if ZooKeeper does not answer: the parser retries from the last whole transaction.
    """

    def __init__(self, config: ZooKeeper, *, keep_days: float = 1.0, clock: Callable[[], float] = time.time) -> None:
        self._config = config
        self._keep = keep_days * 86400
        self._clock = clock
        self._session: Session | None = None
        self._own: Session | None = None
        self._fence: Callable[[], Fence | None] | None = None
        self._path = ""
        #: The list as last read or written: the version (-1: no list exists), the next step number, and the steps. None:
        #: unknown or uncertain.
        self._version: int | None = None
        self._next = 1
        self._steps: list[_Step] = []

    def bind(self, session: Session, fence: Callable[[], Fence | None]) -> None:
        """Write in this session and with this fence from now on, and read the list again."""
        self._session, self._fence, self._version = session, fence, None

    def open(self, destination: str) -> None:
        self._path = self._config.destination_path(destination, "schema")
        self._version = None
        if self._session is None:
            self._session = self._own = Session(self._config, claim="")
            self._own.open()

    def close(self) -> None:
        own, self._own = self._own, None
        self._version = None
        if own is not None:
            self._session = None
            own.close()

    # -- the history -----------------------------------------------------------------------------------------------

    def restore(self, position: Position) -> Snapshot | None:
        self._version = None  # another process may have written
        with self._errors("read"):
            self._load()
            count = self._done(self._steps, position)
            found = self._merged(self._steps[:count]) if count else None
            if found is not None and count < len(self._steps):
                found = attrs.evolve(found, ahead=self._merged(self._steps[count:]).settings)
        if count < len(self._steps):
            with self._errors("write"):
                self._commit(self._steps[:count])
        return found

    def add(self, position: Position, tables: Mapping[Table, Version], settings: Mapping[str, Any] | None) -> None:
        with self._errors("write"):
            self._load()
            step, node = self._write(position, int(self._clock()), tables, settings)
            self._commit([*self._steps, step], node)

    def prune(self, position: Position) -> None:
        with self._errors("write"):
            self._load()
            young = self._clock() - self._keep
            old = max(sum(step.made < young for step in self._steps), len(self._steps) - _YOUNG)
            done = self._steps[: self._done(self._steps[:old], position)]
            if len(done) < 2 or (sum(step.size for step in done[1:]) < done[0].size * _WORTH and len(done) < _MANY):
                return
            found = self._merged(done)
            merged, node = self._write(done[-1].position, done[-1].made, found.tables, found.settings)
            self._commit([merged, *self._steps[len(done) :]], node)

    def forget(self) -> None:
        with self._errors("write"):
            self._load()
            if self._steps:
                self._commit([])

    def _done(self, steps: list[_Step], position: Position) -> int:
        return count_done(len(steps), lambda number: steps[number].position, position, f" in {self._path}")

    # -- reading ---------------------------------------------------------------------------------------------------

    def _load(self) -> None:
        """Read the list if it is unknown, and remove unlisted nodes that a crashed process left."""
        if self._version is not None:
            return
        session = self._connected()
        listed = session.get(self._path)
        self._next, self._steps = 1, []
        if listed is None:
            self._version = -1
            return
        there = set(session.children(self._path))
        document = json.loads(listed.data)
        if document["format"] != _FORMAT:
            raise HistoryError(
                f"{self._path} has format {document['format']!r} instead of {_FORMAT}",
                remedy="Use the version of this library that wrote it, or a later version.",
            )
        numbers: list[int] = []
        for first, count in document["steps"]:
            if len(numbers) + count > len(there) + 1:  # otherwise the error names the missing node
                raise ValueError(f"it lists {count} steps from {first} on, but there are only {len(there)} nodes")
            numbers += range(first, first + count)
        self._next = int(document["next"])
        self._steps = [
            self._index(number, len(there), *_opened(data)) for number, data in zip(numbers, self._nodes(map(_name, numbers)))
        ]
        self._version = listed.version
        strange = there.difference(*(step.names() for step in self._steps))
        if strange:
            self._commit(self._steps, gone=sorted(strange))

    def _index(self, number: int, most: int, head: dict[str, Any], body: bytes) -> _Step:
        pieces = int(head["pieces"])
        if not 0 <= pieces < most:
            raise ValueError(f"step {number} has {pieces} further pieces, but there are only {most} nodes")
        return _Step(number, Position.from_text(head["place"]), int(head["made"]), len(body) + pieces * _PIECE, pieces)

    def _merged(self, steps: list[_Step]) -> Snapshot:
        tables: dict[Table, Version] = {}
        settings: Mapping[str, Any] = {}
        nodes = iter(self._nodes(name for step in steps for name in step.names()))
        for step in steps:
            body = _opened(next(nodes))[1] + b"".join(next(nodes) for _ in range(step.pieces))
            document = json.loads(_inflated(body))
            tables.update(((schema, table), version) for schema, table, version in document["tables"])
            settings = settings if document["settings"] is None else document["settings"]
        return Snapshot({table: version for table, version in tables.items() if version is not None}, settings)

    def _nodes(self, names: Iterable[str]) -> Iterator[bytes]:
        paths = [f"{self._path}/{name}" for name in names]
        for path, data in zip(paths, self._connected().get_many(paths)):
            if data is None:
                raise HistoryError(f"{path} is missing", remedy=_DAMAGED)
            yield data

    # -- writing ---------------------------------------------------------------------------------------------------

    def _write(
        self, position: Position, made: int, tables: Mapping[Table, Version], settings: Mapping[str, Any] | None
    ) -> tuple[_Step, Create]:
        """Write a step without the first node, which the transaction of the list creates."""
        document = {"settings": settings, "tables": [[*table, version] for table, version in tables.items()]}
        text = json.dumps(document, separators=(",", ":")).encode("ascii")
        if len(text) > _INFLATED:
            raise HistoryError(
                f"the schemas of {len(tables)} tables have {len(text)} bytes, and {self._path} takes {_INFLATED}",
                remedy="Follow fewer tables in one destination, or set binlog_row_metadata=FULL on the server.",
            )
        body = zlib.compress(text)  # has a checksum
        pieces = range(1, (len(body) - 1) // _PIECE + 1)
        head = json.dumps({"place": position.to_text(), "made": made, "pieces": len(pieces)}, separators=(",", ":"))
        if self._version == -1:
            self._connected().make(self._path.rpartition("/")[0])
            self._transaction([Create(self._path, self._list([]))])
            self._version = 0
        for piece in pieces:
            part = body[piece * _PIECE : (piece + 1) * _PIECE]
            self._transaction([Create(f"{self._path}/{_name(self._next, piece)}", part)])
        first = Create(f"{self._path}/{_name(self._next)}", head.encode("ascii") + b"\n" + body[:_PIECE])
        return _Step(self._next, position, made, len(body), len(pieces)), first

    def _commit(self, steps: list[_Step], new: Create | None = None, gone: Sequence[str] = ()) -> None:
        """Set the list of steps, including a new step, in one transaction. Then remove nodes that are not listed."""
        assert self._version is not None
        self._next += new is not None
        writes: list[Write] = [Set(self._path, self._list(steps), self._version)]
        if new is not None:
            writes.append(new)
        version = self._transaction(writes)[0]
        kept = {step.id for step in steps}
        gone = gone or [name for step in self._steps if step.id not in kept for name in step.names()]
        for start in range(0, len(gone), _DELETES):
            self._transaction([Delete(f"{self._path}/{name}") for name in gone[start : start + _DELETES]])
        self._version, self._steps = version, steps

    def _list(self, steps: list[_Step]) -> bytes:
        runs: list[list[int]] = []
        for step in steps:
            if runs and step.id == sum(runs[-1]):
                runs[-1][1] += 1
            else:
                runs.append([step.id, 1])
        return json.dumps({"format": _FORMAT, "next": self._next, "steps": runs}, separators=(",", ":")).encode("ascii")

    def _transaction(self, writes: list[Write]) -> list[int]:
        fence = None
        if self._fence is not None:
            fence = self._fence()
            if fence is None:
                raise NotActiveError("this process is no longer active: it must not write schemas")
        return self._connected().write(writes, fence)

    # -- ZooKeeper -------------------------------------------------------------------------------------------------

    def _connected(self) -> Session:
        if self._session is None:
            raise HistoryError("the schema history is closed")
        if self._own is not None and not self._own.wait_connected(self._config.session_timeout):
            raise CoordinationError(
                f"ZooKeeper at {self._config.hosts} does not answer", remedy="Check the addresses and that ZooKeeper runs."
            )
        return self._session

    @contextlib.contextmanager
    def _errors(self, doing: str) -> Iterator[None]:
        """Convert errors, and mark the list as uncertain: a failed write may have happened."""
        try:
            yield
        except NotActiveError:
            self._version = None
            raise
        except CoordinationError as error:
            self._version = None
            raise ConnectionLostError(f"cannot {doing} {self._path}: {error.message}", remedy=error.remedy) from error
        except (NodeExists, NodeMissing, VersionChanged) as error:
            self._version = None
            raise HistoryError(
                f"another process wrote {self._path} at the same time",
                remedy="Use ha= so that processes take turns, or use a separate destination or root for each.",
            ) from error
        except (
            zlib.error,
            ValueError,
            LookupError,
            TypeError,
            AttributeError,
            ArithmeticError,
            RecursionError,
            CursorError,
        ) as error:
            self._version = None
            raise HistoryError(f"{self._path} is damaged: {error!r}", remedy=_DAMAGED) from error


def _name(number: int, piece: int = 0) -> str:
    return f"{number:010}.{piece:04}" if piece else f"{number:010}"


def _inflated(body: bytes) -> bytes:
    inflater = zlib.decompressobj()
    text = inflater.decompress(body, _INFLATED + 1)
    if len(text) > _INFLATED:
        raise ValueError(f"a step has more than {_INFLATED} bytes")
    if not inflater.eof:
        raise ValueError("a step is cut")
    return text


def _opened(data: bytes) -> tuple[dict[str, Any], bytes]:
    head, _, body = data.partition(b"\n")
    found = json.loads(head)
    if not isinstance(found, dict):
        raise ValueError("a step has no head")
    return found, body
