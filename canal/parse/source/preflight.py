"""A look at a server before the start: what would stop an instance, what would leave it with less, and what mends it.

Never changes anything, and reads no row of a table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, Literal

from canal._util.findings import Finding
from canal.errors import ServerError
from canal.parse.source.mysql import MySQLSource
from canal.parse.source.session import QuerySession

_DAY: Final = 86_400
#: Rows events of that size no MariaDB sends in one piece.
_LARGEST_EVENT: Final = 1 << 30
_VARIABLES: Final = (
    "log_bin", "binlog_format", "binlog_row_image", "binlog_row_metadata", "binlog_row_value_options", "binlog_checksum",
    "binlog_expire_logs_seconds", "expire_logs_days", "gtid_mode", "innodb_native_foreign_keys", "server_id",
    "binlog_storage_engine", "binlog_row_event_fragment_threshold",
)  # fmt: skip


def look(source: MySQLSource) -> list[Finding]:
    """What was found, in the order in which it matters.

    Raises:
        AuthenticationError: the login is refused.
        ConnectionLostError: the server cannot be reached.
    """
    session = QuerySession(source)
    try:
        names = ", ".join(f"'{name}'" for name in _VARIABLES)
        rows = session.rows(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})", doing="look at its settings")
        values = {str(name).lower(): str(value) for name, value in rows}
        return [*settings(values), *_retention(values), _privileges(session), _cascades(session, values), _tls(session)]
    finally:
        session.close()


def settings(values: Mapping[str, str]) -> Iterator[Finding]:
    """What is said of those that the server has."""
    checks: tuple[tuple[str, Callable[[str], bool], Literal["warning", "error"], str, str], ...] = (
        ("log_bin", lambda value: value == "ON", "error", "there is no binary log.", "Start the server with --log-bin."),
        ("binlog_format", lambda value: value == "ROW", "error", "rows are not in the log.", "SET GLOBAL binlog_format=ROW;"),
        ("server_id", lambda value: value != "0", "error", "it serves no replica.", "SET GLOBAL server_id=1;"),
        (
            "binlog_row_image", lambda value: value == "FULL", "warning", "rows have only some of their columns.",
            "SET GLOBAL binlog_row_image=FULL;",
        ),
        (
            "binlog_row_metadata", lambda value: value == "FULL", "warning",
            "names and types of columns come from a schema history, which may not know them all.",
            "SET GLOBAL binlog_row_metadata=FULL;",
        ),
        (
            "binlog_row_value_options", lambda value: not value, "warning", "of a document there may be only what changed.",
            "SET GLOBAL binlog_row_value_options='';",
        ),
        (
            "binlog_checksum", lambda value: value != "NONE", "warning", "damage on the way is not noticed.",
            "SET GLOBAL binlog_checksum=CRC32;",
        ),
        (
            "binlog_storage_engine", lambda value: not value, "error", "the log is in .ibb files, and its stream is not read.",
            "Start the server without binlog_storage_engine.",
        ),
        (
            "binlog_row_event_fragment_threshold", lambda value: int(value) >= _LARGEST_EVENT, "warning",
            "larger rows events come in pieces, which are refused.",
            f"SET GLOBAL binlog_row_event_fragment_threshold={_LARGEST_EVENT};",
        ),
        (
            "gtid_mode", lambda value: value == "ON", "warning", "another server of the replication is found by its contents.",
            "Turn gtid_mode on, step by step.",
        ),
    )  # fmt: skip
    for name, is_good, level, text, remedy in checks:
        value = values.get(name)
        if value is None:  # a release that does not have it; of MariaDB GTIDs are always there
            continue
        if is_good(value):
            yield Finding(name, "ok", value)
        else:
            yield Finding(name, level, f"is {value or 'empty'}: {text}", remedy)


def _retention(values: Mapping[str, str]) -> Iterator[Finding]:
    seconds = int(float(values.get("binlog_expire_logs_seconds") or 0))
    seconds = seconds or int(float(values.get("expire_logs_days") or 0) * _DAY)
    if seconds and seconds < _DAY:
        yield Finding(
            "retention", "warning", f"a reader that is away for {seconds} s may lose its position.",
            "SET GLOBAL binlog_expire_logs_seconds=604800;",
        )  # fmt: skip
    else:
        yield Finding("retention", "ok", f"{seconds / _DAY:g} days" if seconds else "logs are kept until somebody purges them")


def _privileges(session: QuerySession) -> Finding:
    texts = " ".join(str(row[0]).upper() for row in session.rows("SHOW GRANTS", doing="read the user's privileges"))
    grants = texts.replace("REPLICATION REPLICA", "REPLICATION SLAVE").replace("BINLOG MONITOR", "REPLICATION CLIENT")
    missing = [one for one in ("REPLICATION SLAVE", "REPLICATION CLIENT") if one not in grants]
    if not missing and "SELECT" in grants or "ALL PRIVILEGES ON *.*" in grants:
        return Finding("privileges", "ok", "REPLICATION SLAVE, REPLICATION CLIENT, SELECT")
    if missing:
        remedy = f"GRANT {', '.join(missing)} ON *.* TO the user; where it has a role, activate it by default."
        return Finding("privileges", "error", f"{', '.join(missing)} is not among them.", remedy)
    return Finding(
        "privileges", "warning", "without SELECT no column is known that the log does not name.",
        "GRANT SELECT ON *.* TO the user;",
    )  # fmt: skip


def _cascades(session: QuerySession, values: Mapping[str, str]) -> Finding:
    sql = (
        "SELECT COUNT(*), MIN(CONCAT(constraint_schema, '.', table_name)) FROM information_schema.referential_constraints "
        "WHERE delete_rule IN ('CASCADE', 'SET NULL') OR update_rule IN ('CASCADE', 'SET NULL')"
    )
    try:
        ((count, first),) = session.rows(sql, doing="look for cascades")
    except ServerError as error:
        return Finding("cascades", "warning", f"cannot be looked for: {error.message}")
    is_logged = session.release.has("cascades_logged") and values.get("innodb_native_foreign_keys", "").upper() == "OFF"
    if not count or is_logged:
        return Finding("cascades", "ok", "none that this user sees and the log does not have")
    return Finding(
        "cascades", "warning", f"{count} foreign keys, the first of {first}, change rows without any in the log.",
        "Let the application change those rows, or use MySQL 9.6 or later.",
    )  # fmt: skip


def _tls(session: QuerySession) -> Finding:
    ((_, cipher),) = session.rows("SHOW STATUS LIKE 'Ssl_cipher'", doing="look at the connection")
    if cipher:
        return Finding("tls", "ok", f"encrypted with {cipher}")
    return Finding("tls", "warning", "the connection is not encrypted.", "Let the server have a certificate; ssl_mode=VERIFY_CA.")
