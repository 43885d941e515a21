"""What a server has: one table of what each release brought, and what a server says of itself at login.

Never connects: whoever calls brings the means to ask. No other module compares the versions of servers.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, Protocol

import attrs

from canal.errors import ServerError, UnsupportedError

Feature = Literal[
    "bare_integers",
    "cascades_logged",
    "checksums",
    "convert_by_database",
    "converts_by_old_column",
    "converts_in_place",
    "counts_years",
    "explain_format",
    "explicit_defaults",
    "fractions",
    "full_prefixes",
    "full_prefixes_first",
    "functional_keys",
    "generated_keys",
    "geomcollection",
    "gtids",
    "hash_keys",
    "heartbeats",
    "hides_functional_keys",
    "in_place_alters",
    "json_checks",
    "keeps_key_order",
    "label_charsets",
    "logs_explicit_defaults",
    "may_count_years",
    "members_apart",
    "read_only_transactions",
    "row_events",
    "row_metadata",
    "row_periods",
    "savepoints_logged",
    "short_varchars",
    "show_binary_log_status",
    "show_replica_status",
    "time_limit",
    "transactions_logged",
    "unique_constraints",
    "virtual_values",
    "wide_labels",
    "wide_varchar_becomes_text",
    "wide_varchar_may_become_text",
]

#: The release that brought a feature, by flavor; servers of a flavor that is not named lack it.
SINCE: Final[dict[Feature, dict[str, tuple[int, ...]]]] = {
    # -- of its log
    "row_events": {"mysql": (5, 1), "mariadb": (5, 1)},
    # Before it rows of tables without transactions may stand there without BEGIN and COMMIT.
    "transactions_logged": {"mysql": (5, 5), "mariadb": (5, 2)},
    # Before it a ROLLBACK does not tell which rows of its transaction it undoes.
    "savepoints_logged": {"mysql": (5, 5), "mariadb": (5, 5)},
    "checksums": {"mysql": (5, 6, 1), "mariadb": (5, 3)},
    # binlog_row_metadata: names, charsets and labels in the table maps.
    "row_metadata": {"mysql": (8, 0, 1), "mariadb": (10, 5)},
    # The charsets of ENUM and SET labels with them: not in 8.0.12, in 8.0.15. Without it a schema history tells.
    "label_charsets": {"mysql": (8, 0, 15), "mariadb": (10, 5)},
    # The changes that foreign keys make, unless it is set otherwise.
    "cascades_logged": {"mysql": (9, 6)},
    # Values of VIRTUAL columns: MariaDB before this (seen on 10.1 and 10.2) logs what it has not computed.
    "virtual_values": {"mysql": (5, 7, 6), "mariadb": (10, 5)},
    # Keys of expressions, each of which is a hidden column; from the second on table maps do not have them.
    "functional_keys": {"mysql": (8, 0, 13)},
    "hides_functional_keys": {"mysql": (8, 0, 18)},
    # YEAR among the columns whose signs a table map tells: not in the sources of 8.0.20, in those of 8.0.23.
    "counts_years": {"mysql": (8, 0, 23), "mariadb": (10, 5)},
    "may_count_years": {"mysql": (8, 0, 21), "mariadb": (10, 5)},
    # -- of its statements
    # explicit_defaults_for_timestamp; before it a bare TIMESTAMP is NOT NULL.
    "explicit_defaults": {"mysql": (5, 6), "mariadb": (5, 6)},
    # It is among the flags of a statement: 10.1 and 10.2 do not write it, 10.5.23 does. MySQL's events show by themselves.
    "logs_explicit_defaults": {"mariadb": (10, 10)},
    "geomcollection": {"mysql": (8, 0, 11)},
    # Integers without their display width.
    "bare_integers": {"mysql": (8, 0, 19)},
    # Unique keys of any length, kept by a hash in a hidden column.
    "hash_keys": {"mariadb": (10, 4, 3)},
    # DROP CONSTRAINT finds unique keys: MariaDB 10.2.11 does not (IF EXISTS lets it pass), 10.5 does.
    "unique_constraints": {"mysql": (8, 0, 19), "mariadb": (10, 5)},
    # Keys keep their order where a statement adds none: 10.1 and 10.2 put them in order anew each time, 10.5 does not.
    "keeps_key_order": {"mariadb": (10, 5)},
    # A unique key of as many bytes as a TINYTEXT or TINYBLOB takes stands in for the primary key: not in MySQL 5.5.
    "full_prefixes": {"mysql": (5, 6), "mariadb": (10,)},
    # And has its order as one without a prefix: not in MySQL 8.0.12 and MariaDB 10.2, in 8.0.15 and 10.5.
    "full_prefixes_first": {"mysql": (8, 0, 13), "mariadb": (10, 5)},
    # Outside of strict mode a VARCHAR of more than 65,532 bytes becomes a TEXT: not in 10.1, in 10.2.
    "short_varchars": {"mariadb": (10, 2)},
    # An ALTER that changes no column makes no copy: 5.6 then leaves the table's charset as it is, despite CONVERT TO.
    "in_place_alters": {"mysql": (5, 6)},
    "converts_in_place": {"mysql": (5, 7)},
    # Labels of ENUM and SET in ucs2, utf16 and utf32 as they are: before it CONVERT TO makes others of them, and of theirs.
    "wide_labels": {"mysql": (8,), "mariadb": (10, 3)},
    # Members of ENUM and SET may have NUL bytes: 10.11.19 keeps those of two columns apart, 10.5.23, 11.4.5 and 11.8.6 do not.
    "members_apart": {"mysql": (8,)},
    # CONVERT TO takes the length of a TEXT that the same statement defines from the old column: 8.0.12 does not, 8.0.15 does.
    "converts_by_old_column": {"mysql": (8, 0, 13)},
    # CONVERT TO makes a TEXT, and no longer one, of a VARCHAR of several bytes a character: 8.0.15 does not, 9.7 does.
    "wide_varchar_may_become_text": {"mysql": (8, 0, 16)},
    "wide_varchar_becomes_text": {"mysql": (9, 7)},
    # CONVERT TO CHARACTER SET DEFAULT always goes by the table's database; MySQL goes by the session's.
    "convert_by_database": {"mariadb": (10, 11)},
    # -- of what it answers
    "read_only_transactions": {"mysql": (5, 6, 5), "mariadb": (10, 0, 1)},
    # Fractions of seconds: UTC_TIMESTAMP(6).
    "fractions": {"mysql": (5, 6, 4), "mariadb": (5, 3)},
    "heartbeats": {"mysql": (5, 5), "mariadb": (5, 3)},
    "gtids": {"mysql": (5, 6, 5), "mariadb": (10, 0, 2)},
    # EXPLAIN FORMAT=TRADITIONAL, whatever a session's explain_format is.
    "explain_format": {"mysql": (5, 6, 5)},
    # max_execution_time, in MariaDB max_statement_time.
    "time_limit": {"mysql": (5, 7, 8), "mariadb": (10, 1, 1)},
    # Columns for the begin and the end of a row's time; information_schema tells them by generation_expression.
    "row_periods": {"mariadb": (10, 3, 4)},
    # The checks that make a LONGTEXT MariaDB's JSON; information_schema has had checks since 10.2.22 and 10.3.10.
    "json_checks": {"mariadb": (10, 4, 3)},
    # Primary keys that the server makes by itself and may hide from information_schema.
    "generated_keys": {"mysql": (8, 0, 30)},
    # The new name of SHOW MASTER STATUS.
    "show_binary_log_status": {"mysql": (8, 2)},
    # The new name of SHOW SLAVE STATUS.
    "show_replica_status": {"mysql": (8, 0, 22)},
}

#: A setting that shows the keys which a server with "generated_keys" made by itself: they are in the log all the same.
SHOW_KEYS: Final = "show_gipk_in_create_table_and_information_schema = ON"


@attrs.frozen
class Release:
    """The flavor ("mysql" or "mariadb") and the version of a server."""

    flavor: str
    version: tuple[int, ...]

    @classmethod
    def parse(cls, version: str, comment: str = "") -> Release:
        """From the variables version and version_comment; what the version does not tell is taken for new."""
        flavor = "mariadb" if "mariadb" in (version + comment).lower() else "mysql"
        found = re.match(r"(\d+)(?:\.(\d+))?(?:\.(\d+))?", version)
        parts = (None,) if found is None else found.groups()
        return cls(flavor, tuple(sys.maxsize if part is None else int(part) for part in parts))

    @property
    def is_mariadb(self) -> bool:
        return self.flavor == "mariadb"

    @property
    def logs_functional_keys(self) -> bool:
        """Whether table maps have the hidden columns of functional keys."""
        return self.has("functional_keys") and not self.has("hides_functional_keys")

    def has(self, feature: Feature) -> bool:
        since = SINCE[feature].get(self.flavor)
        return since is not None and self.version >= since

    @property
    def status_query(self) -> str:
        """The statement that tells the end of the log."""
        return "SHOW BINARY LOG STATUS" if self.has("show_binary_log_status") else "SHOW MASTER STATUS"

    @property
    def replica_query(self) -> str:
        """The statement that shows from which servers it replicates."""
        return "SHOW REPLICA STATUS" if self.has("show_replica_status") else "SHOW SLAVE STATUS"

    @property
    def time_query(self) -> str:
        """The statement that tells the time in UTC: microseconds where it can, else the whole seconds that are over."""
        return "SELECT UTC_TIMESTAMP(6)" if self.has("fractions") else "SELECT UTC_TIMESTAMP()"


@attrs.frozen
class ServerFacts(Release):
    """What a server says of itself."""

    identity: str
    has_gtids: bool
    full_metadata: bool
    has_checksums: bool
    full_images: bool
    logs_cascades: bool
    #: All settings that were asked for.
    settings: dict[str, str] = attrs.field(factory=dict, eq=False, repr=False)


class CheckedSource(Protocol):
    """The part of a source that decides which servers will do."""

    @property
    def address(self) -> str: ...
    @property
    def require_row_format(self) -> bool: ...


_VARIABLES: Final = (
    "log_bin",
    "server_id",
    "server_uuid",
    "server_uid",
    "hostname",
    "port",
    "binlog_format",
    "gtid_mode",
    "binlog_checksum",
    "binlog_row_image",
    "binlog_row_metadata",
    "version",
    "version_comment",
    "innodb_native_foreign_keys",
    "binlog_storage_engine",
    "wsrep_on",
    "wsrep_gtid_mode",
)
#: Those that decide whether a server logs what it applies as a replica.
OF_REPLICAS: Final = ("log_replica_updates", "log_slave_updates", "gtid_slave_pos", "gtid_binlog_state")


#: Runs a query and gives its rows.
Ask = Callable[[str], list[tuple[Any, ...]]]


def read_release(ask: Ask) -> Release:
    """Ask a server which one it is."""
    (row,) = ask("SELECT @@version, @@version_comment")
    return Release.parse(*map(str, row))


def read_server(ask: Ask, source: CheckedSource) -> ServerFacts:
    """Ask a server for its settings; refuses those under which no change can be seen."""
    names = ", ".join(f"'{name}'" for name in (*_VARIABLES, *OF_REPLICAS))
    rows = ask(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})")
    found = {str(row[0]).lower(): str(row[1]) for row in rows}
    if found.get("log_bin", "OFF").upper() not in ("ON", "1"):
        raise ServerError(
            f"{source.address} writes no binary log", remedy="Set log_bin and a server_id in its configuration, and restart it."
        )
    if engine := found.get("binlog_storage_engine"):
        raise UnsupportedError(
            f"{source.address} keeps its binary log in {engine} (.ibb files), whose stream has no offsets, names of logs or "
            "checksums by which a lost change would show",
            remedy="Start it without binlog_storage_engine, or read a replica that keeps its log in files.",
        )
    row_format = found.get("binlog_format", "ROW").upper()
    if row_format != "ROW" and source.require_row_format:
        raise ServerError(
            f"{source.address} writes its log in {row_format} format, which does not hold the changed rows",
            remedy="SET GLOBAL binlog_format = 'ROW', also in its configuration, and let applications reconnect.",
        )
    release = Release.parse(found.get("version", ""), found.get("version_comment", ""))
    return ServerFacts(
        release.flavor,
        release.version,
        identity=_identity(found, release.is_mariadb),
        has_gtids=found.get("gtid_mode", "OFF").upper() == "ON" if not release.is_mariadb else not numbers_alone(found),
        full_metadata=found.get("binlog_row_metadata", "").upper() == "FULL" and release.has("label_charsets"),
        has_checksums="binlog_checksum" in found,
        full_images=found.get("binlog_row_image", "FULL").upper() == "FULL",
        # MySQL has it since 9.6; there OFF means that the SQL layer carries out cascades, which logs them.
        logs_cascades=found.get("innodb_native_foreign_keys", "").upper() == "OFF",
        settings=found,
    )


def numbers_alone(settings: Mapping[str, str]) -> bool:
    """Return whether a server is a node of a Galera cluster whose nodes number their transactions each for itself.

    One GTID then names a transaction of each node, so a position in another node's log is found by content.
    """
    return settings.get("wsrep_on", "").upper() == "ON" and settings.get("wsrep_gtid_mode", "OFF").upper() != "ON"


def _identity(found: dict[str, str], is_mariadb: bool) -> str:
    """MySQL has a server UUID. MariaDB has a server id, and since 10.6 a uid made of the machine's network address and
    port; before that, the host name and port stand for it."""
    if not is_mariadb and found.get("server_uuid"):
        return found["server_uuid"]
    address = found.get("server_uid") or f"{found.get('hostname', '')}:{found.get('port', '')}"
    return f"{found.get('server_id', '0')}@{address}"
