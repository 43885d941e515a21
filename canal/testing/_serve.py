"""A fake binlog behind a TCP port: enough of the MySQL protocol for replicas and change-data readers.

Never holds data of its own: everything it answers comes from the fake binlog.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import select
import socket
import struct
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Final, Self

import attrs

from canal.errors import ConnectionLostError, ServerError, SourceError
from canal.gtid import MysqlGtidSet
from canal.position import Position
from canal.testing import _encode
from canal.testing._binlog import BinlogState
from canal.testing._feed import Feed

_QUIT, _INIT_DB, _QUERY, _PING, _BINLOG_DUMP, _REGISTER_SLAVE, _BINLOG_DUMP_GTID = 1, 2, 3, 14, 18, 21, 30
_NON_BLOCK, _NEW_HEARTBEAT = 1, 2
_NATIVE: Final = b"mysql_native_password"
_SALT: Final = b"fake.binlog.salt.20b"
# LONG_PASSWORD FOUND_ROWS LONG_FLAG CONNECT_WITH_DB PROTOCOL_41 TRANSACTIONS SECURE_CONNECTION MULTI_STATEMENTS
# MULTI_RESULTS PLUGIN_AUTH CONNECT_ATTRS PLUGIN_AUTH_LENENC
_CAPABILITIES: Final = 1 | 2 | 4 | 8 | 1 << 9 | 1 << 13 | 1 << 15 | 1 << 16 | 1 << 17 | 1 << 19 | 1 << 20 | 1 << 21
_MAX_PACKET: Final = (1 << 24) - 1
_EOF: Final = b"\xfe\x00\x00\x02\x00"
_OK: Final = b"\x00\x00\x00\x02\x00\x00\x00"


class FakeServer:
    """Serves a fake binlog while it is entered; threads and connections end when it is left.

    ``queries`` lists the statements that were asked, for tests that look at what a client does.
    """

    def __init__(self, fake: BinlogState, host: str, port: int, user: str = "", password: str = "") -> None:
        self.fake = fake
        self.host = host
        self.port = port
        self.user = user
        self.password = password
        self.queries: list[str] = []
        self._listener: socket.socket | None = None
        self._threads: list[threading.Thread] = []
        self._sessions: set[_ServedConnection] = set()
        self._lock = threading.Lock()

    def start(self) -> Self:
        self._listener = socket.create_server((self.host, self.port))
        self.port = self._listener.getsockname()[1]
        self._spawn("listener", self._accept, self._listener)
        return self

    def stop(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # wakes accept
            listener.close()
        self.disconnect()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(10)

    def disconnect(self) -> None:
        """Break every connection that is open now."""
        with self._lock:
            sessions = list(self._sessions)
        for session in sessions:
            session.abort()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def _spawn(self, role: str, run: Callable[..., None], *args: Any) -> None:
        thread = threading.Thread(target=run, args=args, name=f"canal-fake-{self.port}-{role}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self, listener: socket.socket) -> None:
        number = 0
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            number += 1
            session = _ServedConnection(self, sock, number)
            with self._lock:
                self._sessions.add(session)
            self._spawn(f"session-{number}", self._run, session)
            if self._listener is None:
                session.abort()

    def _run(self, session: _ServedConnection) -> None:
        try:
            session.run()
        except (OSError, _Gone):
            pass
        finally:
            with self._lock:
                self._sessions.discard(session)
            session.close()


class _Gone(Exception):
    """The client closed its connection."""


@attrs.frozen
class _Error(Exception):
    """An answer that is an error packet."""

    errno: int
    text: str
    state: str = "HY000"


class _ServedConnection:
    """One client: its login, its variables, its commands."""

    def __init__(self, server: FakeServer, sock: socket.socket, number: int) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._server = server
        self._fake = server.fake
        self._socket = sock
        self.address = sock.getpeername()
        self._stream = sock.makefile("rb")
        self._sequence = 0
        self.number = number
        self.variables: dict[str, Any] = {}
        self._writing = threading.Lock()

    def run(self) -> None:
        if not self._log_in():
            return
        while True:
            self._sequence = 0
            packet = self._receive()
            code, payload = packet[0], packet[1:]
            if code == _QUIT:
                return
            try:
                if not self._command(code, payload):
                    return
            except _Error as error:
                self._send_error(error)

    def abort(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._stream.close()
            self._socket.close()

    # -- packets -------------------------------------------------------------------------------------------------------

    def _receive(self) -> bytes:
        data = b""
        while True:
            head = self._exactly(4)
            size = int.from_bytes(head[:3], "little")
            self._sequence = head[3] + 1
            data += self._exactly(size)
            if size < _MAX_PACKET:
                return data

    def _exactly(self, size: int) -> bytes:
        data = self._stream.read(size)
        if len(data) < size:
            raise _Gone
        return data

    def _send(self, *payloads: bytes) -> None:
        self._socket.sendall(b"".join(self._framed(payload) for payload in payloads))

    def _framed(self, payload: bytes) -> bytes:
        """A payload as packets; one that fills its last packet is followed by an empty one."""
        parts = []
        for at in range(0, len(payload) + 1, _MAX_PACKET):
            part = payload[at : at + _MAX_PACKET]
            parts.append(len(part).to_bytes(3, "little") + bytes((self._sequence & 0xFF,)) + part)
            self._sequence += 1
        return b"".join(parts)

    def _send_error(self, error: _Error) -> None:
        self._send(b"\xff" + struct.pack("<H", error.errno) + b"#" + error.state.encode() + error.text.encode("utf-8"))

    # -- login ---------------------------------------------------------------------------------------------------------

    def _log_in(self) -> bool:
        version = ("5.5.5-" if self._fake.flavor == "mariadb" else "") + self._fake.version
        old = self._fake.is_old  # without authentication plugins
        capabilities = _CAPABILITIES & 0xFFFF if old else _CAPABILITIES
        self._send(
            b"\x0a"
            + version.encode("ascii")
            + b"\0"
            + struct.pack("<I", self.number)
            + _SALT[:8]
            + b"\0"
            + struct.pack("<HBHHB", capabilities & 0xFFFF, 8 if old else 45, 2, capabilities >> 16, 0 if old else 21)
            + bytes(10)
            + _SALT[8:]
            + b"\0"
            + (b"" if old else _NATIVE + b"\0")
        )
        capabilities, user, proof, plugin = _parse_login(self._receive())
        if plugin and plugin != _NATIVE:
            self._send(b"\xfe" + _NATIVE + b"\0" + _SALT + b"\0")
            proof = self._receive()
        if self._server.user and (user != self._server.user or proof != _native_proof(self._server.password)):
            text = f"Access denied for user '{user}'@'localhost' (using password: {'YES' if proof else 'NO'})"
            self._send_error(_Error(1045, text, "28000"))
            return False
        self._send(_OK)
        return True

    # -- commands ------------------------------------------------------------------------------------------------------

    def _command(self, code: int, payload: bytes) -> bool:
        """Answer one command; False when the connection is over."""
        if code in (_PING, _INIT_DB, _REGISTER_SLAVE):
            self._send(_OK)
        elif code == _QUERY:
            self._query(payload.decode("utf-8", "replace"))
        elif code == _BINLOG_DUMP:
            offset, flags, _ = struct.unpack_from("<IHI", payload)
            return self._dump(self._start(payload[10:].rstrip(b"\0").decode("utf-8"), offset), flags)
        elif code == _BINLOG_DUMP_GTID and not self._fake.is_old:
            return self._dump(*_parse_dump_gtid(payload))
        else:
            raise _Error(1047, f"the fake binlog does not know command {code}", "08S01")
        return True

    def _query(self, text: str) -> None:
        statement = text.strip().rstrip(";").strip()
        self._server.queries.append(statement)
        if self._fake.is_old:
            for unknown, error in _UNKNOWN_TO_OLD:
                if unknown.match(statement):
                    raise attrs.evolve(error)
        for pattern, answer in ANSWERS:
            found = pattern.fullmatch(statement)
            if found is not None:
                result = answer(self, found)
                self._send(*([_OK] if result is None else _result_set(*result)))
                return
        raise _Error(1064, f"the fake binlog does not answer: {statement[:120]}", "42000")

    # -- the dump ------------------------------------------------------------------------------------------------------

    def _start(self, journal: str, offset: int) -> Position:
        state = self.variables.get("slave_connect_state")
        if self._fake.flavor == "mariadb" and state is not None:
            oldest = self._fake.resolve("earliest")
            return Position(gtid=str(state)) if state else attrs.evolve(oldest, gtid="")
        if not journal:
            return attrs.evolve(self._fake.resolve("earliest"), gtid="")
        return Position(journal=journal, offset=max(offset, 4))

    def _dump(self, position: Position, flags: int) -> bool:
        checksum = self._checksum()
        period = float(self._variable("master_heartbeat_period", "source_heartbeat_period") or 0) / 1e9
        if self._fake.is_old:
            period = 0.0
        try:
            feed = Feed(
                self._fake,
                position,
                checksum=checksum,
                period=period or None,
                newer_heartbeat=self._fake.flavor == "mysql" and bool(flags & _NEW_HEARTBEAT),
            )
        except ServerError as error:
            raise _Error(error.errno or 1236, error.message) from error
        except SourceError as error:
            raise _Error(1236, error.message) from error
        while True:
            try:
                events = feed.take(0.05)
            except ServerError as error:
                raise _Error(error.errno or 1236, error.message) from error
            except ConnectionLostError:
                self._reset(feed.cut_inside)
                return False
            if events:
                self._send(*(b"\0" + event for event in events))
            elif events is None or (flags & _NON_BLOCK and feed.ended):
                self._send(_EOF)
                return events is not None
            elif self._client_left():
                return False

    def _checksum(self) -> bool:
        wanted = self._variable("master_binlog_checksum", "source_binlog_checksum")
        if wanted is None and self._fake.checksum:
            raise _Error(1236, "Slave can not handle replication events with the checksum that master is configured to log")
        return str(wanted).upper() == "CRC32"

    def _variable(self, *names: str) -> Any:
        return next((self.variables[name] for name in names if name in self.variables), None)

    def _client_left(self) -> bool:
        ready, _, _ = select.select([self._socket], [], [], 0)
        return bool(ready) and not self._socket.recv(1, socket.MSG_PEEK)

    def _reset(self, event: bytes) -> None:
        """Break the connection as a reset does, maybe in the middle of an event."""
        if event:
            with contextlib.suppress(OSError):
                self._socket.sendall(self._framed(b"\0" + event)[: 5 + len(event) // 2])
        else:
            # With no time to linger the kernel sends RST, which may also discard what is still on its way.
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _parse_login(packet: bytes) -> tuple[int, str, bytes, bytes]:
    """Capabilities, user, proof of the password and authentication plugin of a login packet."""
    capabilities = struct.unpack_from("<I", packet)[0]
    user, _, rest = packet[32:].partition(b"\0")
    size, rest = (rest[0], rest[1:]) if rest else (0, b"")
    proof, rest = rest[:size], rest[size:]
    if capabilities & 8:
        _, _, rest = rest.partition(b"\0")
    plugin = rest.partition(b"\0")[0] if capabilities & 1 << 19 else b""
    return capabilities, user.decode("utf-8", "replace"), proof, plugin


def _native_proof(password: str) -> bytes:
    if not password:
        return b""
    first = hashlib.sha1(password.encode("utf-8")).digest()
    second = hashlib.sha1(_SALT + hashlib.sha1(first).digest()).digest()
    return bytes(a ^ b for a, b in zip(first, second, strict=True))


def _parse_dump_gtid(payload: bytes) -> tuple[Position, int]:
    """The position of COM_BINLOG_DUMP_GTID: its GTID set, as a server takes it (the file named is ignored)."""
    flags, _, size = struct.unpack_from("<HII", payload)
    at = 10 + size + 8
    length = struct.unpack_from("<I", payload, at)[0]
    wanted = MysqlGtidSet.decode(payload[at + 4 : at + 4 + length])
    return Position(gtid=str(wanted)) if wanted else Position(), flags


# -- answers -----------------------------------------------------------------------------------------------------------

Result = tuple[list[str], list[tuple[Any, ...]]]
Answer = Callable[[_ServedConnection, re.Match[str]], Result | None]


def variables_of(fake: BinlogState) -> dict[str, str]:
    """The server's global variables; add what another client asks for."""
    mysql = fake.flavor == "mysql" and not fake.is_old
    common = {
        "log_bin": "ON",
        "server_id": str(fake.server_id),
        "hostname": "fake",
        "port": "3306",
        "binlog_format": "ROW",
        "binlog_checksum": "CRC32" if fake.checksum else "NONE",
        "binlog_row_metadata": fake.metadata,
        "binlog_row_image": fake.row_image,
        "version": fake.version,
        "log_bin_basename": f"/fake/{fake.journal}",
        "version_comment": "fake binlog",
        "sql_mode": "",
        "time_zone": "SYSTEM",
        "system_time_zone": "UTC",
        "max_allowed_packet": str(1 << 30),
        "net_write_timeout": "60",
        "lower_case_table_names": "0",
        "character_set_server": "utf8mb4",
        "autocommit": "1",
        "wait_timeout": "28800",
        "net_read_timeout": "30",
        "log_slave_updates": "ON",
        "rpl_semi_sync_master_enabled": "OFF",
        "read_only": "OFF",
        "init_connect": "",
    }
    if fake.is_old:
        lacking = ("binlog_checksum", "binlog_row_metadata", "binlog_row_image")
        return {name: value for name, value in common.items() if name not in lacking} | {"character_set_server": "utf8"}
    if mysql:
        return common | {
            "server_uuid": fake.uuid,
            "gtid_mode": "ON" if fake.gtid else "OFF",
            "gtid_executed": fake.executed,
            "gtid_purged": fake.purged,
            "binlog_transaction_compression": "OFF",
            "binlog_row_value_options": "",
            "log_replica_updates": "ON",
            "enforce_gtid_consistency": "ON",
        }
    return common | {
        "server_uid": fake.uuid,
        "gtid_binlog_pos": fake.executed,
        "gtid_current_pos": fake.executed,
        "gtid_slave_pos": "",
        "gtid_domain_id": str(fake.domain),
        "gtid_strict_mode": "ON",
        "gtid_binlog_state": fake.gtid_state,
        "log_bin_compress": "OFF",
        "binlog_annotate_row_events": "ON",
    }


def _show_variables(session: _ServedConnection, found: re.Match[str]) -> Result:
    values = variables_of(session._fake)
    pattern = found["like"]
    if pattern is not None:
        pieces = re.findall(r"\\?.", pattern.lower())
        wanted = "".join({"%": ".*", "_": "."}.get(piece, re.escape(piece[-1])) for piece in pieces)
        chosen = [name for name in values if re.fullmatch(wanted, name)]
    elif found["names"] is not None:
        names = {name.lower() for name in re.findall(r"'([^']*)'", found["names"])}
        chosen = [name for name in values if name in names]
    else:
        chosen = list(values)
    return ["Variable_name", "Value"], [(name, values[name]) for name in sorted(chosen)]


def _show_status(session: _ServedConnection, found: re.Match[str]) -> Result:
    fake = session._fake
    name, offset = fake.journals[-1]
    columns = ["File", "Position", "Binlog_Do_DB", "Binlog_Ignore_DB"]
    if fake.flavor == "mariadb" or fake.is_old:
        return columns, [(name, offset, "", "")]
    return [*columns, "Executed_Gtid_Set"], [(name, offset, "", "", fake.executed)]


def _show_logs(session: _ServedConnection, found: re.Match[str]) -> Result:
    if session._fake.flavor == "mariadb" or session._fake.is_old:
        return ["Log_name", "File_size"], list(session._fake.journals)
    return ["Log_name", "File_size", "Encrypted"], [(*row, "No") for row in session._fake.journals]


def _show_events(session: _ServedConnection, found: re.Match[str]) -> Result:
    """The first event of the first journal."""
    names = ["Log_name", "Pos", "Event_type", "Server_id", "End_log_pos", "Info"]
    return names, [(session._fake.journals[0][0], 4, "Format_desc", session._fake.server_id, 106, "")]


def _show_processlist(session: _ServedConnection, found: re.Match[str]) -> Result:
    host = ":".join(map(str, session.address))
    columns = ["Id", "User", "Host", "db", "Command", "Time", "State", "Info"]
    return columns, [(session.number, session._server.user, host, None, "Query", 0, "", found[0])]


def _set(session: _ServedConnection, found: re.Match[str]) -> None:
    for name, value in re.findall(r"@(\w+)\s*:?=\s*('(?:[^'\\]|''|\\.)*'|@@[\w.]+|[-\w.]+)", found["settings"]):
        session.variables[name.lower()] = _value(session, value)


def _value(session: _ServedConnection, text: str) -> Any:
    text = text.strip()
    if text.startswith("'"):
        return text[1:-1].replace("''", "'")
    if text.startswith("@@"):
        name = text[2:].lower().rpartition(".")[2]
        values = variables_of(session._fake)
        if name not in values:
            raise _Error(1193, f"Unknown system variable '{name}'")
        return values[name]
    if text.startswith("@"):
        return session.variables.get(text[1:].lower())
    if re.fullmatch(r"-?\d+", text):
        return int(text)
    for pattern, call in FUNCTIONS:
        found = pattern.fullmatch(text)
        if found is not None:
            return call(session, found)
    raise _Error(1064, f"the fake binlog does not know {text[:60]}", "42000")


def _select(session: _ServedConnection, found: re.Match[str]) -> Result:
    names, values = [], []
    for item in _split(found["items"]):
        expression, _, alias = re.fullmatch(r"(.*?)(\s+AS\s+(\S+))?", item, re.I | re.S).groups()  # type: ignore[union-attr]
        names.append((alias or expression).strip("`'"))
        values.append(_value(session, expression))
    return names, [tuple(values)]


_ITEM: Final = re.compile(r"(?:'(?:[^'\\]|\\.)*'|\((?:'(?:[^'\\]|\\.)*'|[^()])*\)|[^,('])+")


def _split(text: str) -> list[str]:
    """The items of a list that has commas in quotes and brackets."""
    return [found.group().strip() for found in _ITEM.finditer(text)]


def _gtid_at(session: _ServedConnection, found: re.Match[str]) -> str | None:
    """BINLOG_GTID_POS: the state at an offset, NULL for one that is not there."""
    fake = session._fake
    with fake.log.changed:
        journal = next((one for one in fake.log.journals if one.name == found[1]), None)
        if journal is None:
            return None
        state = journal.executed
        for event in journal.events:
            if event.gtid is not None and event.end <= int(found[2]):
                state = fake.log.added(state, event.gtid)
        return str(state)


def _subtract(session: _ServedConnection, found: re.Match[str]) -> str:
    left, right = (str(_value(session, part)) for part in _split(found[1]))
    return str(MysqlGtidSet.parse(left) - MysqlGtidSet.parse(right))


def _wanted(fake: BinlogState, condition: str) -> list[tuple[str, str]]:
    """The tables whose schema and name a WHERE wants, with = or IN."""
    tests = re.findall(r"(table_schema|table_name)\s*(?:=\s*('[^']*')|IN\s*\(([^)]*)\))", condition, re.IGNORECASE)
    wanted = {name.lower(): re.findall(r"'([^']*)'", one or many) for name, one, many in tests}
    return [
        (schema, table)
        for schema, table in sorted(fake._tables)
        if schema in wanted.get("table_schema", (schema,)) and table in wanted.get("table_name", (table,))
    ]


def _columns(session: _ServedConnection, found: re.Match[str]) -> Result:
    """information_schema.columns: any of its usual columns, of one table or all."""
    fake = session._fake
    names = [re.sub(r"cast\((.*) as binary\)", r"\1", name.strip(" `").lower()) for name in found["items"].split(",")]
    rows = []
    with fake.log.changed:
        for schema, table in _wanted(fake, found["rest"]):
            made = fake._tables[schema, table]
            for number, column in enumerate(made.columns, 1):
                facts = _facts(fake, schema, table, number, column)
                unknown = [name for name in names if name not in facts]
                if unknown:
                    raise _Error(1054, f"Unknown column '{unknown[0]}' in 'field list'", "42S22")
                rows.append(tuple(facts[name] for name in names))
    return [name.upper() for name in names], rows


def _facts(fake: BinlogState, schema: str, table: str, number: int, column: _encode.FakeColumn) -> dict[str, Any]:
    text = column.column_type(fake.flavor)
    extra = ("auto_increment " * column.auto_increment + "INVISIBLE" * (not column.visible)).strip()
    number = column.collation_number(fake.flavor)
    charset = column.charset if column.is_text else None
    if column.type == "json" and fake.flavor == "mariadb":
        charset = "utf8mb4"
    return {
        "table_schema": schema,
        "table_name": table,
        "column_name": column.name,
        "ordinal_position": number,
        "column_type": text,
        "data_type": text.partition("(")[0].partition(" ")[0],
        "extra": extra,
        "column_comment": "",
        "is_nullable": "YES" if column.nullable else "NO",
        "column_key": "PRI" if column.key else "",
        "character_set_name": charset,
        "column_default": None,
        "generation_expression": None,
        "null": None,
        "collation_name": _encode.COLLATION_NAMES.get(number, f"{charset}_{number}") if charset else None,
    }


def _tables_like(session: _ServedConnection, found: re.Match[str]) -> Result:
    """information_schema.tables: names in a schema that are so, or begin so."""
    with session._fake.log.changed:
        names = [table for schema, table in session._fake._tables if schema == found["schema"]]
    wanted = found["name"]
    return ["TABLE_NAME"], [(name,) for name in names if name == wanted or found["left"] and name.startswith(wanted)]


def _tables(session: _ServedConnection, found: re.Match[str]) -> Result:
    """information_schema.tables, of one table or all."""
    with session._fake.log.changed:
        names = _wanted(session._fake, found["rest"])
    rows = [(*name, f"{session._fake.charset}_general_ci", "BASE TABLE", "InnoDB", "") for name in names]
    columns = ["TABLE_SCHEMA", "TABLE_NAME", "TABLE_COLLATION", "TABLE_TYPE", "ENGINE", "CREATE_OPTIONS"]
    count = len(found["items"].split(","))
    return columns[:count], [row[:count] for row in rows]


def _schemata(session: _ServedConnection, found: re.Match[str]) -> Result:
    with session._fake.log.changed:
        names = sorted({schema for schema, _ in session._fake._tables})
    return ["SCHEMA_NAME", "DEFAULT_CHARACTER_SET_NAME"], [(name, session._fake.charset) for name in names]


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text.replace(" ", r"\s+"), re.IGNORECASE | re.DOTALL)


#: What a statement is answered with, the first that matches; None is an OK packet. Add to it what another client asks.
ANSWERS: Final[list[tuple[re.Pattern[str], Answer]]] = [
    (
        _pattern(
            r"SHOW (?:(?:GLOBAL|SESSION) )?VARIABLES"
            r"(?: LIKE '(?P<like>[^']*)'| WHERE .*? IN \((?P<names>.*)\)| WHERE .*)?"
        ),
        _show_variables,
    ),
    (_pattern(r"SHOW (?:MASTER|BINARY LOG|BINLOG) STATUS"), _show_status),
    (_pattern(r"SHOW (?:BINARY|MASTER) LOGS"), _show_logs),
    (_pattern(r"SHOW BINLOG EVENTS LIMIT 1"), _show_events),
    (
        _pattern(r"SHOW (?:(?:SLAVE|REPLICA) HOSTS|REPLICAS|WARNINGS|(?:SLAVE|REPLICA) STATUS)"),
        lambda session, found: (["Empty"], []),
    ),
    (_pattern(r"SHOW PROCESSLIST"), _show_processlist),
    (_pattern(r"SHOW GRANTS"), lambda session, found: (["Grants"], [("GRANT ALL PRIVILEGES ON *.* TO CURRENT_USER",)])),
    (_pattern(r"SHOW STATUS LIKE 'Ssl_cipher'"), lambda session, found: (["Variable_name", "Value"], [("Ssl_cipher", "")])),
    (_pattern(r"SET (?P<settings>.*)"), _set),
    (_pattern(r"SELECT (?P<items>.*?) FROM information_schema\.columns\b(?P<rest>.*)"), _columns),
    (
        _pattern(
            r"SELECT table_name FROM information_schema\.tables WHERE table_schema = '(?P<schema>[^']*)'"
            r" AND (?P<left>LEFT)?.*= '(?P<name>[^']*)'"
        ),
        _tables_like,
    ),
    (
        _pattern(
            r"SELECT (?P<items>table_schema, table_name(?:, table_collation, table_type, engine, create_options)?)"
            r" FROM information_schema\.tables\b(?P<rest>.*)"
        ),
        _tables,
    ),
    (_pattern(r"SELECT schema_name, default_character_set_name FROM information_schema\.schemata"), _schemata),
    (
        _pattern(r"SELECT COUNT\(\*\), MIN\(.*\) FROM information_schema\.referential_constraints\b.*"),
        lambda session, found: (["COUNT", "MIN"], [(0, None)]),
    ),
    (
        _pattern(r"SELECT .* FROM information_schema\.(?:referential_constraints|statistics)\b.*"),
        lambda session, found: (["Empty"], []),
    ),
    (_pattern(r"SELECT (?P<items>(?:(?! FROM ).)*)"), _select),
    (_pattern(r"(?:START TRANSACTION|BEGIN|COMMIT|ROLLBACK|USE|KILL|FLUSH)\b.*"), lambda session, found: None),
]

#: What MySQL 5.1 answers with an error. Its users here have not SUPER.
_UNKNOWN_TO_OLD: Final = [
    (
        _pattern(r".*UTC_TIMESTAMP\(\d|.*READ ONLY|SHOW (?:BINARY LOG STATUS|REPLICA)|EXPLAIN FORMAT"),
        _Error(1064, "You have an error in your SQL syntax", "42000"),
    ),
    (_pattern(r"SET NAMES utf8mb"), _Error(1115, "Unknown character set: 'utf8mb4'", "42000")),
    (_pattern(r".*(?:GTID_SUBTRACT|BINLOG_GTID_POS)\("), _Error(1305, "FUNCTION does not exist", "42000")),
    (_pattern(r".*generation_expression"), _Error(1054, "Unknown column 'generation_expression' in 'field list'", "42S22")),
    (_pattern(r".*information_schema\.check_constraints"), _Error(1109, "Unknown table 'check_constraints'", "42S02")),
    (
        _pattern(r"SHOW (?:BINARY|MASTER) LOGS"),
        _Error(1227, "Access denied; you need (at least one of) the SUPER privilege(s) for this operation", "42000"),
    ),
]

#: What a SELECT without FROM can compute besides variables and whole numbers.
FUNCTIONS: Final[list[tuple[re.Pattern[str], Callable[[_ServedConnection, re.Match[str]], Any]]]] = [
    (_pattern(r"VERSION\(\)"), lambda session, found: session._fake.version),
    (_pattern(r"CONNECTION_ID\(\)"), lambda session, found: session.number),
    (_pattern(r"(?:DATABASE|SCHEMA)\(\)"), lambda session, found: None),
    (_pattern(r"UNIX_TIMESTAMP\(\)"), lambda session, found: int(session._fake.clock())),
    (
        _pattern(r"UTC_TIMESTAMP\(\)"),
        lambda session, found: f"{datetime.fromtimestamp(session._fake.clock(), UTC):%Y-%m-%d %H:%M:%S}",
    ),
    (
        _pattern(r"UTC_TIMESTAMP\(6\)"),
        lambda session, found: f"{datetime.fromtimestamp(session._fake.clock(), UTC):%Y-%m-%d %H:%M:%S.%f}",
    ),
    (_pattern(r"BINLOG_GTID_POS\('([^']*)',\s*(\d+)\)"), _gtid_at),
    (_pattern(r"GTID_SUBTRACT\((.*)\)"), _subtract),
]


def _result_set(names: list[str], rows: list[tuple[Any, ...]]) -> list[bytes]:
    """A text result set, every column a VARCHAR or BIGINT."""
    packets = [_encode.packed(len(names))]
    for index, name in enumerate(names):
        numeric = bool(rows) and all(isinstance(row[index], int) for row in rows)
        label = _encode.packed_text(name.encode("utf-8"))
        packets.append(
            b"\x03def\0\0\0"
            + label
            + label
            + b"\x0c"
            + struct.pack("<HIBHBxx", 63 if numeric else 45, 1024, 8 if numeric else 253, 0, 0)
        )
    packets.append(_EOF)
    for row in rows:
        cells = (None if cell is None else str(cell).encode("utf-8") for cell in row)
        packets.append(b"".join(b"\xfb" if cell is None else _encode.packed_text(cell) for cell in cells))
    packets.append(_EOF)
    return packets
