"""Real servers for tests, of the lines in tests/support/lines.py: shared ones, started when first asked for, and others.

A test that asks for one of the fixtures is marked ``mariadb``, ``mysql``, ``zookeeper`` or ``target_server``. Its marks say on
which lines it runs:

* ``lines("mysql>=5.6", "mariadb")``: for which it holds; without the mark for all;
* ``needs("gtid", "full_metadata")``: abilities that a line must have;
* ``every_line``: it runs on all of those in `make test-all`, and not on the two main lines only; ``every_line(always=True)``:
  in `make test` too;
* ``daily_on("mysql")``: in `make test` it runs on these only.

``CANAL_TEST_LINES`` (``all``, or names of lines) takes others instead of the main ones, ``CANAL_TEST_SETUP`` starts servers with
the options of one set-up. ``CANAL_TEST_SERVERS=skip`` leaves all these tests out; otherwise a missing server of a main line is a
failure, one of another line in CI only.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import itertools
import os
import tempfile
from collections.abc import Iterator
from typing import Any

import attrs
import pytest

from canal._util import build
from canal.testing.servers import MariaDBServer, MySQLServer, ServerUnavailableError, ThrowawayServer, find_installation
from canal.testing.zookeeper import ZooKeeperEnsemble, ZooKeeperServer, find_programs
from tests.support import lines
from tests.support.lines import BY_NAME, LINES, MAIN
from tests.support.target_servers import (
    FerretDBServer,
    KafkaServer,
    OpenSearchServer,
    PostgreSQLServer,
    RabbitMQServer,
    RedisCluster,
    RedisServer,
    RocketMQServer,
)

KINDS = {"mariadb": MariaDBServer, "mysql": MySQLServer}
SETUP = os.environ.get("CANAL_TEST_SETUP") or "default"
_TARGET_SERVERS = {
    "redis_server",
    "redis_cluster",
    "postgresql_server",
    "opensearch_server",
    "ferretdb_server",
    "kafka_server",
    "rabbitmq_server",
    "rocketmq_server",
}
_names = itertools.count(1)


@functools.cache
def _keys() -> str:
    """A file with a key for logs, which is there as long as the process."""
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    path = os.path.join(folder.name, "keys")
    with open(path, "w") as file:
        file.write("1;" + "ab" * 32 + "\n")
    return path


@attrs.frozen
class Line:
    """A line of the table that a test runs on."""

    facts: lines.Line

    @property
    def name(self) -> str:
        return self.facts.name

    @property
    def kind(self) -> str:
        return self.facts.kind

    @property
    def is_main(self) -> bool:
        return self.name in MAIN

    def can(self, ability: str) -> bool:
        return self.facts.can(ability)

    def server(self, *options: str, **arguments: Any) -> ThrowawayServer:
        """A server of this line that is not started; options are added to those that all tests start it with."""
        try:
            arguments.setdefault("startup_timeout", 120.0)
            own = [option.replace(lines.KEYS, _keys()) for option in self.facts.options]
            server = KINDS[self.kind](*own, *options, release=self.facts.release, **arguments)
        except ServerUnavailableError as error:
            _unavailable(self.name, error)
        return server


@attrs.frozen
class Pairing:
    """How two servers of a line replicate: by GTID, or by journal and offset."""

    line: Line
    gtid: bool

    @property
    def name(self) -> str:
        return self.line.name + ("" if self.gtid else "-without-gtids")

    @property
    def kind(self) -> str:
        return self.line.kind

    def server(self, *options: str, named: bool = True, **arguments: Any) -> ThrowawayServer:
        """A server that is not started; not ``named``: its log does not name the columns."""
        if not self.gtid and self.line.can("gtid"):
            options = ("--gtid-mode=OFF", "--enforce-gtid-consistency=OFF", *options)
        if not named and self.line.can("full_metadata"):
            options = ("--binlog-row-metadata=MINIMAL", *options)
        return self.line.server(*options, **arguments)

    @contextlib.contextmanager
    def pair(self, *, named: bool = True) -> Iterator[tuple[ThrowawayServer, ThrowawayServer]]:
        """A source and its replica, running."""
        with contextlib.ExitStack() as servers:
            first, second = (servers.enter_context(self.server(named=named, server_id=number)) for number in (1, 2))
            second.replicate(first, gtid=self.gtid)
            yield first, second


def _pairings(item: Any) -> list[Pairing]:
    """For each line of a test the ways there are, where it does not say that it needs GTIDs; MariaDB always has them.

    For a line that is neither a main one nor named, the first of its ways.
    """
    found = []
    for line in lines_of(item):
        ways = [True] * line.can("gtid") + [False] * (line.kind == "mysql" and "gtid" not in _words(item, "needs"))
        named = line.name in MAIN or os.environ.get("CANAL_TEST_LINES")
        found += [Pairing(Line(line), gtid) for gtid in (ways if named else ways[:1])]
    return found


def _skipping() -> bool:
    return os.environ.get("CANAL_TEST_SERVERS") == "skip"


def _unavailable(name: str, error: ServerUnavailableError) -> None:
    if _skipping():
        pytest.skip(f"NO {name.upper()}: CANAL_TEST_SERVERS=skip")
    if name in BY_NAME and name not in MAIN and not os.environ.get("CI"):
        pytest.skip(f"NO {name.upper()}: {error}")
    pytest.fail(f"{error} (CANAL_TEST_SERVERS=skip leaves these tests out)", pytrace=False)


def _start(server: ThrowawayServer, name: str) -> ThrowawayServer:
    try:
        return server.start()
    except ServerUnavailableError as error:
        _unavailable(name, error)
        raise


# -- which lines a test runs on ----------------------------------------------------------------------------------------


def _chosen(every: bool) -> list[lines.Line]:
    wanted = os.environ.get("CANAL_TEST_LINES", "")
    names = wanted.split() if wanted not in ("", "all") else [line.name for line in LINES]
    if not wanted and not every:
        names = list(MAIN)
    return [BY_NAME[name]._replace(setup=SETUP) for name in names if BY_NAME[name].takes(SETUP)]


def lines_of(item: Any) -> list[lines.Line]:
    """The lines that a test function, by its marks, runs on."""
    chosen = _chosen(every=item.get_closest_marker("every_line") is not None)
    return [line for line in chosen if line.fits(_words(item, "lines")) and all(map(line.can, _words(item, "needs")))]


def _words(item: Any, mark: str) -> list[str]:
    return [word for one in item.iter_markers(mark) for word in one.args]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    for fixture, scope in (("line", "function"), ("module_line", "module"), ("pairing", "function")):
        if fixture in metafunc.fixturenames:
            test = metafunc.definition
            found: list[Any] = _pairings(test) if fixture == "pairing" else list(map(Line, lines_of(test)))
            cases = [pytest.param(one, id=one.name, marks=_tier(test, one)) for one in found]
            metafunc.parametrize(fixture, cases, indirect=True, scope=scope)  # type: ignore[arg-type]


def _tier(test: Any, chosen: Line | Pairing) -> list[pytest.MarkDecorator]:
    """Return the mark of a test on a line where it does not simply run in `make test`."""
    line = chosen.line if isinstance(chosen, Pairing) else chosen
    if line.is_main:
        return [] if line.facts.fits(_words(test, "daily_on")) else [pytest.mark.nightly]
    is_always = any(mark.kwargs.get("always") for mark in test.iter_markers("every_line"))
    return [pytest.mark.older if is_always else pytest.mark.nightly]


# -- the servers -------------------------------------------------------------------------------------------------------


class SharedServers:
    """One server a line for the whole session, each started when a test first asks for it."""

    def __init__(self) -> None:
        self._running: dict[str, ThrowawayServer] = {}
        self._end = contextlib.ExitStack()

    def of(self, line: Line) -> ThrowawayServer:
        if line.name not in self._running:
            if _skipping():
                pytest.skip(f"NO {line.name.upper()}: CANAL_TEST_SERVERS=skip")
            server = _start(line.server(), line.name)
            self._end.callback(server.stop)
            self._running[line.name] = server
        return self._running[line.name]

    def stop(self) -> None:
        self._end.close()


@pytest.fixture(scope="session")
def shared_servers() -> Iterator[SharedServers]:
    servers = SharedServers()
    yield servers
    servers.stop()


@pytest.fixture
def line(request: pytest.FixtureRequest) -> Line:
    """The line that the test runs on."""
    found: Line = request.param
    return found


@pytest.fixture(scope="module")
def module_line(request: pytest.FixtureRequest) -> Line:
    """The line that the tests of a module run on, one after the other."""
    found: Line = request.param
    return found


@pytest.fixture
def pairing(request: pytest.FixtureRequest) -> Pairing:
    """How two servers of the line replicate, by GTID and by file in turn."""
    if _skipping():
        pytest.skip(f"NO {request.param.line.name.upper()}: CANAL_TEST_SERVERS=skip")
    found: Pairing = request.param
    return found


@pytest.fixture
def server(shared_servers: SharedServers, line: Line) -> ThrowawayServer:
    """A server of each line that all tests share: do not restart it or change its global settings."""
    return shared_servers.of(line)


@pytest.fixture(scope="session")
def mariadb_server(shared_servers: SharedServers) -> ThrowawayServer:
    """The shared MariaDB of the main line."""
    return shared_servers.of(Line(BY_NAME["mariadb-10.11"]))


@pytest.fixture(scope="session")
def mysql_server(shared_servers: SharedServers) -> ThrowawayServer:
    """The shared MySQL of the main line."""
    return shared_servers.of(Line(BY_NAME["mysql-9.7"]))


def _own(line: Line) -> Iterator[ThrowawayServer]:
    if _skipping():
        pytest.skip(f"NO {line.name.upper()}: CANAL_TEST_SERVERS=skip")
    with _start(line.server(), line.name) as server:
        yield server


@pytest.fixture
def own_server(line: Line) -> Iterator[ThrowawayServer]:
    """A server of each line for this test alone, which may kill and restart it."""
    yield from _own(line)


@pytest.fixture(scope="module")
def module_server(module_line: Line) -> Iterator[ThrowawayServer]:
    """A server of each line for one module alone, which may change its global settings."""
    yield from _own(module_line)


def _serve(kind: type[ZooKeeperServer | ZooKeeperEnsemble | PostgreSQLServer | RedisServer]) -> Iterator[Any]:
    if _skipping():
        pytest.skip(f"NO {kind.__name__.upper()}: CANAL_TEST_SERVERS=skip")
    try:
        server = kind().start()
    except ServerUnavailableError as error:
        pytest.fail(f"{error} (CANAL_TEST_SERVERS=skip leaves these tests out)", pytrace=False)
    with server:
        yield server


@pytest.fixture(scope="session")
def zookeeper_server() -> Iterator[ZooKeeperServer]:
    """A ZooKeeper that all tests share: do not restart it, and use a root of your own (``zookeeper_root``)."""
    yield from _serve(ZooKeeperServer)


@pytest.fixture
def zookeeper_root() -> str:
    """A path that no other test uses."""
    return f"/t{os.getpid()}/n{next(_names)}"


@pytest.fixture
def own_zookeeper() -> Iterator[ZooKeeperServer]:
    """A ZooKeeper for this test alone, which may kill and restart it."""
    yield from _serve(ZooKeeperServer)


@pytest.fixture
def own_ensemble() -> Iterator[ZooKeeperEnsemble]:
    """Three members for this test alone, which may kill and restart them."""
    yield from _serve(ZooKeeperEnsemble)


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """A Redis that all tests share: use keys of your own."""
    yield from _serve(RedisServer)


@pytest.fixture(scope="session")
def redis_cluster() -> Iterator[RedisCluster]:
    """A cluster of Redis that all tests share: use keys of your own."""
    yield from _serve(RedisCluster)


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[PostgreSQLServer]:
    """A PostgreSQL that all tests share: use a schema of your own."""
    yield from _serve(PostgreSQLServer)


@pytest.fixture(scope="session")
def rabbitmq_server() -> Iterator[RabbitMQServer]:
    """A RabbitMQ that all tests share: use queues of your own."""
    yield from _serve(RabbitMQServer)


@pytest.fixture(scope="session")
def rocketmq_server() -> Iterator[RocketMQServer]:
    """A RocketMQ that all tests share: use topics of your own."""
    yield from _serve(RocketMQServer)


@pytest.fixture(scope="session")
def kafka_server() -> Iterator[KafkaServer]:
    """A Kafka that all tests share: use topics and streams of your own."""
    yield from _serve(KafkaServer)


@pytest.fixture(scope="session")
def opensearch_server() -> Iterator[OpenSearchServer]:
    """An OpenSearch that all tests share: use tables and streams of your own."""
    yield from _serve(OpenSearchServer)


@pytest.fixture(scope="session")
def ferretdb_server() -> Iterator[FerretDBServer]:
    """A FerretDB that all tests share: use databases and streams of your own."""
    yield from _serve(FerretDBServer)


@pytest.fixture
def database(server: ThrowawayServer) -> Iterator[str]:
    """The name of a fresh, empty schema on ``server``."""
    name = f"t_{os.getpid()}_{next(_names)}"
    server.query(f"CREATE DATABASE `{name}` CHARACTER SET utf8mb4")
    yield name
    if server.pid is not None:
        server.query(f"DROP DATABASE IF EXISTS `{name}`")


@pytest.hookimpl(tryfirst=True)  # before -m selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        names = getattr(item, "fixturenames", ())
        chosen = getattr(getattr(item, "callspec", None), "params", {})
        servers = chosen.keys() if "live" in item.path.parts else chosen.keys() & {"line", "module_line", "pairing"}
        given = {getattr(chosen[name], "name", str(chosen[name])).partition("-")[0] for name in servers}
        if {"zookeeper_server", "own_zookeeper", "own_ensemble"} & set(names) or "zookeeper" in chosen.values():
            item.add_marker(pytest.mark.zookeeper)
        if _TARGET_SERVERS & set(names):
            item.add_marker(pytest.mark.target_server)
        for kind in KINDS:
            if f"{kind}_server" in names or kind in given:
                item.add_marker(getattr(pytest.mark, kind))


def pytest_report_header() -> list[str]:
    found = [f"canal: {'compiled' if build.compiled else 'interpreted'}"]
    stale = build.stale_modules()
    if build.compiled and stale:
        found.append(f"STALE BUILD, run 'make build': {', '.join(stale)}")
    if _skipping():
        return [*found, "SERVER TESTS ARE SKIPPED: CANAL_TEST_SERVERS=skip"]
    for line in LINES:
        try:
            found.append(f"{line.name}: {find_installation(line.kind, line.release).version()}")
        except ServerUnavailableError as error:
            found.append(f"{line.name}: {error}")
    try:
        found.append(f"zookeeper: {find_programs().version()}")
    except ServerUnavailableError as error:
        found.append(f"zookeeper: {error}")
    for server in (RedisServer, PostgreSQLServer):
        try:
            found.append(f"{server.kind}: {server.version()}")
        except ServerUnavailableError as error:
            found.append(f"{server.kind}: {error}")
    return found
