"""Throwaway ZooKeeper servers for tests: one, or an ensemble of three, on loopback, in about a second.

Never touches a server it did not start. The jars are looked for in the tree that ``CANAL_ZOOKEEPER`` names, in
``.servers/zookeeper`` of the checkout, and where Debian installs them. A server dies with the process that started it.

    with ZooKeeperEnsemble() as ensemble:
        config = canal.ZooKeeper(hosts=ensemble.hosts, session_timeout=1.0)
        ensemble.leader().kill()
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Final, Self

import attrs

from canal.testing.installations import ServerUnavailableError, tree_candidates
from canal.testing.processes import ServerProcess, reserve_port, scratch, tail

__all__ = ["ZooKeeperEnsemble", "ZooKeeperServer"]

TICK: Final = 0.1
"""Seconds; a session lasts 2 ticks at least and expires a tick late at most."""

_SETTINGS: Final = """\
tickTime={tick}
initLimit=100
syncLimit=600
minSessionTimeout={shortest}
maxSessionTimeout=60000
dataDir={base}/data
clientPort={port}
clientPortAddress=127.0.0.1
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=*
"""
_LOGGING: Final = """\
log4j.rootLogger=INFO,A
log4j.appender.A=org.apache.log4j.FileAppender
log4j.appender.A.File={base}/err.log
log4j.appender.A.layout=org.apache.log4j.PatternLayout
log4j.appender.A.layout.ConversionPattern=%d %p %c{{1}} %m%n
"""
#: Small and quick to start; nothing is synced, and log files are not made 64 MB long beforehand.
_JAVA: Final = (
    "-Xms32m",
    "-Xmx128m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
    "-XX:-UsePerfData",
    "-Djava.net.preferIPv4Stack=true",
    "-Dzookeeper.forceSync=no",
    "-Dzookeeper.preAllocSize=256",
    "-Dzookeeper.jmx.log4j.disable=true",
)
_JARS: Final = ("zookeeper.jar", "slf4j-log4j12.jar", "log4j-1.2.jar")  # the first one's manifest names the rest


@attrs.frozen
class _Programs:
    java: str
    class_path: str

    def version(self) -> str:
        out = subprocess.run(
            [self.java, "-cp", self.class_path, "org.apache.zookeeper.version.VersionInfoMain"],
            capture_output=True,
            text=True,
            timeout=60,
        )
        if out.returncode != 0:
            raise ServerUnavailableError(f"ZooKeeper does not run: {out.stderr.strip()[-500:]}")
        return out.stdout.splitlines()[0].strip()


def find_programs() -> _Programs:
    """Java, and ZooKeeper's jars.

    Raises:
        ServerUnavailableError: they are nowhere to be found.
    """
    named = os.environ.get("CANAL_ZOOKEEPER")
    trees = [Path(named)] if named else [*tree_candidates("zookeeper"), Path("/")]
    for tree in trees:
        folder = tree / "usr/share/java"
        if not (folder / "zookeeper.jar").exists():
            continue
        own = sorted(tree.glob("usr/lib/jvm/java-17-*/bin/java"))
        java = str(own[0]) if own else shutil.which("java")
        if java is not None:
            system = tree == Path("/")
            return _Programs(java, ":".join(str(folder / jar) for jar in _JARS) if system else f"{folder}/*")
    raise ServerUnavailableError(
        "no ZooKeeper on this machine", remedy="Run tests/servers/setup.sh zookeeper, or name a tree in CANAL_ZOOKEEPER"
    )


class ZooKeeperServer(ServerProcess):
    """A ZooKeeper of its own on a free port of loopback, with its data in memory where there is room.

    Args:
        settings: lines of its configuration (``"jute.maxbuffer=4096"`` is none: such are Java's properties).
        port: 0 takes a free one, which a restart keeps: until ``stop`` nobody else is given it.
        number: 1 and up makes it a member of the ensemble that ``settings`` describe.
    """

    kind: ClassVar = "ZooKeeper"

    def __init__(self, *settings: str, port: int = 0, number: int = 0, startup_timeout: float = 60.0) -> None:
        super().__init__()
        self.settings = settings
        self.port = port
        self.number = number
        self.startup_timeout = startup_timeout

    @property
    def hosts(self) -> str:
        """What a client connects to."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    # -- life

    def start(self) -> Self:
        """Start, or start again with the data that is there, and wait until it serves."""
        self.launch()
        try:
            self.wait_serving()
        except BaseException:
            self.stop()
            raise
        return self

    def launch(self) -> None:
        """Start without waiting: a member serves only when a majority of them runs."""
        if self._process is not None:
            return
        programs = find_programs()
        if self._port is None:
            try:
                self._port = reserve_port(self.port)
            except OSError as error:  # else another server there might be taken for ours
                raise ServerUnavailableError(f"ZooKeeper cannot have port {self.port}: {error.strerror}") from error
            self.port = self._port.getsockname()[1]
        if self._base is None:
            self._base = Path(tempfile.mkdtemp(prefix="canal-zookeeper-", dir=scratch()))
            (self._base / "data").mkdir()
            if self.number:
                (self._base / "data/myid").write_text(f"{self.number}\n")
        base = self._base
        text = _SETTINGS.format(tick=int(TICK * 1000), shortest=int(TICK * 2000), base=base, port=self.port)
        (base / "zoo.cfg").write_text(text + "\n".join(self.settings) + "\n")
        (base / "log4j.properties").write_text(_LOGGING.format(base=base))
        command = [
            programs.java,
            *_JAVA,
            f"-Dlog4j.configuration=file:{base}/log4j.properties",
            "-cp",
            f"{base}:{programs.class_path}",
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            str(base / "zoo.cfg"),
        ]
        self._run(command)

    def wait_serving(self) -> None:
        deadline = time.monotonic() + self.startup_timeout
        while not self.mode():
            if self._process is None or self._process.poll() is not None:
                raise ServerUnavailableError(f"ZooKeeper ended at its start: {self._logs()}")
            if time.monotonic() > deadline:
                raise ServerUnavailableError(f"ZooKeeper gave no answer in {self.startup_timeout} s: {self._logs()}")
            time.sleep(0.03)

    def restart(self) -> Self:
        self.kill()
        return self.start()

    def _logs(self) -> str:
        base = self._base or Path()
        return tail(base / "out.log", base / "err.log")

    # -- use

    def ask(self, word: str, timeout: float = 1.0) -> str:
        """Answer to one of ZooKeeper's four-letter words; "" when it gives none."""
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout) as connection:
            connection.settimeout(timeout)
            connection.sendall(word.encode())
            with connection.makefile("rb") as answer:
                return answer.read().decode(errors="replace")
        return ""

    def mode(self) -> str:
        """ "standalone", "leader" or "follower"; "" while it does not serve."""
        for line in self.ask("srvr", 5.0).splitlines():  # on a busy machine even that may take more than a second
            if line.startswith("Mode: "):
                return line.removeprefix("Mode: ").strip()
        return ""


class ZooKeeperEnsemble:
    """Members that elect a leader; any majority of them serves. ``members`` may be killed, paused and started again.

    Who follows a leader that is paused, not killed, gives it up after a minute only: a machine that stalls loses none.
    Each member's port is known once it has been started.
    """

    def __init__(self, size: int = 3) -> None:
        self._held = [reserve_port(0) for _ in range(2 * size)]  # for the members among themselves
        ports = [held.getsockname()[1] for held in self._held]
        lines = [
            f"server.{n + 1}=127.0.0.1:{quorum}:{election}"
            for n, (quorum, election) in enumerate(zip(ports[::2], ports[1::2], strict=True))
        ]
        self.members = [ZooKeeperServer(*lines, number=n + 1) for n in range(size)]

    @property
    def hosts(self) -> str:
        """What a client connects to."""
        return ",".join(member.hosts for member in self.members)

    def start(self) -> Self:
        try:
            for member in self.members:
                member.launch()
            for member in self.members:
                member.wait_serving()
        except BaseException:
            self.stop()
            raise
        return self

    def leader(self, timeout: float = 60.0) -> ZooKeeperServer:
        """The member that leads, waiting for an election if need be."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            for member in self.members:
                if member.pid is not None and member.mode() == "leader":
                    return member
            time.sleep(0.03)
        raise ServerUnavailableError(f"no leader in {timeout} s")

    def stop(self) -> None:
        for member in self.members:
            member.stop()
        for held in self._held:
            held.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()
