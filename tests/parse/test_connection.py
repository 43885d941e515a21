"""The live replication connection: logins, start positions, dumps, and what each fault becomes."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import attrs
import pymysql
import pytest

from canal.binlog.event_types import ANNOTATE_ROWS, FORMAT_DESCRIPTION, ROTATE, XID
from canal.errors import (
    AuthenticationError,
    ConfigError,
    ConnectionLostError,
    PositionLostError,
    ServerError,
    SourceError,
    StateError,
)
from canal.parse.log.framing import MAX_PACKET
from canal.parse.source import _pymysql
from canal.parse.source.connection import MySQLConnection
from canal.parse.source.mysql import MySQLSource
from canal.parse.source.protocol import Connection, Source
from canal.parse.source.server import SSL_MODES
from canal.position import Position
from canal.testing.fake import FakeBinlog
from canal.testing.proxy import FaultProxy
from canal.testing.servers import ThrowawayServer
from tests.support.packets import packet

HEARTBEATS = (27, 41)
#: For who waits for a heartbeat and for nothing behind it: three of them without a word are a lost connection.
OFTEN = 0.5


def source_of(server: ThrowawayServer, **options: Any) -> MySQLSource:
    options = {"user": server.user, "password": server.password, "get_server_public_key": True, **options}
    return MySQLSource(host=server.host, port=server.port, **options)


@contextmanager
def connected(server: ThrowawayServer, **options: Any) -> Iterator[MySQLConnection]:
    with closing(source_of(server, **options).connect()) as connection:
        yield connection


def read_until(connection: MySQLConnection, enough: Callable[[list[bytes]], bool], limit: float = 30.0) -> list[bytes]:
    found: list[bytes] = []
    end = time.monotonic() + limit
    while not enough(found):
        assert time.monotonic() < end, [event[4] for event in found]
        found += connection.read(1.0) or []
    return found


def has(*kinds: int) -> Callable[[list[bytes]], bool]:
    return lambda events: any(event[4] in kinds for event in events)


# -- real servers: login -----------------------------------------------------------------------------------------------


def test_a_connection_meets_the_protocols(server: ThrowawayServer) -> None:
    source = source_of(server)

    assert isinstance(source, Source)
    with closing(source.connect()) as connection:
        assert isinstance(connection, Connection)
        assert connection.flavor == server.kind
        assert connection.full_metadata is True
        assert connection.identity


@pytest.mark.parametrize("mode", SSL_MODES[:3])
def test_caching_sha2_logs_in_with_and_without_tls(mysql_server: ThrowawayServer, mode: str) -> None:
    """T27"""
    # FLUSH PRIVILEGES empties the server's cache: without TLS the password travels under the server's RSA key.
    mysql_server.query("FLUSH PRIVILEGES")

    with connected(mysql_server, ssl_mode=mode, heartbeat_interval=OFTEN) as connection:
        connection.dump(connection.resolve("latest"))

        assert connection.is_encrypted is (mode != "DISABLED")
        assert read_until(connection, has(*HEARTBEATS))


def test_verification_refuses_an_unknown_authority_and_takes_the_servers_own(mysql_server: ThrowawayServer) -> None:
    with pytest.raises(ServerError, match="certificate"):
        source_of(mysql_server, ssl_mode="VERIFY_CA").connect()

    with connected(mysql_server, ssl_mode="VERIFY_CA", ssl_ca=str(mysql_server.data_dir / "ca.pem")) as connection:
        assert connection.is_encrypted
    with pytest.raises(ServerError, match="certificate"):  # its certificate names no host
        source_of(mysql_server, ssl_mode="VERIFY_IDENTITY", ssl_ca=str(mysql_server.data_dir / "ca.pem")).connect()


def test_ed25519_logs_in(mariadb_server: ThrowawayServer) -> None:
    """T27"""
    try:
        mariadb_server.query("INSTALL SONAME 'auth_ed25519'")
    except pymysql.MySQLError as error:
        if error.args[0] != 1968:  # installed already
            pytest.skip(f"the server has no ed25519 plugin: {error}")
    mariadb_server.query("CREATE OR REPLACE USER edward IDENTIFIED VIA ed25519 USING PASSWORD('süß')")
    mariadb_server.query("GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO edward")

    with connected(mariadb_server, user="edward", password="süß", heartbeat_interval=OFTEN) as connection:
        connection.dump(connection.resolve("latest"))
        assert read_until(connection, has(*HEARTBEATS))


def test_a_password_that_is_not_latin1_logs_in(server: ThrowawayServer) -> None:
    """T27"""
    server.query("DROP USER IF EXISTS pass")
    server.query("CREATE USER pass IDENTIFIED BY '密码'")
    server.query("GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO pass")

    with connected(server, user="pass", password="密码") as connection:
        assert connection.resolve("latest").journal


def test_the_unix_socket_is_used_when_it_is_named(server: ThrowawayServer) -> None:
    with connected(server, unix_socket=str(server.socket_path)) as connection:
        assert connection.resolve("latest").journal
        assert not connection.is_encrypted


@pytest.mark.parametrize("password", ["", "x" * 21, "long and 密" * 9])
def test_passwords_of_any_length_log_in(server: ThrowawayServer, password: str) -> None:
    """T27: none at all, and more than the 20 bytes of a hash."""
    server.query("DROP USER IF EXISTS length")
    server.query(f"CREATE USER length IDENTIFIED BY '{password}'")
    server.query("GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO length")

    with connected(server, user="length", password=password) as connection:
        assert connection.resolve("latest").journal


@contextmanager
def asking(*questions: bytes, **options: Any) -> Iterator[tuple[MySQLSource, list[bytes]]]:
    """A server that greets, answers all that comes with its ``questions`` and then closes; what came."""
    received: list[bytes] = []
    tls = options.pop("tls", False)

    def serve(listener: socket.socket) -> None:
        sock, _ = listener.accept()
        with sock:
            sock.sendall(
                packet(
                    0,
                    b"\x0a8.4.0\0"
                    + bytes(4)
                    + b"saltsalt\0\xff"
                    + (b"\xff" if tls else b"\xf7")
                    + b"\x2d\2\0"
                    + b"\xff\xdf\x15"
                    + bytes(10)
                    + b"saltsaltsalt\0mysql_native_password\0",
                )
            )
            for question in questions:
                received.append(sock.recv(4096))
                if not received[-1]:
                    return
                sock.sendall(packet(received[-1][3] + 1, question))
            received.append(sock.recv(4096))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = threading.Thread(target=serve, args=(listener,))
        serving.start()
        yield MySQLSource(port=listener.getsockname()[1], password="geheim", **options), received
        serving.join(60)


@pytest.mark.parametrize("question", [b"\xfemysql_clear_password\0", b"\xfedialog\0\5Password: "])
def test_a_password_is_never_sent_in_clear_text_over_a_plain_connection(question: bytes) -> None:
    """T27: a server, or somebody in its place, may ask for it."""
    with asking(question) as (source, received), pytest.raises(AuthenticationError, match="clear text, and allow_cleartext"):
        source.connect()

    assert len(received) == 2
    assert b"geheim" not in b"".join(received)


def test_the_old_password_that_mysql_5_1_asks_for_is_refused_for_good() -> None:
    with asking(b"\xfe") as (source, _), pytest.raises(AuthenticationError, match="before MySQL 4.1"):
        source.connect()


def test_a_server_that_asks_for_ever_is_refused_for_good() -> None:
    """MariaDB asks for one plugin of an account after the other."""
    questions = [b"\xfemysql_native_password\0" + b"salt" * 5 + b"\0"] * 20
    with asking(*questions) as (source, received), pytest.raises(AuthenticationError, match="authentication plugins"):
        source.connect()

    assert len(received) < 12


def test_a_public_key_that_was_damaged_on_the_way_is_a_lost_connection() -> None:
    questions = b"\xfesha256_password\0" + b"salt" * 5 + b"\0", b"\1no key"
    trusting = asking(*questions, get_server_public_key=True)
    with trusting as (source, received), pytest.raises(ConnectionLostError, match="cannot parse the answer"):
        source.connect()

    assert b"geheim" not in b"".join(received)


def test_a_connection_that_ends_in_the_tls_handshake_is_a_lost_connection() -> None:
    with asking(tls=True) as (source, received), pytest.raises(ConnectionLostError):
        source.connect()

    assert len(received) == 1


def test_a_wrong_password_is_an_authentication_error(server: ThrowawayServer) -> None:
    with pytest.raises(AuthenticationError) as caught:
        source_of(server, password="wrong-and-secret").connect()

    assert "wrong-and-secret" not in str(caught.value)


@pytest.mark.parametrize("granted", ["REPLICATION SLAVE", "REPLICATION CLIENT"])
def test_a_missing_privilege_is_found_at_once_with_the_grant_to_run(server: ThrowawayServer, granted: str) -> None:
    server.query("DROP USER IF EXISTS few")
    server.query("CREATE USER few IDENTIFIED BY 'few'")
    server.query(f"GRANT {granted} ON *.* TO few")

    with pytest.raises(AuthenticationError, match="GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT"):
        source_of(server, user="few", password="few").connect()


# -- real servers: positions and dumps ---------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["gtid", "file"])
def test_a_dump_gives_what_was_written_after_its_position(server: ThrowawayServer, database: str, by: str) -> None:
    server.query(f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY, v VARCHAR(20))")
    server.query(f"INSERT INTO `{database}`.t VALUES (1, 'before')")
    with connected(server) as connection:
        start = connection.resolve("latest")
        assert start.gtid
        if by == "file":
            start = Position(journal=start.journal, offset=start.offset)
        server.query(f"INSERT INTO `{database}`.t VALUES (2, 'after')")

        connection.dump(start)
        events = read_until(connection, has(XID))

    assert events[0][4] == ROTATE
    assert events[1][4] == FORMAT_DESCRIPTION
    stream = b"".join(events)
    assert b"after" in stream
    assert b"before" not in stream


def test_a_gtid_set_counts_more_than_journal_and_offset(server: ThrowawayServer, database: str) -> None:
    """T9: a position that has both resumes behind its set, wherever its journal is."""
    server.query(f"CREATE TABLE `{database}`.t (v VARCHAR(20))")
    with connected(server) as connection:
        early = connection.resolve("latest")
        server.query(f"INSERT INTO `{database}`.t VALUES ('between')")
        server.query("FLUSH BINARY LOGS")
        server.query(f"INSERT INTO `{database}`.t VALUES ('after')")
        late = connection.resolve("latest")

        connection.dump(attrs.evolve(late, gtid=early.gtid))
        stream = b"".join(read_until(connection, lambda events: sum(event[4] == XID for event in events) == 2))

    assert b"between" in stream


def test_mariadb_sends_annotations_so_that_offsets_have_no_holes(mariadb_server: ThrowawayServer) -> None:
    """T13"""
    mariadb_server.query("CREATE DATABASE IF NOT EXISTS annotated")
    mariadb_server.query("CREATE OR REPLACE TABLE annotated.t (id INT)")
    with connected(mariadb_server) as connection:
        start = connection.resolve("latest")
        mariadb_server.query("INSERT INTO annotated.t VALUES (1)")
        end = connection.resolve("latest")

        connection.dump(Position(journal=start.journal, offset=start.offset))
        events = [event for event in read_until(connection, has(XID, 2))[2:] if event[13:17] != bytes(4)]

    assert ANNOTATE_ROWS in [event[4] for event in events]
    assert sum(map(len, events)) >= end.offset - start.offset - 64


def test_earliest_begins_with_the_first_log(server: ThrowawayServer) -> None:
    with connected(server) as connection:
        start = connection.resolve("earliest")

    assert start.offset == 4
    assert start.journal == server.query("SHOW BINARY LOGS")[0][0]


def test_a_time_becomes_a_position_before_what_came_after_it(server: ThrowawayServer, database: str) -> None:
    server.query(f"CREATE TABLE `{database}`.t (v VARCHAR(20))")
    server.query(f"INSERT INTO `{database}`.t VALUES ('before')")
    moment = (int(time.time()) + 1) * 1000  # events have whole seconds
    server.query("FLUSH BINARY LOGS")
    while time.time() * 1000 < moment:
        time.sleep(0.01)
    server.query(f"INSERT INTO `{database}`.t VALUES ('after')")

    with connected(server) as connection:
        start = connection.resolve(Position(timestamp=moment))
        future = connection.resolve(Position(timestamp=moment + 10**8))
        latest = connection.resolve("latest")
        connection.dump(start)
        stream = b"".join(read_until(connection, has(XID)))

    assert b"after" in stream
    assert b"before" not in stream
    assert start.gtid
    assert (future.journal, future.offset, future.gtid) == (latest.journal, latest.offset, latest.gtid)


def test_positions_that_cannot_be_are_refused_with_what_there_is(server: ThrowawayServer) -> None:
    """T11, T34"""
    with connected(server) as connection:
        journal = connection.resolve("latest").journal

        with pytest.raises(PositionLostError, match=r"no log gone\.000001; it has .*000001 to"):
            connection.resolve(Position(journal="gone.000001", offset=4))
        with pytest.raises(PositionLostError, match="before offset 4000000000"):
            connection.resolve(Position(journal=journal, offset=4_000_000_000))
        with pytest.raises(PositionLostError, match="one of server somebody"):
            connection.resolve(Position(journal=journal, offset=4, source="somebody"))
        with pytest.raises(PositionLostError, match="32 bits"):
            connection.dump(Position(journal=journal, offset=1 << 32))
        with pytest.raises(ConfigError, match="empty"):
            connection.resolve(Position())
        with pytest.raises(StateError):
            connection.read(0)
        connection.dump(Position(journal="gone.000001", offset=4))
        with pytest.raises(PositionLostError, match=r"1236.*it has .*000001 to"):
            read_until(connection, bool)


def test_columns_are_those_of_information_schema(server: ThrowawayServer, database: str) -> None:
    server.query(
        f"CREATE TABLE `{database}`.`wide table` (id BIGINT UNSIGNED PRIMARY KEY, "
        "e ENUM('it''s', 'b\\\\c', 'z,)') CHARACTER SET latin1, s SET('x', 'y') NOT NULL, n VARCHAR(20) NOT NULL, "
        "d DECIMAL(10, 2), b VARBINARY(3))"
    )
    with connected(server) as connection:
        found = connection.table_columns(database, "wide table")
        everything = [one.schema for one in connection.describe().tables if one.schema.schema == database]
        assert connection.table_columns(database, "missing") is None

    assert found is not None
    assert everything == [found]
    by_name = {column.name: column for column in found.columns}
    assert list(by_name) == ["id", "e", "s", "n", "d", "b"]
    assert (by_name["id"].key, by_name["id"].unsigned, by_name["id"].nullable) == (True, True, False)
    assert by_name["e"].labels == ("it's", "b\\c", "z,)")
    assert (by_name["e"].charset, by_name["n"].charset, by_name["b"].charset) == ("latin1", "utf8mb4", None)
    assert by_name["s"].labels == ("x", "y")
    assert by_name["d"].column_type == "decimal(10,2)"


@pytest.mark.lines("mysql", "mariadb")
@pytest.mark.every_line
def test_of_databases_of_which_no_table_is_accepted_none_is_read_and_of_others_some_at_a_time(
    server: ThrowawayServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first start reads all tables that a rename within their database may bring into the filter."""
    monkeypatch.setattr("canal.parse.source.information_schema.PIECE", 2)
    other = f"{database}_other"
    server.query(f"CREATE DATABASE `{other}`")
    try:
        for number in range(5):
            server.query(f"CREATE TABLE `{database}`.t{number} (id INT PRIMARY KEY, a{number} INT, KEY (a{number}))")
        server.query(f"CREATE TABLE `{other}`.u (id INT)")
        server.query(f"CREATE VIEW `{database}`.v AS SELECT * FROM `{database}`.t0")
        with connected(server) as connection:
            ask, asked = connection._queries.rows, []

            def rows(sql: str, args: tuple[Any, ...] = (), *, doing: str) -> list[tuple[Any, ...]]:
                asked.append((doing, args))
                return ask(sql, args, doing=doing)

            monkeypatch.setattr(connection._queries, "rows", rows)
            some = connection.describe(accepts=lambda schema, table: (schema, table) == (database, "t3"))
            told = [args for doing, args in asked if "columns" in doing]
            everything = connection.describe()
    finally:
        server.query(f"DROP DATABASE `{other}`")

    found = {(one.schema.schema, one.schema.table): one for one in everything.tables}
    assert {(database, f"t{number}") for number in range(5)} | {(other, "u")} <= found.keys()
    assert sorted(some.tables, key=lambda one: one.schema.table) == [found[database, f"t{number}"] for number in range(5)]
    assert {database, other} & (some.unread | {""}) == {other}
    assert (some.databases, everything.unread) == (everything.databases, frozenset())
    assert set(told) == {(database, "t0", "t1"), (database, "t2", "t3"), (database, "t4", "v")}


def test_a_query_connection_that_was_lost_is_opened_again(server: ThrowawayServer, database: str) -> None:
    server.query(f"CREATE TABLE `{database}`.t (id INT)")
    with connected(server) as connection:
        assert connection.table_columns(database, "t")
        own = connection._queries.rows("SELECT CONNECTION_ID()", doing="ask")[0][0]
        server.query(f"KILL {own}")

        assert connection.table_columns(database, "t")


# -- real servers: faults ----------------------------------------------------------------------------------------------


def dump_threads(server: ThrowawayServer) -> list[int]:
    return [row[0] for row in server.query("SHOW PROCESSLIST") if str(row[4]).startswith("Binlog Dump")]


@pytest.mark.every_line(always=True)
def test_an_idle_server_sends_heartbeats(server: ThrowawayServer) -> None:
    with connected(server, heartbeat_interval=0.75) as connection:  # of which three may fail to come
        connection.dump(connection.resolve("latest"))
        read_until(connection, lambda events: sum(event[4] in HEARTBEATS for event in events) >= 3)


def test_a_killed_dump_is_a_lost_connection(server: ThrowawayServer) -> None:
    before = set(dump_threads(server))
    with connected(server, heartbeat_interval=OFTEN) as connection:
        connection.dump(connection.resolve("latest"))
        read_until(connection, has(*HEARTBEATS))
        (thread,) = set(dump_threads(server)) - before

        server.query(f"KILL {thread}")

        with pytest.raises(ConnectionLostError):
            read_until(connection, lambda events: False)


def test_close_wakes_a_reader_and_frees_the_server(server: ThrowawayServer) -> None:
    """T25: under TLS on MySQL."""
    with connected(server) as connection:
        connection.dump(connection.resolve("latest"))
        read_until(connection, has(FORMAT_DESCRIPTION))

        threading.Timer(0.1, connection.close).start()
        with pytest.raises(ConnectionLostError):
            read_until(connection, lambda events: False)
        connection.close()


def test_the_same_server_id_twice_is_named(mariadb_server: ThrowawayServer) -> None:
    """T24"""
    with connected(mariadb_server, server_id=4711) as first, connected(mariadb_server, server_id=4711) as second:
        first.dump(first.resolve("latest"))
        read_until(first, has(FORMAT_DESCRIPTION))
        second.dump(second.resolve("latest"))

        with pytest.raises(ServerError, match="uses our server id 4711"):
            read_until(first, lambda events: False)


def test_a_server_that_stops_dies_or_freezes_is_a_lost_connection(own_server: ThrowawayServer) -> None:
    """T26"""
    with connected(own_server, heartbeat_interval=0.2) as connection:
        connection.dump(connection.resolve("latest"))
        read_until(connection, has(*HEARTBEATS))
        own_server.pause()
        with pytest.raises(ConnectionLostError, match="half-open"):
            read_until(connection, lambda events: False)
        own_server.resume()
    with connected(own_server) as connection:
        connection.dump(connection.resolve("latest"))
        read_until(connection, has(FORMAT_DESCRIPTION))
        own_server.kill()
        with pytest.raises(ConnectionLostError, match="clos|broke|reset"):
            read_until(connection, lambda events: False)
    own_server.restart()
    with connected(own_server) as connection:
        connection.dump(connection.resolve("latest"))
        read_until(connection, has(FORMAT_DESCRIPTION))
        stopping = threading.Thread(target=own_server.shutdown)
        stopping.start()
        with pytest.raises(ConnectionLostError):
            read_until(connection, lambda events: False)
        stopping.join()


def test_events_of_more_than_one_packet_arrive_whole(own_server: ThrowawayServer) -> None:
    """T10"""
    redo = "--innodb-log-file-size=512M" if own_server.kind == "mariadb" else "--innodb-redo-log-capacity=512M"
    own_server.restart("--max-allowed-packet=256M", redo)
    own_server.query("CREATE DATABASE big")
    own_server.query("CREATE TABLE big.t (id INT AUTO_INCREMENT PRIMARY KEY, v LONGBLOB)")
    with connected(own_server) as connection:
        connection.dump(connection.resolve("latest"))

        def written(size: int) -> bytes:
            own_server.query("INSERT INTO big.t (v) VALUES (REPEAT('q', %s))", size)
            return max(read_until(connection, has(XID)), key=len)

        overhead = len(written(1000)) - 1000
        for payload in (MAX_PACKET - 1, MAX_PACKET, MAX_PACKET + 1, 40 << 20):
            event = written(payload - 1 - overhead)  # one byte of the payload is the status byte
            assert len(event) == payload - 1
            assert event.count(b"q") >= payload - 1 - overhead


def purge_all_but_last(server: ThrowawayServer) -> None:
    end = time.monotonic() + 120
    while len(logs := server.query("SHOW BINARY LOGS")) > 1:  # MariaDB keeps a log until its engine's next checkpoint
        server.query(f"PURGE BINARY LOGS TO '{logs[-1][0]}'")
        assert time.monotonic() < end
        time.sleep(0.02)


def test_purged_logs_are_a_lost_position(own_server: ThrowawayServer) -> None:
    """T23"""
    own_server.query("CREATE DATABASE old")
    with connected(own_server) as connection:
        early = connection.resolve("earliest")
    for _ in range(2):
        own_server.query("CREATE TABLE IF NOT EXISTS old.t (id INT)")
        own_server.query("INSERT INTO old.t VALUES (1)")
        own_server.query("FLUSH BINARY LOGS")
    behind = Position(gtid=f"{own_server.query('SELECT @@server_uuid')[0][0]}:1") if own_server.kind == "mysql" else None
    purge_all_but_last(own_server)

    with connected(own_server) as connection:
        kept = connection.resolve("earliest")
        assert kept.journal != early.journal
        assert kept.gtid
        with pytest.raises(PositionLostError, match="it has"):
            connection.resolve(early)
        with pytest.raises(PositionLostError, match="no log from before 1970"):
            connection.resolve(Position(timestamp=1000))
        if behind is not None:
            with pytest.raises(PositionLostError, match="purged transactions that were not read"):
                connection.resolve(behind)
        connection.dump(behind or Position(gtid="0-1-1"))
        with pytest.raises(PositionLostError, match="it has"):
            read_until(connection, lambda events: False)


def test_settings_that_hide_changes_are_refused(own_server: ThrowawayServer) -> None:
    own_server.query("SET GLOBAL binlog_format = 'STATEMENT'")

    with pytest.raises(ServerError, match="STATEMENT format"):
        source_of(own_server).connect()
    with connected(own_server, require_row_format=False) as connection:
        assert connection.resolve("latest").journal


def test_a_damaged_login_is_a_typed_error_within_its_timeout() -> None:
    """Nothing but TLS protects a login: any byte of it may be another, and any length."""
    fake = FakeBinlog()
    with fake.serve(user="u", password="p") as server, FaultProxy(server.host, server.port) as proxy:
        patient = MySQLSource(host=proxy.host, port=proxy.port, user="u", password="p", ssl_mode="DISABLED")
        patient.connect().close()
        source = attrs.evolve(patient, read_timeout=0.2)
        for offset in range(0, proxy.bytes_down, 7):
            proxy.corrupt_at(offset)
            try:
                source.connect().close()
            except SourceError:
                pass


def test_a_tls_record_that_is_damaged_at_the_start_of_a_dump_is_a_lost_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged(connection: Any) -> Any:
        raise ssl.SSLError(1, "decryption failed or bad record mac")

    fake = FakeBinlog()
    with fake.serve(user="u", password="p") as server:
        source = MySQLSource(host=server.host, port=server.port, user="u", password="p", ssl_mode="DISABLED")
        with closing(source.connect()) as connection:
            monkeypatch.setattr(_pymysql, "take_over", damaged)
            with pytest.raises(ConnectionLostError, match="bad record mac"):
                connection.dump(fake.position)
