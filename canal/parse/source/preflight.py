"""Checks a server before the start: settings that would stop an instance or limit it, each with a remedy.

Changes nothing and reads no table rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Literal

from canal._util.findings import Finding
from canal.binlog.server_facts import OF_REPLICAS, numbers_alone
from canal.errors import ServerError, SourceError
from canal.filter import TableFilter
from canal.parse.source.mysql import MySQLSource
from canal.parse.source.session import QuerySession
from canal.parse.source.unlogged import unlogged

_DAY: Final = 86_400
#: Bytes. MariaDB never fragments rows events below this size.
_LARGEST_EVENT: Final = 1 << 30
_VARIABLES: Final = (
    "log_bin",
    "binlog_format",
    "binlog_row_image",
    "binlog_row_metadata",
    "binlog_row_value_options",
    "binlog_checksum",
    "binlog_expire_logs_seconds",
    "expire_logs_days",
    "gtid_mode",
    "innodb_native_foreign_keys",
    "server_id",
    "wsrep_on",
    "wsrep_gtid_mode",
    "binlog_storage_engine",
    "binlog_row_event_fragment_threshold",
)
#: Replication filters, in the order of SHOW REPLICA STATUS, and the column number of the first one.
_FILTERS: Final = (
    "replicate_do_db",
    "replicate_ignore_db",
    "replicate_do_table",
    "replicate_ignore_table",
    "replicate_wild_do_table",
    "replicate_wild_ignore_table",
)
_FILTERED: Final = 12


def look(source: MySQLSource, tables: TableFilter | None = None) -> list[Finding]:
    """Return the findings, most important first.

    Args:
        tables: the destination's filter, if there is one.

    Raises:
        AuthenticationError: the login is refused.
        ConnectionLostError: the server cannot be reached.
    """
    session = QuerySession(source)
    try:
        names = ", ".join(f"'{name}'" for name in (*_VARIABLES, *OF_REPLICAS))
        rows = session.rows(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})", doing="read the settings")
        grants = " ".join(str(row[0]).upper() for row in session.rows("SHOW GRANTS", doing="read the user's privileges"))
        values = {str(name).lower(): str(value) for name, value in rows}
        return [
            *settings(values),
            *_logging(session, values, tables or TableFilter()),
            *_filters(session),
            *_retention(values),
            _privileges(grants),
            *_snapshots(session, grants),
            _cascades(session, values),
            _tls(session),
        ]
    finally:
        session.close()


def settings(values: Mapping[str, str]) -> Iterator[Finding]:
    """Yield a finding for each setting that the server has."""
    checks: tuple[tuple[str, Callable[[str], bool], Literal["warning", "error"], str, str], ...] = (
        ("log_bin", lambda value: value == "ON", "error", "there is no binary log.", "Start the server with --log-bin."),
        ("binlog_format", lambda value: value == "ROW", "error", "the log has no row events.", "SET GLOBAL binlog_format=ROW;"),
        ("server_id", lambda value: value != "0", "error", "the server accepts no replica.", "SET GLOBAL server_id=1;"),
        (
            "binlog_row_image",
            lambda value: value == "FULL",
            "warning",
            "row events have only some columns.",
            "SET GLOBAL binlog_row_image=FULL;",
        ),
        (
            "binlog_row_metadata",
            lambda value: value == "FULL",
            "warning",
            "names and types of columns come from the schema history, which may not know all tables.",
            "SET GLOBAL binlog_row_metadata=FULL;",
        ),
        (
            "binlog_row_value_options",
            lambda value: not value,
            "warning",
            "JSON updates may contain only the changed parts.",
            "SET GLOBAL binlog_row_value_options='';",
        ),
        (
            "binlog_checksum",
            lambda value: value != "NONE",
            "warning",
            "corruption in transit is not detected.",
            "SET GLOBAL binlog_checksum=CRC32;",
        ),
        (
            "binlog_storage_engine",
            lambda value: not value,
            "error",
            "the log is in .ibb files, which are not supported.",
            "Start the server without binlog_storage_engine.",
        ),
        (
            "binlog_row_event_fragment_threshold",
            lambda value: int(value) >= _LARGEST_EVENT,
            "warning",
            "larger rows events are fragmented, which is not supported.",
            f"SET GLOBAL binlog_row_event_fragment_threshold={_LARGEST_EVENT};",
        ),
        (
            "gtid_mode",
            lambda value: value == "ON",
            "warning",
            "after a failover, the position on the new server must be found by comparing the logs' contents.",
            "Turn gtid_mode on, step by step.",
        ),
    )
    if values.get("wsrep_on", "").upper() == "ON":
        yield _of_galera(values)
    for name, is_good, level, text, remedy in checks:
        value = values.get(name)
        if value is None:  # not in this release. MariaDB always has GTIDs
            continue
        if is_good(value):
            yield Finding(name, "ok", value)
        else:
            yield Finding(name, level, f"is {value or 'empty'}: {text}", remedy)


def _of_galera(values: Mapping[str, str]) -> Finding:
    if not numbers_alone(values):
        return Finding("wsrep_gtid_mode", "ok", "ON")
    text = (
        "is OFF: a GTID means another transaction on each node, so after a failover the position is found by comparing contents."
    )
    return Finding("wsrep_gtid_mode", "warning", text, "Set wsrep_gtid_mode=ON and the same wsrep_gtid_domain_id on every node.")


def _logging(session: QuerySession, values: Mapping[str, str], tables: TableFilter) -> Iterator[Finding]:
    """Yield findings about changes that the server applies but does not log."""

    def ask(sql: str) -> list[tuple[Any, ...]]:
        return session.rows(sql, doing="ask what it logs")

    try:
        status = ask(session.release.status_query)
        found = {one.setting: one for one in unlogged(session.release, values, status[0] if status else (), ask)}
        names = session.table_names() if any(one.only or one.ignored for one in found.values()) else []
    except SourceError as error:
        yield Finding("logging", "warning", f"cannot be checked: {error.message}")
        return
    of_replica = next((name for name in OF_REPLICAS if name in values), "")
    for setting in filter(None, (of_replica, "binlog_do_db", "binlog_ignore_db")):
        one = found.get(setting)
        if one is None:
            yield Finding(setting, "ok", values.get(setting) or "empty")
            continue
        missing = next((".".join(name) for name in names if one.lacks(name[0]) and tables.accepts(*name)), "")
        text = one.text + (f"; the filter accepts such tables, for example {missing}" if missing else "")
        yield Finding(setting, "error" if one.is_fatal else "warning", f"{text}.", one.remedy)


def _filters(session: QuerySession) -> Iterator[Finding]:
    """Yield the filters that exclude changes from a replica's replication."""
    doing = "read the replication filters"
    try:
        if session.release.is_mariadb:  # SHOW SLAVE STATUS needs a separate privilege there
            rows = [row for row in session.rows("SHOW GLOBAL VARIABLES LIKE 'replicate%'", doing=doing) if row[0] in _FILTERS]
        else:
            status = session.rows(session.release.replica_query, doing=doing)
            rows = [pair for row in status for pair in zip(_FILTERS, row[_FILTERED:])]
    except SourceError as error:
        yield Finding("replication", "warning", f"cannot be checked: {error.message}")
        return
    for name, value in dict.fromkeys((str(name), str(value)) for name, value in rows if value):
        yield Finding(
            name,
            "warning",
            f"is {value}: the replica lacks changes. They are missing after a failover to it.",
            f"Remove {name} from the server's configuration and restart it, or exclude those tables in the filter.",
        )


def _retention(values: Mapping[str, str]) -> Iterator[Finding]:
    seconds = int(float(values.get("binlog_expire_logs_seconds") or 0))
    seconds = seconds or int(float(values.get("expire_logs_days") or 0) * _DAY)
    if seconds and seconds < _DAY:
        yield Finding(
            "retention",
            "warning",
            f"a reader that is offline for more than {seconds} s may lose its position.",
            "SET GLOBAL binlog_expire_logs_seconds=604800;",
        )
    else:
        yield Finding(
            "retention", "ok", f"{seconds / _DAY:g} days" if seconds else "logs are kept until they are purged manually"
        )


def _snapshots(session: QuerySession, grants: str) -> Iterator[Finding]:
    """Check the privileges for a snapshot. MySQL needs a short table lock; MariaDB does not."""
    if session.release.is_mariadb:
        return
    has_any = any(one in grants for one in ("LOCK TABLES", "RELOAD", "ALL PRIVILEGES ON"))
    if has_any:
        yield Finding("snapshot", "ok", "LOCK TABLES or RELOAD is granted")
    else:
        yield Finding(
            "snapshot",
            "warning",
            "an initial load cannot lock the table for the short moment when it starts.",
            "If you make initial loads: GRANT LOCK TABLES ON *.* TO the user.",
        )


def _privileges(grants: str) -> Finding:
    grants = grants.replace("REPLICATION REPLICA", "REPLICATION SLAVE").replace("BINLOG MONITOR", "REPLICATION CLIENT")
    missing = [one for one in ("REPLICATION SLAVE", "REPLICATION CLIENT") if one not in grants]
    if not missing and "SELECT" in grants or "ALL PRIVILEGES ON *.*" in grants:
        return Finding("privileges", "ok", "REPLICATION SLAVE, REPLICATION CLIENT, SELECT")
    if missing:
        remedy = f"GRANT {', '.join(missing)} ON *.* TO the user. If a role grants it, activate that role by default."
        return Finding("privileges", "error", f"{', '.join(missing)} is missing.", remedy)
    return Finding(
        "privileges",
        "warning",
        "without SELECT, columns that the log does not name are unknown.",
        "GRANT SELECT ON *.* TO the user;",
    )


def _cascades(session: QuerySession, values: Mapping[str, str]) -> Finding:
    sql = (
        "SELECT COUNT(*), MIN(CONCAT(constraint_schema, '.', table_name)) FROM information_schema.referential_constraints "
        "WHERE delete_rule IN ('CASCADE', 'SET NULL') OR update_rule IN ('CASCADE', 'SET NULL')"
    )
    try:
        ((count, first),) = session.rows(sql, doing="look for cascades")
    except ServerError as error:
        return Finding("cascades", "warning", f"cannot be checked: {error.message}")
    is_logged = session.release.has("cascades_logged") and values.get("innodb_native_foreign_keys", "").upper() == "OFF"
    if not count or is_logged:
        return Finding("cascades", "ok", "none that the log omits, among the tables that this user sees")
    return Finding(
        "cascades",
        "warning",
        f"{count} foreign keys, for example of {first}, change rows that are not in the log.",
        "Change those rows in the application, or use MySQL 9.6 or later.",
    )


def _tls(session: QuerySession) -> Finding:
    found = session.rows("SHOW STATUS LIKE 'Ssl_cipher'", doing="check the connection's encryption")  # empty without TLS
    if found and found[0][1]:
        return Finding("tls", "ok", f"encrypted with {found[0][1]}")
    return Finding(
        "tls", "warning", "the connection is not encrypted.", "Configure a certificate on the server; use ssl_mode=VERIFY_CA."
    )
