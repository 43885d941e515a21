"""The options of the Spark source, checked when they are given.

Never connects to anything and never shows a password.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, Literal

import attrs

from canal.errors import CanalError, ConfigError
from canal.filter import TableFilter
from canal.instance.sharing.client import SharedSource
from canal.parse.source.files import LocalBinlogSource
from canal.parse.source.mysql import MySQLSource
from canal.parse.source.protocol import Source
from canal.position import Position

_FILE_POSITION: Final = re.compile(r"(.+\.\d+):(\d+)")
_UNITS: Final = {"": 1, "b": 1, "k": 1 << 10, "kb": 1 << 10, "m": 1 << 20, "mb": 1 << 20, "g": 1 << 30, "gb": 1 << 30}


def _number(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError("it must be at least 1")
    return value


def _count(text: str) -> int:
    value = int(text)
    if value < 0:
        raise ValueError("it must be at least 0")
    return value


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 <= value < float("inf"):
        raise ValueError("it must be a number of seconds")
    return value


def _bytes(text: str) -> int:
    found = re.fullmatch(r"(\d+)\s*([a-z]*)", text.strip().lower())
    if found is None or found[2] not in _UNITS or not int(found[1]):
        raise ValueError("it must be a number of bytes, such as 67108864 or 64m")
    return int(found[1]) * _UNITS[found[2]]


def _one_of(*names: str) -> Callable[[str], str]:
    def check(text: str) -> str:
        if text.lower() not in names:
            raise ValueError(f"it is one of {', '.join(names)}")
        return text.lower()

    return check


def _position(text: str) -> str | Position:
    """ "latest", "earliest", ``journal:offset``, a GTID set, or the JSON of a position."""
    text = text.strip()
    if text.lower() in ("latest", "earliest"):
        return text.lower()
    if text.startswith("{"):
        return Position.from_text(text)
    if found := _FILE_POSITION.fullmatch(text):
        return Position(journal=found[1], offset=int(found[2]))
    try:
        return Position(gtid=text)
    except CanalError as error:
        forms = "latest, earliest, a position such as binlog.000001:4, a GTID set, or the JSON of a position"
        raise ValueError(f"it is none of {forms} ({error.message})") from error


def _positions(text: str) -> tuple[str, ...]:
    positions = tuple(part.strip() for part in text.split(",") if part.strip())
    if not all(map(_FILE_POSITION.fullmatch, positions)):
        raise ValueError("it holds positions as an UnloggedChangeError names them, such as binlog.000001:4, with commas between")
    return positions


def _moment(text: str) -> Position:
    """Milliseconds since 1970, or ISO 8601; UTC where it names no zone."""
    if text.isdecimal():
        return Position(timestamp=int(text))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError("it must be milliseconds since 1970, or ISO 8601 such as 2026-01-31T12:00:00") from error
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    return Position(timestamp=int(moment.timestamp() * 1000))


def _names(text: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in text.split(","))
    if not all(names) or len({name.lower() for name in names}) < len(names):
        raise ValueError("it holds names of columns, each once, with commas between")
    return names


def _table(text: str) -> tuple[str, str]:
    schema, dot, name = text.partition(".")
    if not (schema and dot and name):
        raise ValueError("it must be schema.table")
    return schema, name


@attrs.frozen(kw_only=True)
class Options:
    """What the options mean. Pickles; its text does not show the password.

    ``source`` is where the log comes from, ``table`` the one table (None: many, as an envelope); sizes are bytes, times
    seconds. ``is_bounded``: a range of the log is read, not followed.
    """

    source: Source
    table: tuple[str, str] | None
    filter: str
    columns: tuple[str, ...] = ()
    black_filter: str = ""
    starting: str | Position | None = None
    ending: str | Position | None = None
    max_rows: int | None = None
    max_bytes: int | None = None
    max_transaction: int = 256 << 20
    poll: float = 0.5
    idle_advance: float = 60.0
    idle_bytes: int = 64 << 20
    spool_dir: str | None = None
    spool_bytes: int = 512 << 20
    store_bytes: int = 16 << 20
    transport: str = "auto"
    read_by: str = "executors"
    backlog_files: int = 2
    max_files: int = 16
    schema_change: str = "fail"
    on_truncate: str = "fail"
    statements: str = "fail"
    acknowledged: tuple[str, ...] = ()
    history_dir: str | None = None
    unknown_columns: Literal["positions", "error"] = "positions"
    mode: str = "changes"
    snapshot: str = "never"
    snapshot_dir: str | None = None
    chunk_rows: int = 100_000
    chunks: int = 8
    lock_timeout: float = 10.0
    batch_rows: int = 16384
    start_timeout: float = 30.0
    is_bounded: bool = False
    instance: str | None = None
    client: int | None = None


#: Options of the stream: name, the attribute of ``Options``, and how its text is read.
_OWN: Final[dict[str, tuple[str, Callable[[str], Any]]]] = {
    "table": ("table", _table),
    "columns": ("columns", _names),
    "tables": ("filter", str),
    "excludeTables": ("black_filter", str),
    "startingPosition": ("starting", _position),
    "startingTime": ("starting", _moment),
    "endingPosition": ("ending", _position),
    "endingTime": ("ending", _moment),
    "maxRowsPerBatch": ("max_rows", _number),
    "maxBytesPerBatch": ("max_bytes", _bytes),
    "maxTransactionBytes": ("max_transaction", _bytes),
    "maxFilesPerBatch": ("max_files", _number),
    "backlogFiles": ("backlog_files", _count),
    "pollTimeout": ("poll", _seconds),
    "idleAdvance": ("idle_advance", _seconds),
    "idleAdvanceBytes": ("idle_bytes", _bytes),
    "spoolDir": ("spool_dir", str),
    "spoolBytes": ("spool_bytes", _bytes),
    "storeBytes": ("store_bytes", _bytes),
    "transport": ("transport", _one_of("auto", "file", "bytes")),
    "readBy": ("read_by", _one_of("driver", "executors")),
    "schemaChange": ("schema_change", _one_of("fail", "keep")),
    "onTruncate": ("on_truncate", _one_of("fail", "row", "ignore")),
    "onStatement": ("statements", _one_of("fail", "ignore")),
    "acknowledge": ("acknowledged", _positions),
    "historyDir": ("history_dir", str),
    "unknownColumns": ("unknown_columns", _one_of("positions", "error")),
    "mode": ("mode", _one_of("changes", "snapshot")),
    "snapshot": ("snapshot", _one_of("never", "initial", "consistent")),
    "snapshotDir": ("snapshot_dir", str),
    "chunkRows": ("chunk_rows", _number),
    "chunksPerBatch": ("chunks", _number),
    "lockTimeout": ("lock_timeout", _seconds),
    "batchRows": ("batch_rows", _number),
    "startTimeout": ("start_timeout", _seconds),
    "instance": ("instance", str),
    "clientId": ("client", _number),
}

_SERVER: Final = tuple(field.name for field in attrs.fields(MySQLSource) if field.init)
_FILES: Final = ("path", "tableSchema", "lower_case_table_names")
_EXCLUSIVE: Final = (
    ("table", "tables"),
    ("startingPosition", "startingTime"),
    ("endingPosition", "endingTime"),
    ("path", "host"),
    ("path", "unix_socket"),
)


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def _plain(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


#: Every option by its name without case and underscores: Spark has lost the case.
_NAMES: Final = {_plain(name): name for name in (*_OWN, *_SERVER, *_FILES)}


def known_options() -> list[str]:
    """The names of all options, sorted."""
    return sorted((*_OWN, *map(_camel, (*_SERVER, *_FILES))), key=str.lower)


def parse_options(given: Mapping[str, str]) -> Options:
    """Read the options of ``readStream`` or ``read``.

    Raises:
        ConfigError: one is unknown, missing, or has no such value. The message never holds the value of a password.
    """
    if any(key.startswith("option.") for key in given):
        raise ConfigError(
            "CREATE TABLE … USING canal makes a table that nothing can be read of: Spark gives a Python source no options then",
            remedy="CREATE TEMPORARY VIEW … USING canal takes the same OPTIONS.",
        )
    found: dict[str, str] = {}
    for key, text in given.items():
        name = _NAMES.get(_plain(key))
        if name is None:
            raise ConfigError(f"the canal source has no option {key!r}", remedy=f"Its options are {', '.join(known_options())}.")
        found[name] = text
    for one, other in _EXCLUSIVE:
        if one in found and other in found:
            raise ConfigError(f"the options {_camel(one)} and {_camel(other)} exclude each other")
    values = {}
    for name, (attribute, read) in _OWN.items():
        if name in found:
            values[attribute] = _read(name, found[name], read)
    table = values.setdefault("table", None)
    if table is not None:
        # The second lets statements about the whole database through, such as DROP DATABASE.
        values["filter"] = ",".join(re.escape(name).replace(",", "\\x2c") for name in (".".join(table), f"{table[0]}."))
    elif not values.get("filter"):
        raise ConfigError('the canal source needs the option table, such as "shop.orders", or tables, a regular expression')
    TableFilter(values["filter"], values.get("black_filter", ""))
    if "columns" in values and table is None:
        raise ConfigError("columns goes with table: an envelope has none of a table's own")
    snapshot = values.get("snapshot", "never")
    if snapshot == "consistent" and "snapshot_dir" not in values:
        raise ConfigError(
            "snapshot=consistent needs snapshotDir: the table is read into files there",
            remedy="Give snapshotDir a directory that all executors have under the same path, and that is there after a restart.",
        )
    if snapshot == "never" and "snapshot_dir" in values:
        raise ConfigError("snapshotDir goes with snapshot=initial or consistent")
    if values.get("mode") == "snapshot" or snapshot != "never":
        if table is None or "path" in found:
            raise ConfigError("a snapshot is of one table of a server", remedy="Give the options table and host.")
        if "starting" in values:
            raise ConfigError("a stream with a snapshot begins at the snapshot", remedy="Leave startingPosition out.")
    return Options(source=_source(found), **values)


def _read(name: str, text: str, read: Callable[[str], Any]) -> Any:
    try:
        return read(text)
    except (ValueError, CanalError) as error:
        reason = error.message if isinstance(error, CanalError) else str(error)
        raise ConfigError(f"option {_camel(name)} is {text!r}: {reason}") from error


def _source(found: Mapping[str, str]) -> Source:
    if "instance" in found:
        return _shared(found)
    if "clientId" in found:
        raise ConfigError("option clientId goes with instance")
    if "path" in found:
        names = found.get("lower_case_table_names")
        return LocalBinlogSource(
            found["path"],
            schema=found.get("tableSchema"),
            lower_case_table_names=None if names is None else _read("lower_case_table_names", names, int),
        )
    for name in _FILES:
        if name in found:
            raise ConfigError(f"option {_camel(name)} goes with path: a server is asked")
    if "host" not in found and "unix_socket" not in found:
        raise ConfigError("the canal source needs the option host (or unixSocket), or path for binlog files")
    values: dict[str, Any] = {name: found[name] for name in _SERVER if name in found}
    return MySQLSource(**values)


def _shared(found: Mapping[str, str]) -> Source:
    for name in (*_SERVER, *_FILES, "historyDir"):  # of a history of its own a query would see parts only
        if name in found:
            raise ConfigError(
                f"the options instance and {_camel(name)} exclude each other", remedy="The shared Instance has its own."
            )
    return SharedSource(found["instance"])
