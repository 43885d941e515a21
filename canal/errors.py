"""All errors of the library: one tree by cause, with the place and a remedy.

They never contain a cell value or a password.

    CanalError
    ├── ConfigError (ValueError)         invalid options, found before start
    ├── UsageError                       an error of the caller
    │   ├── StateError                   the call is not allowed in this state
    │   ├── UnknownDestinationError (LookupError)
    │   ├── NotSubscribedError
    │   └── BatchError                   unknown id, or ack out of order
    ├── SourceError                      the server, its stream or a binlog file
    │   ├── ConnectionLostError          retried without limit
    │   ├── AuthenticationError
    │   ├── ServerError                  .errno .sqlstate
    │   ├── PositionLostError            .reason: the log was purged or replaced; needs an operator
    │   ├── SchemaError                  column names or types are uncertain
    │   ├── UnloggedChangeError          rows changed without row events; followers of the table are out of date
    │   └── DecodeError
    │       ├── TruncatedError
    │       ├── ChecksumError
    │       ├── UnsupportedError         an event, type or format that this version cannot decode
    │       └── MissingTableMapError
    ├── HookError                        a custom filter, hook, sink or store raised an exception
    ├── StoreError
    │   └── StoreClosedError
    ├── CursorError                      a stored cursor cannot be read or written
    ├── HistoryError                     a stored schema history cannot be read or written
    ├── TargetError                      a target table; the batch was not written
    │   ├── TargetSchemaError            its columns do not match the changes
    │   ├── TargetConflictError          a concurrent writer
    │   ├── UnfitChangeError             a change that cannot be applied exactly
    │   ├── TargetLostError              a written table was dropped or replaced
    │   └── StreamMismatchError          the stream differs from the one that the table follows
    └── CoordinationError
        └── NotActiveError               another process owns the destination
"""

from __future__ import annotations

import copy
import enum
import re
import sys
from typing import Any, Final

__all__ = [
    "LostReason",
    "CanalError",
    "ConfigError",
    "UsageError",
    "StateError",
    "UnknownDestinationError",
    "NotSubscribedError",
    "BatchError",
    "SourceError",
    "ConnectionLostError",
    "AuthenticationError",
    "ServerError",
    "PositionLostError",
    "SchemaError",
    "UnloggedChangeError",
    "DecodeError",
    "TruncatedError",
    "ChecksumError",
    "UnsupportedError",
    "MissingTableMapError",
    "HookError",
    "StoreError",
    "StoreClosedError",
    "CursorError",
    "HistoryError",
    "TargetError",
    "TargetLostError",
    "TargetSchemaError",
    "TargetConflictError",
    "UnfitChangeError",
    "StreamMismatchError",
    "CoordinationError",
    "NotActiveError",
]


if not hasattr(sys.modules["canal"], "build"):  # imported by every module; here canal/__init__.py belongs to another package
    raise ImportError(
        "the package canal is not whole: canal-python, which has a package of the same name, has replaced or removed files of "
        "canal-cdc. Run: pip uninstall canal-python; pip install --force-reinstall --no-deps canal-cdc",
        name="canal",
    )


#: Characters that a terminal interprets or that reorder a line: C0, DEL, C1, line ends, directions, and lone surrogates, which
#: cannot be encoded.
CONTROLS = re.compile("[\0-\x08\n-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
_URL_PASSWORD = re.compile(r"(?<=://)([^\s:/@'\"]*):[^\s'\"]*@")


def visible(text: str) -> str:
    """Return text escaped for one line of a terminal or log: table and column names may contain line breaks."""
    return CONTROLS.sub(lambda found: ascii(found[0])[1:-1], text)


def without_passwords(text: str) -> str:
    """Return text with URL passwords removed."""
    return _URL_PASSWORD.sub(r"\1:…@", text) if "://" in text else text


class CanalError(Exception):
    """Base class of the library's errors. The text is one line without URL passwords.

    ``destination`` and ``position`` are set if known. ``remedy`` is an instruction for the operator.
    """

    remedy: str = ""

    def __init__(self, message: str, *, destination: str = "", position: Any = None, remedy: str = "") -> None:
        message = without_passwords(message)
        super().__init__(message)
        self.message = message
        self.destination = destination
        self.position = position
        if remedy:
            self.remedy = without_passwords(remedy)

    def __str__(self) -> str:
        text = self.message
        if self.destination:
            text = f"[{self.destination}] {text}"
        if self.position is not None:
            text = f"{text} (at {self.position})"
        return visible(f"{text}. {self.remedy}" if self.remedy else text)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.message, dict(self.__dict__)))


def _rebuild(cls: type[CanalError], message: str, state: dict[str, Any]) -> CanalError:
    error = cls.__new__(cls)
    Exception.__init__(error, message)
    error.__dict__.update(state)
    return error


def fresh(error: CanalError) -> CanalError:
    """Return a copy of a stored error to raise: raising the same object repeatedly would extend its traceback each time."""
    copied: CanalError = copy.copy(error)
    copied.__cause__ = error.__cause__
    return copied.with_traceback(error.__traceback__)


class ConfigError(CanalError, ValueError):
    """Invalid options, found before start."""


class UnknownOptionError(ConfigError, TypeError):
    """An unknown keyword argument."""


class UsageError(CanalError):
    """An error of the caller."""


class StateError(UsageError):
    """The call is not allowed in the present state."""


class UnknownDestinationError(UsageError, LookupError):
    """No instance has this name, and no generator creates it."""


class NotSubscribedError(UsageError):
    """The client must call ``subscribe`` first."""


class BatchError(UsageError):
    """The batch id is unknown or is not the oldest pending batch."""


class SourceError(CanalError):
    """An error of the server, its replication stream or a binlog file."""


class ConnectionLostError(SourceError):
    """The connection broke. The parser reconnects and continues after the last complete transaction.

    ``by_source``: the source ended the connection in an orderly way or by KILL, rather than the network.
    """

    def __init__(self, message: str, *, by_source: bool = False, **where: Any) -> None:
        super().__init__(message, **where)
        self.by_source = by_source


class AuthenticationError(SourceError):
    """The server refused the user."""


class ServerError(SourceError):
    """The server answered with an error packet."""

    def __init__(self, message: str, *, errno: int = 0, sqlstate: str = "", **where: Any) -> None:
        super().__init__(message, **where)
        self.errno = errno
        self.sqlstate = sqlstate


class LostReason(enum.Enum):
    """The reason for a lost position."""

    PURGED = "purged"
    """The log, or transactions of the GTID set's rest, are there no more: purged, removed or reset."""
    DIVERGED = "diverged"
    """The GTID set has transactions that the source does not have: it lost them, or never got them."""
    BEYOND = "beyond"
    """The offset is past the end of its log, or no event begins there: that log is not what it was."""
    OTHER_SERVER = "other server"
    """The journal and offset are those of another server."""
    GAP = "gap"
    """Something between two events is missing: a log, or the end of one."""
    UNREACHABLE = "unreachable"
    """The source cannot be asked for it: a GTID set without gtid_mode, say."""


#: Remedy: continue after unreadable events.
GO_ON_AFTER: Final = (
    "To go on after it, call seek(client_id, position) with a later position, start the instance again, and copy the tables "
    "anew. Without a stored cursor, set start= to that position."
)
LOG_DAMAGED: Final = f"The log is damaged here. {GO_ON_AFTER}"
#: Remedy: continue without the lost events, with and without a stored cursor. A cursor has precedence over ``start``.
GO_ON_AT_CURSOR: Final = (
    'Set on_lost="latest" and copy the tables anew once it streams, or set on_lost="earliest" to accept the gap. start= counts '
    "only without a stored cursor: unsubscribe() deletes it."
)
GO_ON_AT_START: Final = 'Set start="latest" and copy the tables anew once it streams, or set start="earliest" to accept the gap.'


class PositionLostError(ServerError):
    """The source cannot continue from the position; see ``reason``.

    ``behind`` is the position at which the log continues after the gap; None if that is the oldest available log.
    """

    def __init__(self, message: str, *, reason: LostReason = LostReason.PURGED, behind: Any = None, **where: Any) -> None:
        super().__init__(message, **where)
        self.reason = reason
        self.behind = behind


class SchemaError(SourceError):
    """The names or types of a table's columns are uncertain."""


class UnloggedChangeError(SourceError):
    """Rows changed without row events: TRUNCATE, a replaced table or a narrower column.

    A target that applies only row changes now differs from the table. The error repeats after each restart until an operator has
    synchronized the target and confirms it, or reloads the table.
    """


class DecodeError(SourceError):
    """Bytes that violate the binlog format. The stream stops."""

    def __init__(self, message: str, *, event_type: int = -1, table: str = "", column: str = "", **where: Any) -> None:
        super().__init__(message, **where)
        self.event_type = event_type
        self.table = table
        self.column = column


class TruncatedError(DecodeError):
    """The input ends inside a value."""


class ChecksumError(DecodeError):
    """The CRC32 of an event does not match."""


class UnsupportedError(DecodeError):
    """An event, column type or file format that this version cannot decode."""


class MissingTableMapError(DecodeError):
    """A rows event has a table id without a table map."""


class HookError(CanalError):
    """A custom filter, hook, sink or store raised an exception; see ``__cause__``."""


class StoreError(CanalError):
    """The store refused entries."""


class StoreClosedError(StoreError):
    """The store was closed during a call."""


class CursorError(CanalError):
    """A stored cursor cannot be read or written. The ack was not stored."""


class HistoryError(CanalError):
    """A stored schema history cannot be read or written. Later changes were not delivered."""


class TargetError(CanalError):
    """An error of a target table. The batch was not written.

    ``retry_after``: delay in seconds requested by the target, or 0. ``is_lasting``: whether a retry is useless until an operator
    applies the remedy.
    """

    def __init__(self, message: str, *, retry_after: float = 0.0, is_lasting: bool = False, **where: Any) -> None:
        super().__init__(message, **where)
        self.retry_after = retry_after
        self.is_lasting = is_lasting


class TargetSchemaError(TargetError):
    """The target's columns do not match the changes."""


class TargetConflictError(TargetError):
    """Another writer changed the target concurrently. Apply the batch again; changes that are already present are skipped."""


class UnfitChangeError(TargetError):
    """A change that cannot be applied exactly, because part of the row or of a value is unknown.

    ``changes`` has the rejected changes (``canal.changes.Change``) if known, and ``reasons`` a message for each.
    """

    def __init__(self, message: str, *, changes: tuple[Any, ...] = (), reasons: tuple[str, ...] = (), **where: Any) -> None:
        super().__init__(message, **where)
        self.changes = changes
        self.reasons = reasons or (message,) * len(changes)


class TargetLostError(TargetError):
    """A table or column that was written before was dropped or replaced."""

    def __init__(self, message: str, **where: Any) -> None:
        super().__init__(message, is_lasting=True, **where)


class StreamMismatchError(TargetError):
    """The changes do not continue the stream that the target follows."""


class CoordinationError(CanalError):
    """ZooKeeper or another coordinator failed."""


class NotActiveError(CoordinationError):
    """Another process owns the destination."""
