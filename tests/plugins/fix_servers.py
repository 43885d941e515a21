"""Real servers for tests: one MariaDB and one MySQL for the whole session, started when first asked for; and others.

A test that asks for one of the fixtures is marked ``mariadb``, ``mysql`` or ``zookeeper``. ``CANAL_TEST_SERVERS=skip``
skips them; otherwise a missing server is a failure.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from typing import Any

import pytest

from canal import _build
from canal.testing.servers import (
    MariaDBServer,
    MySQLServer,
    ServerUnavailableError,
    ThrowawayServer,
    find_installation,
)
from canal.testing.zookeeper import ZooKeeperEnsemble, ZooKeeperServer, find_programs

KINDS = {"mariadb": MariaDBServer, "mysql": MySQLServer}
#: Releases that the oracle test runs against: the usual one of each kind, and others of MariaDB.
RELEASES = {"mysql": "", "mariadb": "", "mariadb-10.5": "10.5", "mariadb-11.8": "11.8"}
OPTIONS = ("--binlog-row-metadata=FULL",)  # row format and utf8mb4 are the class's own defaults
_names = itertools.count(1)


def _skipping() -> bool:
    return os.environ.get("CANAL_TEST_SERVERS") == "skip"


def _serve(kind: str, release: str = "") -> Iterator[ThrowawayServer]:
    if _skipping():
        pytest.skip(f"NO {kind.upper()} {release}: CANAL_TEST_SERVERS=skip")
    try:
        server = KINDS[kind](*OPTIONS, release=release).start()
    except ServerUnavailableError as error:
        pytest.fail(f"{error} (CANAL_TEST_SERVERS=skip leaves these tests out)", pytrace=False)
    with server:
        yield server


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[ThrowawayServer]:
    """A MariaDB that all tests share: do not restart it or change its global settings."""
    yield from _serve("mariadb")


@pytest.fixture(scope="session")
def mysql_server() -> Iterator[ThrowawayServer]:
    """A MySQL that all tests share: do not restart it or change its global settings."""
    yield from _serve("mysql")


@pytest.fixture(params=list(KINDS))
def server(request: pytest.FixtureRequest) -> ThrowawayServer:
    """Each of the shared servers in turn."""
    shared: ThrowawayServer = request.getfixturevalue(f"{request.param}_server")
    return shared


@pytest.fixture(params=list(KINDS))
def own_server(request: pytest.FixtureRequest) -> Iterator[ThrowawayServer]:
    """A server of each kind for this test alone, which may kill and restart it."""
    yield from _serve(request.param)


@pytest.fixture(scope="module", params=list(RELEASES))
def release_server(request: pytest.FixtureRequest) -> Iterator[ThrowawayServer]:
    """A server of each supported release for one module alone, which may change its global settings."""
    yield from _serve(request.param.partition("-")[0], RELEASES[request.param])


def _serve_zookeeper(kind: type[ZooKeeperServer] | type[ZooKeeperEnsemble]) -> Iterator[Any]:
    if _skipping():
        pytest.skip("NO ZOOKEEPER: CANAL_TEST_SERVERS=skip")
    try:
        server = kind().start()
    except ServerUnavailableError as error:
        pytest.fail(f"{error} (CANAL_TEST_SERVERS=skip leaves these tests out)", pytrace=False)
    with server:
        yield server


@pytest.fixture(scope="session")
def zookeeper_server() -> Iterator[ZooKeeperServer]:
    """A ZooKeeper that all tests share: do not restart it, and use a root of your own (``zookeeper_root``)."""
    yield from _serve_zookeeper(ZooKeeperServer)


@pytest.fixture
def zookeeper_root() -> str:
    """A path that no other test uses."""
    return f"/t{os.getpid()}/n{next(_names)}"


@pytest.fixture
def own_zookeeper() -> Iterator[ZooKeeperServer]:
    """A ZooKeeper for this test alone, which may kill and restart it."""
    yield from _serve_zookeeper(ZooKeeperServer)


@pytest.fixture
def own_ensemble() -> Iterator[ZooKeeperEnsemble]:
    """Three members for this test alone, which may kill and restart them."""
    yield from _serve_zookeeper(ZooKeeperEnsemble)


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
        servers = chosen.keys() if "live" in item.path.parts else chosen.keys() & {"server", "own_server", "release_server"}
        given = {str(chosen[name]).partition("-")[0] for name in servers}
        if {"zookeeper_server", "own_zookeeper", "own_ensemble"} & set(names) or "zookeeper" in chosen.values():
            item.add_marker(pytest.mark.zookeeper)
        for kind in KINDS:
            if f"{kind}_server" in names or kind in given:
                item.add_marker(getattr(pytest.mark, kind))


def pytest_report_header() -> list[str]:
    lines = [f"canal: {'compiled' if _build.compiled else 'interpreted'}"]
    stale = _build.stale_modules()
    if _build.compiled and stale:
        lines.append(f"STALE BUILD, run 'make build': {', '.join(stale)}")
    if _skipping():
        return [*lines, "SERVER TESTS ARE SKIPPED: CANAL_TEST_SERVERS=skip"]
    for name, release in RELEASES.items():
        try:
            lines.append(f"{name}: {find_installation(name.partition('-')[0], release).version()}")
        except ServerUnavailableError as error:
            lines.append(f"{name}: {error}")
    try:
        lines.append(f"zookeeper: {find_programs().version()}")
    except ServerUnavailableError as error:
        lines.append(f"zookeeper: {error}")
    return lines
