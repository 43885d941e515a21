"""Every error the library raises, as one tree: whose fault it is, where it happened, what to do about it.

Never carries a cell value or a password.

    CanalError
    ├── ConfigError (ValueError)         bad options, found before anything starts
    ├── UsageError                       the caller's fault
    │   ├── StateError                   call not legal in this state
    │   ├── UnknownDestinationError (LookupError)
    │   ├── NotSubscribedError
    │   └── BatchError                   unknown id, or ack out of order
    ├── SourceError                      the server, its stream or a binlog file
    │   ├── ConnectionLostError          the only one that is retried for ever
    │   ├── AuthenticationError
    │   ├── ServerError                  .errno .sqlstate
    │   ├── PositionLostError            .reason: the log is gone, or is another; needs an operator
    │   ├── SchemaError                  names or types of a table cannot be told for sure
    │   ├── UnloggedChangeError          rows of a table changed without a word in the log: whoever follows it has others
    │   └── DecodeError
    │       ├── TruncatedError
    │       ├── ChecksumError
    │       ├── UnsupportedError         an event, type or format this version does not decode
    │       └── MissingTableMapError
    ├── HookError                        the user's own filter, hook, sink or store raised
    ├── StoreError
    │   └── StoreClosedError
    ├── CursorError                      a stored cursor cannot be read or written
    ├── HistoryError                     a stored schema history cannot be read or written
    ├── TargetError                      a table that changes are applied to: nothing of the batch was written
    │   ├── TargetSchemaError            its columns are not those of the changes
    │   ├── TargetConflictError          another writer got in between
    │   ├── UnfitChangeError             a change that cannot be applied exactly
    │   ├── TargetLostError              a table that was written is gone, or is another one
    │   └── StreamMismatchError          what comes is not the stream that the table has followed
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


if not hasattr(sys.modules["canal"], "build"):  # every module of the library comes here, and canal/__init__.py is not ours
    raise ImportError(
        "the package canal is not whole: canal-python, which has a package of the same name, has replaced or removed files of "
        "canal-cdc. Run: pip uninstall canal-python; pip install --force-reinstall --no-deps canal-cdc",
        name="canal",
    )


#: What a terminal obeys, or what changes the order in which it shows a line: C0, DEL, C1, ends of lines, directions, and halves
#: of characters, which cannot be written.
CONTROLS = re.compile("[\0-\x08\n-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
_URL_PASSWORD = re.compile(r"(?<=://)([^\s:/@'\"]*):[^\s'\"]*@")


def visible(text: str) -> str:
    """Return text for one line of a terminal or a log: names of tables and columns may have line breaks in them."""
    return CONTROLS.sub(lambda found: ascii(found[0])[1:-1], text)


def without_passwords(text: str) -> str:
    """Return text with the passwords of its URLs left out."""
    return _URL_PASSWORD.sub(r"\1:…@", text) if "://" in text else text


class CanalError(Exception):
    """Base of all errors of the library. Its text is one line, without the passwords of URLs.

    ``destination`` and ``position`` are filled in where they are known; ``remedy`` is one sentence for the operator.
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
    """An equal error to raise, of one that is kept: raised again and again that one would grow by a traceback each time."""
    copied: CanalError = copy.copy(error)
    copied.__cause__ = error.__cause__
    return copied.with_traceback(error.__traceback__)


class ConfigError(CanalError, ValueError):
    """Bad options, found before anything starts."""


class UnknownOptionError(ConfigError, TypeError):
    """A keyword that is none of the options."""


class UsageError(CanalError):
    """The caller asked for something that cannot be."""


class StateError(UsageError):
    """The call is not legal in the present state."""


class UnknownDestinationError(UsageError, LookupError):
    """No instance of that name, and no generator that makes one."""


class NotSubscribedError(UsageError):
    """The client must call ``subscribe`` first."""


class BatchError(UsageError):
    """The batch id is unknown, or it is not the oldest one that is outstanding."""


class SourceError(CanalError):
    """The server, its replication stream or a binlog file is at fault."""


class ConnectionLostError(SourceError):
    """The connection broke; the parser reconnects and continues after the last whole transaction.

    ``by_source``: the source ended it in an orderly way, or a KILL did, rather than the network.
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
    """Why a position is lost."""

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


#: How to go on after a place that cannot be read.
GO_ON_AFTER: Final = (
    "To go on after it, call seek(client_id, position) with a later position, start the instance again, and copy the tables "
    "anew. Without a stored cursor, set start= to that position."
)
LOG_DAMAGED: Final = f"The log is damaged here. {GO_ON_AFTER}"
#: How to go on without what is lost, when a cursor is stored and when none is: a cursor wins over ``start``.
GO_ON_AT_CURSOR: Final = (
    'Set on_lost="latest" and copy the tables anew once it streams, or set on_lost="earliest" to accept the gap. start= counts '
    "only without a stored cursor: unsubscribe() deletes it."
)
GO_ON_AT_START: Final = 'Set start="latest" and copy the tables anew once it streams, or set start="earliest" to accept the gap.'


class PositionLostError(ServerError):
    """The source cannot go on from the position; ``reason`` says why.

    ``behind`` is a position where the log goes on behind what is missing; None where that is the oldest log that is there.
    """

    def __init__(self, message: str, *, reason: LostReason = LostReason.PURGED, behind: Any = None, **where: Any) -> None:
        super().__init__(message, **where)
        self.reason = reason
        self.behind = behind


class SchemaError(SourceError):
    """The names or types of a table's columns cannot be told for sure."""


class UnloggedChangeError(SourceError):
    """Rows of a table changed, and the log does not tell which or how: TRUNCATE, another table of the name, a narrower column.

    What follows the table by its changes alone differs from here on. No restart mends that, so it comes again until somebody
    has brought the target to the table's state and says so, or reads the table anew.
    """


class DecodeError(SourceError):
    """Bytes that do not follow the binlog format; the stream stops here."""

    def __init__(self, message: str, *, event_type: int = -1, table: str = "", column: str = "", **where: Any) -> None:
        super().__init__(message, **where)
        self.event_type = event_type
        self.table = table
        self.column = column


class TruncatedError(DecodeError):
    """The input ends before the value does."""


class ChecksumError(DecodeError):
    """The CRC32 of an event does not match its bytes."""


class UnsupportedError(DecodeError):
    """An event, a column type or a file format that this version does not decode."""


class MissingTableMapError(DecodeError):
    """A rows event names a table id that no table map has announced."""


class HookError(CanalError):
    """A filter, hook, sink or store given by the user raised; ``__cause__`` is its exception."""


class StoreError(CanalError):
    """The store refused entries."""


class StoreClosedError(StoreError):
    """The store was closed while a call waited on it."""


class CursorError(CanalError):
    """A stored cursor cannot be read or written; nothing was acknowledged."""


class HistoryError(CanalError):
    """A stored schema history cannot be read or written; nothing behind it was delivered."""


class TargetError(CanalError):
    """A table that changes are applied to is at fault; nothing of the batch was written.

    ``retry_after``: seconds that the target asks to be left alone; 0 where it says nothing. ``is_lasting``: whether it is of
    no use to try again before the remedy was followed.
    """

    def __init__(self, message: str, *, retry_after: float = 0.0, is_lasting: bool = False, **where: Any) -> None:
        super().__init__(message, **where)
        self.retry_after = retry_after
        self.is_lasting = is_lasting


class TargetSchemaError(TargetError):
    """The columns of the target are not those of the changes."""


class TargetConflictError(TargetError):
    """Another writer changed the target meanwhile. Apply the batch again: what is there by then is left out."""


class UnfitChangeError(TargetError):
    """A change that cannot be applied exactly: a part of the row, or of a value, is not known.

    ``changes`` are those that it is about (``canal.changes.Change``), where that is known; ``reasons`` has a message
    for each of them.
    """

    def __init__(self, message: str, *, changes: tuple[Any, ...] = (), reasons: tuple[str, ...] = (), **where: Any) -> None:
        super().__init__(message, **where)
        self.changes = changes
        self.reasons = reasons or (message,) * len(changes)


class TargetLostError(TargetError):
    """A table of the target, or a column of it, that was written before is gone, or another table has its name."""

    def __init__(self, message: str, **where: Any) -> None:
        super().__init__(message, is_lasting=True, **where)


class StreamMismatchError(TargetError):
    """What comes is not, or not only, the continuation of the stream that the target has followed."""


class CoordinationError(CanalError):
    """ZooKeeper or another coordinator failed."""


class NotActiveError(CoordinationError):
    """Another process owns the destination."""
