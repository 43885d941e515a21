"""Somebody in the server's stead: what of a password it learns, what it can make us hold in memory, which files it gets."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import socket
import ssl
import struct
import threading
import traceback
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import attrs
import nacl.bindings
import nacl.exceptions
import nacl.signing
import pymysql
import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

import canal
import canal.targets
from canal import AuthenticationError, CanalError, ConfigError, ConnectionLostError, DecodeError, InstanceConfig, MySQLSource
from canal.errors import ServerError
from canal.parse.log.events import MAX_INFLATED_BYTES
from canal.parse.log.framing import PacketFramer
from canal.parse.source import _pymysql
from canal.parse.source.packets import COM_REGISTER_SLAVE
from canal.parse.source.server_errors import MEANINGS
from canal.testing import FakeBinlog
from tests.support.papers import Papers, make_papers

PASSWORD: Final = "geheim"
SALT: Final = b"0123456789abcdefghij"
OK: Final = b"\0\0\0\2\0\0\0"
EOF: Final = b"\xfe\0\0\2\0"
CAPABILITIES: Final = 0x15DF_F7FF


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    return make_papers(tmp_path_factory.mktemp("papers"))


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    """Of somebody whom the stranger cannot stand in for."""
    return make_papers(tmp_path_factory.mktemp("others"))


class Stranger:
    """One connection, in the server's stead.

    ``learned`` is the password, when it has got it, and ``way_of`` how it came; ``was_asked`` tells whether it sent its key.
    """

    def __init__(self, sock: socket.socket, papers: Papers) -> None:
        self._sock = sock
        self._papers = papers
        self._sequence = 0
        self.learned = self.way_of = ""
        self.was_asked = False

    def close(self) -> None:
        self._sock.close()

    def say(self, payload: bytes) -> None:
        self._sock.sendall(struct.pack("<I", len(payload))[:3] + bytes([self._sequence & 255]) + payload)
        self._sequence += 1

    def say_without_end(self, payload: bytes) -> None:
        """A packet that begins so, and goes on in others for ever."""
        while True:
            self._sock.sendall(b"\xff\xff\xff" + bytes([self._sequence & 255]) + payload)
            self._sequence += 1
            for _ in range(255):
                self._sock.sendall(bytes(1 << 16))
            self._sock.sendall(bytes((1 << 16) - 1 - len(payload)))
            payload = b""

    def hear(self) -> bytes:
        head = self._exactly(4)
        self._sequence = head[3] + 1
        return self._exactly(int.from_bytes(head[:3], "little"))

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            got = self._sock.recv(size - len(data))
            if not got:
                raise EOFError
            data += got
        return data

    def greet(self, *, tls: bool) -> None:
        if self.offer(tls):
            self._sock = self._papers.context.wrap_socket(self._sock, server_side=True)
            self.hear()

    def offer(self, tls: bool) -> bool:
        """Greet; return whether TLS begins."""
        offered = CAPABILITIES | (0x800 if tls else 0)
        self.say(
            b"\x0a8.4.0\0"
            + bytes(4)
            + SALT[:8]
            + b"\0"
            + struct.pack("<HBHH", offered & 0xFFFF, 45, 2, offered >> 16)[:7]
            + b"\x15"
            + bytes(10)
            + SALT[8:]
            + b"\0caching_sha2_password\0"
        )
        return bool(struct.unpack("<I", self.hear()[:4])[0] & 0x800)

    def switch(self, plugin: str) -> bytes:
        self.say(b"\xfe" + plugin.encode() + b"\0" + (b"\5Password: " if plugin == "dialog" else SALT + b"\0"))
        return self.hear()

    def take(self, answer: bytes, wants_key: bytes) -> None:
        """Learn the password from an answer, or hand out the key by which it comes next."""
        if answer == wants_key:
            self.was_asked = True
            self.say(b"\1" + self._papers.public)
            answer = self.hear()
        self.way_of = "TLS" if isinstance(self._sock, ssl.SSLSocket) else "plain"
        if len(answer) == 256:
            self.way_of = "RSA"
            scheme = padding.OAEP(padding.MGF1(hashes.SHA1()), hashes.SHA1(), None)  # noqa: S303
            answer = bytes(a ^ b for a, b in zip(self._papers.key.decrypt(answer, scheme), SALT))
        if answer == PASSWORD.encode() + b"\0":
            self.learned = PASSWORD


def ask_sha256(one: Stranger) -> None:
    one.take(one.switch("sha256_password"), b"\1")


def ask_caching_sha2(one: Stranger) -> None:
    one.switch("caching_sha2_password")
    one.say(b"\1\4")
    one.take(one.hear(), b"\2")


def ask_behind_the_cache(one: Stranger) -> None:
    """PyMySQL goes on with its own idea of the plugin when more comes behind the last word."""
    one.switch("caching_sha2_password")
    one.say(b"\1\3")
    one.say(b"\1\4")
    one.take(one.hear(), b"\2")


def ask_behind_another(one: Stranger) -> None:
    one.switch("mysql_native_password")
    ask_caching_sha2(one)


def ask_in_clear_text(one: Stranger) -> None:
    one.take(one.switch("mysql_clear_password"), b"")


def ask_by_dialog(one: Stranger) -> None:
    one.take(one.switch("dialog"), b"")


@contextlib.contextmanager
def stood_in_for(papers: Papers, act: Callable[[Stranger], None], path: str = "", **options: Any) -> Iterator[Any]:
    """A source whose server is a stranger that does ``act``, and the strangers that it has met."""
    met: list[Stranger] = []

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = listener.accept()
                met.append(Stranger(sock, papers))
                with contextlib.suppress(OSError, EOFError):
                    act(met[-1])
                met[-1].close()

    if path:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen()
        where: dict[str, Any] = {"unix_socket": path}
    else:
        listener = socket.create_server(("127.0.0.1", 0))
        where = {"port": listener.getsockname()[1]}
    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield MySQLSource(password=PASSWORD, **where, **options), met
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(60)


#: The connection: what the stranger offers, and the options that mean it.
WAYS: Final[dict[str, tuple[bool, dict[str, str]]]] = {
    "DISABLED": (True, {"ssl_mode": "DISABLED"}),
    "PREFERRED, no TLS": (False, {}),
    "PREFERRED": (True, {}),
    "REQUIRED": (True, {"ssl_mode": "REQUIRED"}),
    "VERIFY_CA": (True, {"ssl_mode": "VERIFY_CA", "ssl_ca": "papers"}),
    "VERIFY_CA, public": (True, {"ssl_mode": "VERIFY_CA"}),
    "VERIFY_IDENTITY": (True, {"ssl_mode": "VERIFY_IDENTITY", "ssl_ca": "papers"}),
    "another authority": (True, {"ssl_mode": "VERIFY_CA"}),
    "another authority than ours": (True, {"ssl_mode": "VERIFY_CA", "ssl_ca": "others"}),
    "another authority, by name": (True, {"ssl_mode": "VERIFY_IDENTITY", "ssl_ca": "others"}),
    "another name": (True, {"ssl_mode": "VERIFY_IDENTITY", "ssl_ca": "papers", "host": "localhost"}),
    "socket": (False, {"path": "socket"}),
}
PLAIN: Final = {"DISABLED", "PREFERRED, no TLS"}
PROVED: Final = {"VERIFY_CA", "VERIFY_IDENTITY", "socket"}
NOTICED: Final = {way for way in WAYS if "another" in way}
OPTIONS: Final[dict[str, dict[str, Any]]] = {
    "nothing": {},
    "get_server_public_key": {"get_server_public_key": True},
    "server_public_key": {"server_public_key": "papers"},
    "allow_cleartext": {"allow_cleartext": True},
}


def way_options(
    way: str, papers: Papers, others: Papers, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[bool, dict[str, str]]:
    """Whether the stranger offers TLS, and the options of a source that connects so."""
    monkeypatch.setenv("SSL_CERT_FILE", papers.path if way == "VERIFY_CA, public" else "/nowhere")  # whom the system trusts
    given = {"papers": papers.path, "others": others.path, "socket": str(folder / "s")}
    offers_tls, options = WAYS[way]
    return offers_tls, {name: given.get(value, value) for name, value in options.items()}


def may_learn(ask: Callable[[Stranger], None], way: str, option: str) -> bool:
    """The table of docs/security.md."""
    if ask in (ask_in_clear_text, ask_by_dialog):
        return option == "allow_cleartext" and way in PROVED
    if ask is ask_behind_the_cache or way in NOTICED:
        return False
    if option == "get_server_public_key" or way in PROVED or way in ("PREFERRED", "REQUIRED", "VERIFY_CA, public"):
        return True
    return option == "server_public_key" and way in PLAIN  # it has the key, so it is the server


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "ask", [ask_sha256, ask_caching_sha2, ask_behind_the_cache, ask_behind_another, ask_in_clear_text, ask_by_dialog]
)
def test_who_answers_learns_the_password_only_where_an_option_says_so(
    papers: Papers,
    others: Papers,
    tmp_path: Path,
    ask: Callable[[Stranger], None],
    way: str,
    option: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    offers_tls, options = way_options(way, papers, others, tmp_path, monkeypatch)
    key = papers.public.decode()
    more = {name: key if value == "papers" else value for name, value in OPTIONS[option].items()}

    def act(one: Stranger) -> None:
        one.greet(tls=offers_tls)
        ask(one)

    with stood_in_for(papers, act, **options, **more) as (source, met), pytest.raises(CanalError) as caught:
        source.connect()

    assert bool(met[-1].learned) == may_learn(ask, way, option)
    by_rsa = way in PLAIN and ask in (ask_sha256, ask_caching_sha2, ask_behind_another) or (ask, way) == (ask_sha256, "socket")
    believed = option == "get_server_public_key" or way == "socket"
    assert met[-1].was_asked == (by_rsa and believed and option != "server_public_key")
    if met[-1].learned:
        assert met[-1].way_of == ("RSA" if by_rsa else "plain" if way == "socket" else "TLS")
    assert PASSWORD not in str(caught.value) + repr(source) + caplog.text
    if way in NOTICED:
        assert isinstance(caught.value, ServerError)
        assert "certificate" in caught.value.remedy
    elif ask in (ask_in_clear_text, ask_by_dialog) and not met[-1].learned:
        assert isinstance(caught.value, AuthenticationError)
        assert "allow_cleartext=True" in caught.value.remedy
    elif ask in (ask_sha256, ask_caching_sha2, ask_behind_another) and not met[-1].learned:
        assert isinstance(caught.value, AuthenticationError)
        assert "server_public_key" in caught.value.remedy
        assert "nothing proves who answers" in caught.value.message


@contextlib.contextmanager
def overheard(port: int) -> Iterator[tuple[int, bytearray]]:
    """An ear on the way to a port: the port to connect to instead, and all that goes by."""
    heard, threads = bytearray(), []

    def pass_on(one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(1 << 16):
                heard.extend(data)
                other.sendall(data)
            other.shutdown(socket.SHUT_WR)

    def listen() -> None:
        with contextlib.suppress(OSError):
            sock, _ = listener.accept()
            with sock, socket.create_connection(("127.0.0.1", port)) as beyond:
                back = threading.Thread(target=pass_on, args=(beyond, sock))
                back.start()
                pass_on(sock, beyond)
                back.join()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threads.append(threading.Thread(target=listen))
        threads[0].start()
        yield listener.getsockname()[1], heard
        threads[0].join()


@pytest.mark.parametrize("way", [way for way in WAYS if way != "socket"])
def test_an_ear_reads_the_data_where_there_is_no_tls_and_never_the_password(
    papers: Papers, others: Papers, tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And who answers is noticed where the mode says so only: else its answer to a query is believed."""
    offers_tls, options = way_options(way, papers, others, tmp_path, monkeypatch)

    def act(one: Stranger) -> None:
        one.greet(tls=offers_tls)
        one.take(one.switch("sha256_password"), b"\1")
        one.say(OK)
        while True:
            is_set = one.hear()[1:5].lower() == b"set "
            for payload in [OK] if is_set else (*columns(1), b"\3abc", EOF):
                one.say(payload)

    everything = {"get_server_public_key": True, **options}
    with stood_in_for(papers, act, **everything) as (source, met), overheard(source.port) as (port, heard):
        session = attrs.evolve(source, port=port).open_session()
        caught = contextlib.nullcontext() if way not in NOTICED else pytest.raises(ServerError, match="certificate")
        with caught, closing(session):
            assert session.rows("SELECT 'the data'", doing="ask")[0][0] == "abc"

    assert bool(met[-1].learned) == (way not in NOTICED)
    assert (b"the data" in heard) == (way in PLAIN)
    assert PASSWORD.encode() not in heard


def test_a_stranger_that_is_not_noticed_sends_changes_that_never_were() -> None:
    fake = FakeBinlog()
    fake.table("shop", "orders", "id INT").insert({"id": 666})
    with fake.serve() as server:
        source = MySQLSource(host=server.host, port=server.port, password=PASSWORD)
        with canal.Instance(InstanceConfig(destination="d", source=source, start="earliest")) as instance:
            instance.subscribe()
            rows = [entry.rows for entry in instance.get(10, timeout=60) if entry.rows]

    assert source.ssl_mode == "PREFERRED"
    assert [row.after["id"] for row in rows[0]] == [666]


def test_a_pinned_key_is_the_one_that_counts(papers: Papers) -> None:
    """A stranger with a key of its own gets what it cannot read, and is asked for no key."""
    other = rsa.generate_private_key(65537, 2048).public_key()
    pinned = other.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo).decode()
    heard: list[bytes] = []

    def act(one: Stranger) -> None:
        one.greet(tls=False)
        heard.append(one.switch("sha256_password"))

    options = {"server_public_key": pinned, "get_server_public_key": True}
    with stood_in_for(papers, act, **options) as (source, _), pytest.raises(CanalError):
        source.connect()

    assert [len(one) for one in heard] == [256]


@pytest.mark.parametrize(
    ("options", "count"), [({"ssl_mode": "DISABLED"}, 1), ({"ssl_mode": "DISABLED", "get_server_public_key": True}, 0), ({}, 0)]
)
def test_a_login_that_works_until_the_servers_restart_is_a_warning(
    papers: Papers, caplog: pytest.LogCaptureFixture, options: dict[str, Any], count: int
) -> None:
    def act(one: Stranger) -> None:
        one.greet(tls=True)
        one.switch("caching_sha2_password")
        one.say(b"\1\3")
        one.say(OK)
        while one.hear()[1:4] == b"SET":
            one.say(OK)

    with stood_in_for(papers, act, **options) as (source, _), pytest.raises(ConnectionLostError):
        source.connect()

    assert sum("after a restart" in text for text in caplog.messages) == count


@pytest.mark.parametrize("given", ["/nowhere/key.pem", "-----BEGIN PUBLIC KEY-----\nno\n-----END PUBLIC KEY-----\n"])
def test_a_pinned_key_that_is_none_is_an_error_of_the_configuration(given: str) -> None:
    with pytest.raises(ConfigError, match="cannot use server_public_key") as caught:
        MySQLSource(port=1, server_public_key=given).connect()
    assert "public_key.pem" in caught.value.remedy


def test_options_that_are_true_or_false_may_be_text(papers: Papers) -> None:
    source = MySQLSource(get_server_public_key="True", allow_cleartext="false")  # type: ignore[arg-type]
    assert (source.get_server_public_key, source.allow_cleartext) == (True, False)
    with pytest.raises(ConfigError, match="allow_cleartext must be True or False, not 'maybe'"):
        MySQLSource(allow_cleartext="maybe")  # type: ignore[arg-type]


# -- memory ------------------------------------------------------------------------------------------------------------

COLUMN: Final = b"\3def\0\0\0\1c\0\x0c\x2d\0\xff\xff\0\0\xfd\0\0\0\0\0"


def endlessly(one: Stranger, *payloads: bytes) -> None:
    """Say something again and again, some hundred at once."""
    while True:
        for payload in payloads:
            one.say(payload)


def flood_with_greeting(one: Stranger) -> None:
    one.say_without_end(b"\x0a8.4.0")


def flood_with_packets(one: Stranger) -> None:
    one.greet(tls=False)
    one.switch("mysql_native_password")
    one.say_without_end(b"\1")


def flood_with_questions(one: Stranger) -> None:
    one.greet(tls=False)
    while True:
        one.switch("mysql_native_password")


def logged_in(answer: Callable[[Stranger], None]) -> Callable[[Stranger], None]:
    """A stranger that lets everybody in, and answers any query so."""

    def act(one: Stranger) -> None:
        one.greet(tls=False)
        one.switch("mysql_native_password")
        one.say(OK)
        while True:
            if one.hear()[1:5] in (b"SET ", b"set "):
                one.say(OK)
            else:
                answer(one)

    return act


def columns(count: int) -> list[bytes]:
    return [bytes([count]), *[COLUMN] * count, EOF]


def flood_with_columns(one: Stranger) -> None:
    one.say(b"\xfe" + b"\xff" * 8)
    endlessly(one, COLUMN)


def flood_with_rows(one: Stranger) -> None:
    for payload in columns(1):
        one.say(payload)
    endlessly(one, b"\3abc")


def flood_with_nulls(one: Stranger) -> None:
    for payload in columns(200):
        one.say(payload)
    endlessly(one, b"\xfb" * 200)


def flood_with_one_value(one: Stranger) -> None:
    for payload in columns(1):
        one.say(payload)
    one.say_without_end(b"\xfe" + struct.pack("<Q", 1 << 40))


@pytest.mark.parametrize(
    "act",
    [
        flood_with_greeting,
        flood_with_packets,
        flood_with_questions,
        logged_in(flood_with_columns),
        logged_in(flood_with_rows),
        logged_in(flood_with_nulls),
        logged_in(flood_with_one_value),
    ],
    ids=["greeting", "packets", "questions", "columns", "rows", "nulls", "one value"],
)
def test_what_a_stranger_sends_is_refused_beyond_a_budget(
    papers: Papers, act: Callable[[Stranger], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_pymysql, "_ANSWER_BYTES", 4 << 20)
    with stood_in_for(papers, act) as (source, _), pytest.raises(CanalError) as caught:
        session = source.open_session()
        tracemalloc.start()
        try:
            session.rows("SELECT 1", doing="ask")
        finally:
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            session.close()

    assert peak < 12 << 20
    if act is not flood_with_questions:  # it asks for one plugin after the other
        assert isinstance(caught.value, ServerError)
        assert "MiB of memory" in caught.value.message
        assert "docs/limits.md" in caught.value.remedy


def test_of_results_without_end_one_is_taken(papers: Papers) -> None:
    act = logged_in(lambda one: endlessly(one, b"\0\0\0\x0a\0\0\0"))
    with stood_in_for(papers, act) as (source, _), pytest.raises(ConnectionLostError, match="more than one result"):
        source.open_session().rows("SELECT 1", doing="ask")


MORE: Final = b"\xfe\0\0\x0a\0"  # the end of a result behind which comes another
RESULT: Final = (*columns(1), b"\3abc")


def test_the_budgets_are_those_of_the_page() -> None:
    """Each byte of a packet counts twice: as it came, and in what is made of it."""
    assert (_pymysql._LOGIN_BYTES, _pymysql._ANSWER_BYTES) == (1 << 20, 256 << 20)
    assert 1 << 30 <= _pymysql._ROW_BYTES // 2 <= (1 << 30) + (1 << 20)
    assert MAX_INFLATED_BYTES == 256 << 20


def test_a_row_that_is_read_as_it_arrives_has_a_budget_of_its_own(papers: Papers, monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of a snapshot are."""
    monkeypatch.setattr(_pymysql, "_ROW_BYTES", 4 << 20)
    row = b"\xfd" + (1 << 20).to_bytes(3, "little") + b"x" * (1 << 20)

    def answer(one: Stranger) -> None:
        for payload in (*columns(1), *[row] * 9):
            one.say(payload)
        one.say_without_end(b"\xfe" + struct.pack("<Q", 1 << 40))

    seen = []
    with stood_in_for(papers, logged_in(answer)) as (source, _), closing(source.log_in(_pymysql.Opening())) as connection:
        tracemalloc.start()
        with pytest.raises(pymysql.err.OperationalError, match="more than 4 MiB of memory"):
            for rows in _pymysql.stream(connection, "SELECT 1", 1, 1):
                seen += [len(value) for (value,) in rows]
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()

    assert seen == [1 << 20] * 9
    assert peak < 12 << 20


def test_a_row_of_a_snapshot_beyond_its_budget_is_an_error_of_the_server(papers: Papers, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow")
    from canal.snapshot.session import SnapshotSession

    monkeypatch.setattr(_pymysql, "_ROW_BYTES", 4 << 20)
    with stood_in_for(papers, logged_in(flood_with_one_value)) as (source, _), pytest.raises(ServerError, match="4 MiB"):
        list(SnapshotSession(source).stream("SELECT 1"))


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_second_result_of_a_query_is_not_read(papers: Papers, is_streamed: bool) -> None:
    def answer(one: Stranger) -> None:
        for payload in (*RESULT, MORE, *RESULT, EOF):
            one.say(payload)

    with stood_in_for(papers, logged_in(answer)) as (source, _), closing(source.log_in(_pymysql.Opening())) as connection:
        with pytest.raises(pymysql.err.OperationalError, match="more than one result"), _pymysql.driver_errors():
            if is_streamed:
                list(_pymysql.stream(connection, "SELECT 1", 10, 10))
            else:
                connection.query("SELECT 1")
        assert not connection.open


# -- what is said of a password ----------------------------------------------------------------------------------------


def is_proof_of_native(password: str, answer: bytes) -> bool:
    once = hashlib.sha1(password.encode()).digest()
    mask = hashlib.sha1(SALT + hashlib.sha1(once).digest()).digest()
    return answer == bytes(a ^ b for a, b in zip(once, mask))


def is_proof_of_ed25519(password: str, answer: bytes) -> bool:
    """A signature of what the server sent, by the key that the password is."""
    half = bytearray(hashlib.sha512(password.encode()).digest()[:32])
    half[0], half[31] = half[0] & 248, half[31] & 127 | 64
    key = nacl.signing.VerifyKey(nacl.bindings.crypto_scalarmult_ed25519_base_noclamp(bytes(half)))
    try:
        return bool(key.verify(SALT + b"\0", answer))
    except nacl.exceptions.BadSignatureError:
        return False


def test_a_native_password_goes_as_a_proof_of_it(papers: Papers) -> None:
    """Against which a guess can be tried."""
    heard = []

    def act(one: Stranger) -> None:
        one.greet(tls=False)
        heard.append(one.switch("mysql_native_password"))
        heard.append(one.switch("client_ed25519"))

    with stood_in_for(papers, act) as (source, _), pytest.raises(CanalError):
        source.connect()

    for is_proof, answer in zip((is_proof_of_native, is_proof_of_ed25519), heard, strict=True):
        assert [is_proof(guess, answer) for guess in (PASSWORD, "guess", "")] == [True, False, False]


@pytest.mark.parametrize(
    "plugin",
    ["mysql_native_password", "sha256_password", "caching_sha2_password", "client_ed25519", "mysql_clear_password", "dialog"],
)
@pytest.mark.parametrize("more", [b"\1\4", b"\1\2", b"\1more"])
def test_who_goes_on_to_ask_gets_no_answer(papers: Papers, plugin: str, more: bytes) -> None:
    """Also where the plugin would give the password itself: once is enough."""
    heard = []

    def act(one: Stranger) -> None:
        one.greet(tls=True)
        one.switch(plugin)
        if plugin == "caching_sha2_password":
            one.say(b"\1\3")
        one.say(more)
        heard.append(one.hear())

    options = {"ssl_mode": "VERIFY_CA", "ssl_ca": papers.path, "allow_cleartext": True, "get_server_public_key": True}
    with stood_in_for(papers, act, **options) as (source, _), pytest.raises(AuthenticationError, match="requests more data than"):
        source.connect()

    assert heard == []


def by_option(port: int) -> MySQLSource:
    return MySQLSource(port=port, password=PASSWORD, get_server_public_key=True)


def by_url(port: int) -> MySQLSource:
    return MySQLSource.from_url(f"mysql://root:{PASSWORD}@127.0.0.1:{port}/?get_server_public_key=true")


def by_option_of_spark(port: int) -> MySQLSource:
    pytest.importorskip("pyarrow")
    from canal.spark.options import parse_options

    server = {"host": "127.0.0.1", "port": str(port), "user": "u", "password": PASSWORD, "table": "shop.orders"}
    source = parse_options({**server, "getServerPublicKey": "true"}).source
    assert isinstance(source, MySQLSource)
    return source


@pytest.mark.parametrize("made", [by_option, by_url, by_option_of_spark])
def test_the_option_of_a_first_look_is_there_wherever_a_source_is_named(
    papers: Papers, made: Callable[[int], MySQLSource]
) -> None:
    def act(one: Stranger) -> None:
        one.greet(tls=False)
        ask_caching_sha2(one)

    with stood_in_for(papers, act) as (source, met), pytest.raises(CanalError):
        made(source.port).connect()

    assert met[-1].learned == PASSWORD
    assert met[-1].was_asked


def spark_target(connect: dict[str, Any]) -> contextlib.AbstractContextManager[object]:
    pytest.importorskip("pyarrow")
    from canal.targets.tables import MySQLTableTarget

    return MySQLTableTarget("shop.orders", connect).begin("stream", ("id",))


def pipe_target(connect: dict[str, Any]) -> contextlib.AbstractContextManager[object]:
    return canal.targets.MySQLTarget(connect).begin("stream")


@pytest.mark.parametrize("begin", [spark_target, pipe_target])
@pytest.mark.parametrize(("ssl_ca", "learned"), [("", PASSWORD), ("papers", PASSWORD), ("others", "")])
def test_a_target_gives_its_password_by_pymysqls_rules(
    papers: Papers,
    others: Papers,
    begin: Callable[[dict[str, Any]], contextlib.AbstractContextManager[object]],
    ssl_ca: str,
    learned: str,
) -> None:
    """To whoever answers, unless ``ssl`` names an authority."""

    def act(one: Stranger) -> None:
        one.greet(tls=bool(ssl_ca))
        ask_caching_sha2(one)

    with stood_in_for(papers, act) as (source, met), pytest.raises(CanalError) as caught:
        ssl_options = {"ssl": {"ca": {"papers": papers, "others": others}[ssl_ca].path}} if ssl_ca else {}
        connect = {"host": "127.0.0.1", "port": source.port, "user": "u", "password": PASSWORD}
        with begin({**connect, **ssl_options}):
            pass

    assert met[-1].learned == learned
    assert PASSWORD not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("is_let_in", [True, False])
def test_no_log_error_or_repr_of_a_login_has_the_password(
    papers: Papers, is_let_in: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where a log is asked for everything, and the stranger says what it was told."""
    caplog.set_level("DEBUG")

    def act(one: Stranger) -> None:
        one.greet(tls=True)
        one.take(one.switch("sha256_password"), b"\1")
        one.say(OK if is_let_in else b"\xff\x15\4#28000Access denied")

    with stood_in_for(papers, act) as (source, met):
        config = InstanceConfig(destination="d", source=source)
        with pytest.raises(CanalError) as caught:
            source.connect()

    assert met[-1].learned == PASSWORD
    said = "".join(traceback.format_exception(caught.value))
    assert PASSWORD not in f"{said}{caught.value!r}{caught.value.remedy}{source!r}{source}{config!r}{caplog.text}"


# -- files -------------------------------------------------------------------------------------------------------------

FILE: Final = b"\xfb/etc/hostname"


def want_file_for_a_query(one: Stranger) -> None:
    one.say(FILE)


def want_file_for_a_login(one: Stranger) -> None:
    one.greet(tls=False)
    one.say(FILE)


def want_file_for_an_answer(one: Stranger) -> None:
    one.greet(tls=False)
    one.switch("mysql_native_password")
    one.say(FILE)


@pytest.mark.parametrize(
    "act", [logged_in(want_file_for_a_query), want_file_for_a_login, want_file_for_an_answer], ids=["query", "login", "password"]
)
def test_no_file_of_ours_is_given_to_who_asks_for_one(papers: Papers, act: Callable[[Stranger], None]) -> None:
    with stood_in_for(papers, act) as (source, _), pytest.raises(ServerError, match="LOCAL INFILE") as caught:
        source.connect()
    assert "Find out which program answers there" in caught.value.remedy


def query_again(connection: Any) -> None:
    connection.query("SELECT 1")


def stream_rows(connection: Any) -> None:
    list(_pymysql.stream(connection, "SELECT 1", 1, 1))


def register(connection: Any) -> None:
    _pymysql.command_ok(connection, COM_REGISTER_SLAVE, b"")


@pytest.mark.parametrize("ask", [query_again, stream_rows, register])
@pytest.mark.parametrize("number", [1, 3])
def test_no_file_of_ours_is_given_for_any_question(papers: Papers, ask: Callable[[Any], None], number: int) -> None:
    """However many before were answered as they should be."""
    answers = itertools.count(1)
    heard: list[bytes] = []

    def act(one: Stranger) -> None:
        one.greet(tls=False)
        one.switch("mysql_native_password")
        one.say(OK)
        while True:
            question = one.hear()
            if question[1:4].lower() == b"set":
                one.say(OK)
            elif next(answers) == number:
                one.say(FILE)
                heard.append(one.hear())
            else:
                for payload in [OK] if ask is register else (*columns(1), b"\3abc", EOF):
                    one.say(payload)

    with stood_in_for(papers, act) as (source, _), closing(source.log_in(_pymysql.Opening())) as connection:
        for _ in range(number - 1):
            ask(connection)
        with pytest.raises(pymysql.err.OperationalError, match="LOCAL INFILE"):
            ask(connection)
        assert not connection.open

    assert heard == []


def test_a_dump_that_asks_for_a_file_is_damaged() -> None:
    framer = PacketFramer()
    assert framer.feed(struct.pack("<I", len(FILE))[:3] + b"\1" + FILE) == []
    assert isinstance(framer.error, DecodeError)


# -- remedies ----------------------------------------------------------------------------------------------------------


def greet_as_ssh(one: Stranger) -> None:
    one._sock.sendall(b"SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n")


def break_tls(one: Stranger) -> None:
    """End the handshake with the alert bad_record_mac."""
    if one.offer(True):
        one._sock.sendall(b"\x15\3\3\0\2\2\x14")
        one.hear()


def ask_for_unknown_plugin(one: Stranger) -> None:
    one.greet(tls=False)
    one.switch("authentication_webauthn_client")


def ask_for_old_password(one: Stranger) -> None:
    """As servers before 5.5 do."""
    one.greet(tls=False)
    one.say(b"\xfe")


#: A row of ``MEANINGS``, what the wrong server or a wrong account does, and a part of the remedy.
REMEDIES: Final[list[tuple[str, Callable[[Stranger], None], str]]] = [
    ("no server", greet_as_ssh, "Check host and port"),
    ("answer too large", flood_with_packets, "Check host and port"),
    ("file wanted", want_file_for_a_login, "Find out which program answers there"),
    ("TLS", break_tls, "Check the TLS configuration of the server and of proxies in between"),
    ("plugin not supported", ask_for_unknown_plugin, "give the account mysql_native_password"),
    ("old password, by its packet", ask_for_old_password, "SET PASSWORD FOR 'root'@'%'"),
]


@pytest.mark.parametrize(("row", "act", "remedy"), REMEDIES, ids=[row for row, *_ in REMEDIES])
def test_login_after_the_remedy_reads_every_row(papers: Papers, row: str, act: Callable[[Stranger], None], remedy: str) -> None:
    """The stranger gives way to a server that answers as one does, with an account of mysql_native_password."""
    fake = FakeBinlog()
    table = fake.table("shop", "orders", "id INT PRIMARY KEY")
    table.insert({"id": 1})
    meaning = next(one for one in MEANINGS if one.name == row)
    with stood_in_for(papers, act) as (source, _), fake.serve() as server:
        with pytest.raises(CanalError) as caught:
            source.connect()
        assert type(caught.value) is meaning.error
        assert caught.value.remedy == meaning.remedy.replace("{user}", "root")
        assert remedy in caught.value.remedy

        right = attrs.evolve(source, port=server.port)
        with canal.Instance(InstanceConfig(destination="d", source=right, start="earliest")) as instance:
            instance.subscribe()
            table.insert({"id": 2})
            rows = [row for entry in instance.get(100, timeout=60, linger=0.1) for row in entry.rows]
    assert [row.after["id"] for row in rows if row.after] == [1, 2]
