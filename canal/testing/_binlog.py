"""The state of a fake binlog: its options, its log, and what was written to it.

Never writes anything: canal.testing.fake does.
"""

from __future__ import annotations

import threading
import time
import uuid as uuids
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

from canal.binlog.event_types import IN_USE_F
from canal.errors import UsageError
from canal.position import Position
from canal.schema import TableSchema
from canal.testing._encode import Flavor
from canal.testing._faults import Due
from canal.testing._log import FakeLog
from canal.testing._tables import FakeTable

_VERSIONS: Final[dict[str, str]] = {"mysql": "8.4.0-fake", "mariadb": "10.11.19-MariaDB-fake"}

Bytes = bytes  # BinlogState has a method of that name


def _check_options(flavor: str, metadata: str, row_image: str, compression: str, gtid: bool, version: str) -> None:
    for name, value, known in (
        ("flavor", flavor, ("mysql", "mariadb")),
        ("metadata", metadata, ("FULL", "MINIMAL", "NO_LOG") if flavor == "mariadb" else ("FULL", "MINIMAL")),
        ("row_image", row_image, ("FULL", "MINIMAL", "NOBLOB")),
        ("compression", compression, ("", "zlib") if flavor == "mariadb" else ("", "zstd", "none")),
    ):
        if value not in known:
            raise UsageError(f"{name} is one of {', '.join(map(str, known))}, not {value!r}")
    if flavor == "mariadb" and not gtid:
        raise UsageError("MariaDB always has GTIDs")
    if version and (flavor != "mysql" or not version.startswith("5.1.") or compression):
        raise UsageError("version is one of MySQL 5.1, which compresses nothing")


class BinlogState:
    """What connections and servers of a :class:`canal.testing.fake.FakeBinlog` read."""

    def __init__(
        self,
        flavor: Flavor = "mysql",
        *,
        metadata: Literal["FULL", "MINIMAL", "NO_LOG"] = "FULL",
        checksum: bool = True,
        row_image: Literal["FULL", "MINIMAL", "NOBLOB"] = "FULL",
        gtid: bool = True,
        server_id: int = 1,
        domain: int = 0,
        uuid: str | None = None,
        charset: str = "",
        base_name: str = "binlog",
        start_offset: int = 4,
        row_event_max_size: int = 8192,
        row_version: Literal[1, 2] | None = None,
        compression: Literal["", "zstd", "none", "zlib"] = "",
        version: str = "",
        clock: Callable[[], float] = time.time,
    ) -> None:
        _check_options(flavor, metadata, row_image, compression, gtid, version)
        self.flavor: Flavor = flavor
        self.version: str = version or _VERSIONS[flavor]
        self.is_old = bool(version)
        if self.is_old:
            metadata, checksum, row_image, gtid, row_version, charset = "NO_LOG", False, "FULL", False, 1, charset or "utf8"
        self.metadata: str = metadata
        self.checksum = checksum
        self.row_image: str = row_image
        self.gtid = gtid
        self.server_id = server_id
        self.domain = domain
        self.uuid = uuid or str(uuids.UUID(int=0xFA4EFA4E << 96 | 0x4000_8000 << 48 | server_id))
        self.charset = charset or "utf8mb4"
        self.row_event_max_size = row_event_max_size
        self.row_version: int = row_version or (2 if flavor == "mysql" else 1)
        self.compression: str = compression
        self.clock: Callable[[], float] = clock
        self._local = threading.local()
        self._tables: dict[tuple[str, str], FakeTable] = {}
        self._table_ids = 100
        self._beats = 0
        self._faults: deque[Due] = deque()
        self.log = FakeLog(self, base_name, start_offset)

    @property
    def identity(self) -> str:
        """The source's identity, as a connection to the served fake would find it."""
        return self.log.identity

    @property
    def journal(self) -> str:
        """Name of the journal that is being written."""
        return self.log.journals[-1].name

    @property
    def journals(self) -> list[tuple[str, int]]:
        """Names and sizes of the journals that are there, the oldest first."""
        with self.log.changed:
            return [(journal.name, journal.end) for journal in self.log.journals]

    @property
    def position(self) -> Position:
        """The end of the log."""
        with self.log.changed:
            return self.log.position

    @property
    def executed(self) -> str:
        """The GTID set of everything in the log, as text."""
        return str(self.log.executed)

    @property
    def gtid_state(self) -> str:
        """MariaDB's gtid_binlog_state: the last GTID of each domain and server."""
        with self.log.changed:
            return ",".join("-".join(map(str, gtid)) for gtid in self.log.gtid_state())

    @property
    def purged(self) -> str:
        """The GTID set of the journals that were purged."""
        return str(self.log.journals[0].executed)

    def events(self, journal: str | None = None) -> list[Bytes]:
        """The events of one journal, or of all."""
        with self.log.changed:
            chosen = self.log.journals if journal is None else [self.log.find(journal)]
            return [event.data for one in chosen for event in one.events]

    def bytes(self, journal: str | None = None) -> Bytes:
        """A journal as a file has it, with the magic number; the one being written if none is named."""
        with self.log.changed:
            chosen = self.log.find(journal or self.journal)
            if chosen.first != 4:
                raise UsageError(f"{chosen.name} begins at offset {chosen.first}, which no file can")
            head, *rest = (event.data for event in chosen.events)
            head = head[:17] + bytes((head[17] | IN_USE_F * chosen.in_use,)) + head[18:]
            return b"\xfebin" + head + b"".join(rest)

    def write(self, directory: str | Path) -> list[Path]:
        """Write the journals and their index into a directory; the paths of the journals."""
        folder = Path(directory)
        folder.mkdir(parents=True, exist_ok=True)
        with self.log.changed:
            paths = [folder / name for name, _ in self.journals]
            for path in paths:
                path.write_bytes(self.bytes(path.name))
            (folder / f"{self.log.base_name}.index").write_text("".join(f"./{path.name}\n" for path in paths))
        return paths

    def table_columns(self, schema: str, table: str) -> TableSchema | None:
        """A table's columns as of now."""
        with self.log.changed:
            found = self._tables.get((schema, table))
            return found.schema_now() if found else None

    def table_names(self) -> list[tuple[str, str]]:
        """Schema and name of every table, as of now."""
        with self.log.changed:
            return list(self._tables)

    def resolve(self, start: str | Position) -> Position:
        """The concrete position that ``start`` means now; see :class:`canal.parse.Connection`."""
        with self.log.changed:
            return self.log.resolve(start)
