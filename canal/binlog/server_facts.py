"""Server capabilities: a table of features per release, and the settings that a server reports at login.

The caller provides the query function. Only this module compares server versions.
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

#: The release that introduced a feature, by flavor. A missing flavor lacks the feature.
SINCE: Final[dict[Feature, dict[str, tuple[int, ...]]]] = {
    # -- binary log
    "row_events": {"mysql": (5, 1), "mariadb": (5, 1)},
    # Earlier releases log rows of non-transactional tables without BEGIN and COMMIT.
    "transactions_logged": {"mysql": (5, 5), "mariadb": (5, 2)},
    # In earlier releases a ROLLBACK does not identify the rows that it reverts.
    "savepoints_logged": {"mysql": (5, 5), "mariadb": (5, 5)},
    "checksums": {"mysql": (5, 6, 1), "mariadb": (5, 3)},
    # binlog_row_metadata: names, charsets and labels in table maps.
    "row_metadata": {"mysql": (8, 0, 1), "mariadb": (10, 5)},
    # Charsets of ENUM and SET labels in table maps: since 8.0.15, not in 8.0.12. Without them we use a schema history.
    "label_charsets": {"mysql": (8, 0, 15), "mariadb": (10, 5)},
    # Foreign key cascades in the log, by default.
    "cascades_logged": {"mysql": (9, 6)},
    # Values of VIRTUAL columns: earlier MariaDB releases (seen on 10.1 and 10.2) log values that were never computed.
    "virtual_values": {"mysql": (5, 7, 6), "mariadb": (10, 5)},
    # Functional keys, each with a hidden column; since the second release table maps omit the column.
    "functional_keys": {"mysql": (8, 0, 13)},
    "hides_functional_keys": {"mysql": (8, 0, 18)},
    # Signedness of YEAR in table maps: not in the sources of 8.0.20, in those of 8.0.23.
    "counts_years": {"mysql": (8, 0, 23), "mariadb": (10, 5)},
    "may_count_years": {"mysql": (8, 0, 21), "mariadb": (10, 5)},
    # -- statements
    # explicit_defaults_for_timestamp; in earlier releases a bare TIMESTAMP is NOT NULL.
    "explicit_defaults": {"mysql": (5, 6), "mariadb": (5, 6)},
    # explicit_defaults_for_timestamp in statement flags: 10.1 and 10.2 do not write it, 10.5.23 does. MySQL has it in events.
    "logs_explicit_defaults": {"mariadb": (10, 10)},
    "geomcollection": {"mysql": (8, 0, 11)},
    # Integer types without display width.
    "bare_integers": {"mysql": (8, 0, 19)},
    # Unique keys of any length, implemented by a hash in a hidden column.
    "hash_keys": {"mariadb": (10, 4, 3)},
    # DROP CONSTRAINT finds unique keys: not in MariaDB 10.2.11 (IF EXISTS ignores it), since 10.5.
    "unique_constraints": {"mysql": (8, 0, 19), "mariadb": (10, 5)},
    # Keys keep their order if a statement adds none: 10.1 and 10.2 reorder them each time, 10.5 does not.
    "keeps_key_order": {"mariadb": (10, 5)},
    # A unique key as long as TINYTEXT or TINYBLOB replaces the primary key: not in MySQL 5.5.
    "full_prefixes": {"mysql": (5, 6), "mariadb": (10,)},
    # Such a key is ordered like a key without a prefix: not in MySQL 8.0.12 and MariaDB 10.2, since 8.0.15 and 10.5.
    "full_prefixes_first": {"mysql": (8, 0, 13), "mariadb": (10, 5)},
    # Without strict mode, a VARCHAR longer than 65,532 bytes becomes TEXT: not in 10.1, since 10.2.
    "short_varchars": {"mariadb": (10, 2)},
    # An ALTER without column changes makes no copy: 5.6 then keeps the table's charset despite CONVERT TO.
    "in_place_alters": {"mysql": (5, 6)},
    "converts_in_place": {"mysql": (5, 7)},
    # ENUM and SET labels in ucs2, utf16 and utf32 stay unchanged: earlier CONVERT TO modifies labels from and to these charsets.
    "wide_labels": {"mysql": (8,), "mariadb": (10, 3)},
    # NUL bytes in ENUM and SET labels: 10.11.19 distinguishes two such columns; 10.5.23, 11.4.5 and 11.8.6 do not.
    "members_apart": {"mysql": (8,)},
    # CONVERT TO uses the old column's length for a TEXT that the same statement defines: since 8.0.15, not in 8.0.12.
    "converts_by_old_column": {"mysql": (8, 0, 13)},
    # CONVERT TO turns a multi-byte VARCHAR into TEXT, without lengthening it: 9.7 does, 8.0.15 does not.
    "wide_varchar_may_become_text": {"mysql": (8, 0, 16)},
    "wide_varchar_becomes_text": {"mysql": (9, 7)},
    # CONVERT TO CHARACTER SET DEFAULT uses the database of the table; MySQL uses the session's database.
    "convert_by_database": {"mariadb": (10, 11)},
    # -- queries
    "read_only_transactions": {"mysql": (5, 6, 5), "mariadb": (10, 0, 1)},
    # Fractional seconds: UTC_TIMESTAMP(6).
    "fractions": {"mysql": (5, 6, 4), "mariadb": (5, 3)},
    "heartbeats": {"mysql": (5, 5), "mariadb": (5, 3)},
    "gtids": {"mysql": (5, 6, 5), "mariadb": (10, 0, 2)},
    # EXPLAIN FORMAT=TRADITIONAL, independent of explain_format.
    "explain_format": {"mysql": (5, 6, 5)},
    # max_execution_time; in MariaDB max_statement_time.
    "time_limit": {"mysql": (5, 7, 8), "mariadb": (10, 1, 1)},
    # Columns for row start and end times; information_schema marks them in generation_expression.
    "row_periods": {"mariadb": (10, 3, 4)},
    # Checks that turn LONGTEXT into MariaDB's JSON; in information_schema since 10.2.22 and 10.3.10.
    "json_checks": {"mariadb": (10, 4, 3)},
    # Generated primary keys that the server may hide from information_schema.
    "generated_keys": {"mysql": (8, 0, 30)},
    # Replacement for SHOW MASTER STATUS.
    "show_binary_log_status": {"mysql": (8, 2)},
    # Replacement for SHOW SLAVE STATUS.
    "show_replica_status": {"mysql": (8, 0, 22)},
}

#: A setting that reveals primary keys from "generated_keys", which are always in the log.
SHOW_KEYS: Final = "show_gipk_in_create_table_and_information_schema = ON"


@attrs.frozen
class Release:
    """Flavor ("mysql" or "mariadb") and version of a server."""

    flavor: str
    version: tuple[int, ...]

    @classmethod
    def parse(cls, version: str, comment: str = "") -> Release:
        """Parse the variables version and version_comment. An unknown version counts as new."""
        flavor = "mariadb" if "mariadb" in (version + comment).lower() else "mysql"
        found = re.match(r"(\d+)(?:\.(\d+))?(?:\.(\d+))?", version)
        parts = (None,) if found is None else found.groups()
        return cls(flavor, tuple(sys.maxsize if part is None else int(part) for part in parts))

    @property
    def is_mariadb(self) -> bool:
        return self.flavor == "mariadb"

    @property
    def logs_functional_keys(self) -> bool:
        """Return whether table maps include hidden columns of functional keys."""
        return self.has("functional_keys") and not self.has("hides_functional_keys")

    def has(self, feature: Feature) -> bool:
        since = SINCE[feature].get(self.flavor)
        return since is not None and self.version >= since

    @property
    def status_query(self) -> str:
        """The statement that returns the end of the log."""
        return "SHOW BINARY LOG STATUS" if self.has("show_binary_log_status") else "SHOW MASTER STATUS"

    @property
    def replica_query(self) -> str:
        """The statement that returns the servers it replicates from."""
        return "SHOW REPLICA STATUS" if self.has("show_replica_status") else "SHOW SLAVE STATUS"

    @property
    def time_query(self) -> str:
        """The statement that returns UTC time: in microseconds if supported, else whole seconds rounded down."""
        return "SELECT UTC_TIMESTAMP(6)" if self.has("fractions") else "SELECT UTC_TIMESTAMP()"


@attrs.frozen
class ServerFacts(Release):
    """Settings that a server reports."""

    identity: str
    has_gtids: bool
    full_metadata: bool
    has_checksums: bool
    full_images: bool
    logs_cascades: bool
    #: All queried settings.
    settings: dict[str, str] = attrs.field(factory=dict, eq=False, repr=False)


class CheckedSource(Protocol):
    """The source options that decide whether a server is acceptable."""

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
#: Settings that decide whether a replica logs the changes that it applies.
OF_REPLICAS: Final = ("log_replica_updates", "log_slave_updates", "gtid_slave_pos", "gtid_binlog_state")


#: Runs a query and returns the rows.
Ask = Callable[[str], list[tuple[Any, ...]]]


def read_release(ask: Ask) -> Release:
    """Query a server's release."""
    (row,) = ask("SELECT @@version, @@version_comment")
    return Release.parse(*map(str, row))


def read_server(ask: Ask, source: CheckedSource) -> ServerFacts:
    """Query a server's settings. Raise an error for settings that hide changes."""
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
        # In MySQL since 9.6; OFF means that the SQL layer executes cascades, which are then logged.
        logs_cascades=found.get("innodb_native_foreign_keys", "").upper() == "OFF",
        settings=found,
    )


def numbers_alone(settings: Mapping[str, str]) -> bool:
    """Return whether a server is a node of a Galera cluster whose nodes number their transactions each for itself.

    One GTID then names a transaction of each node, so a position in another node's log is found by content.
    """
    return settings.get("wsrep_on", "").upper() == "ON" and settings.get("wsrep_gtid_mode", "OFF").upper() != "ON"


def _identity(found: dict[str, str], is_mariadb: bool) -> str:
    """Return MySQL's server UUID, or MariaDB's server id with an instance identifier.

    Since 10.6 the identifier is a uid from network address and port; before that it is host name and port.
    """
    if not is_mariadb and found.get("server_uuid"):
        return found["server_uuid"]
    address = found.get("server_uid") or f"{found.get('hostname', '')}:{found.get('port', '')}"
    return f"{found.get('server_id', '0')}@{address}"
