"""Throwaway MariaDB and MySQL servers for tests: started on loopback in a fraction of a second, gone afterwards.

Never touches a server it did not start. The binaries are looked for in the tree that ``CANAL_MARIADB`` or
``CANAL_MYSQL`` names, in ``.servers`` of the checkout, and in ``PATH``; those of a certain release in
``.servers/mariadb-10.5`` and the like. Any MySQL from 5.5 and MariaDB from 10.1 on will do. A server dies with the process
that started it, even by SIGKILL.

    with MariaDBServer("--binlog-row-metadata=FULL") as server:
        connection = server.connect()
"""

from __future__ import annotations

import contextlib
import getpass
import hashlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, ClassVar, Final, Self

import pymysql

from canal.testing.installations import Installation, ServerUnavailableError, find_installation
from canal.testing.processes import ServerProcess, reserve_port, scratch, tail

__all__ = ["Installation", "MariaDBServer", "MySQLServer", "ServerUnavailableError", "ThrowawayServer"]

#: A unix socket path holds 107 bytes; the base directory must leave room for the name.
_LONGEST_BASE: Final = 90

_ACCOUNT: Final = """\
SET SESSION sql_log_bin=0;
CREATE USER IF NOT EXISTS '{user}'@'%' IDENTIFIED BY '{password}';
GRANT ALL PRIVILEGES ON *.* TO '{user}'@'%' WITH GRANT OPTION;
"""
#: Before 5.7.6 only a GRANT makes a user that may be there; and who comes from this machine is the user without a name.
_OLD_ACCOUNT: Final = """\
SET SESSION sql_log_bin=0;
GRANT ALL PRIVILEGES ON *.* TO '{user}'@'%' IDENTIFIED BY '{password}' WITH GRANT OPTION;
DELETE FROM mysql.user WHERE User='';
FLUSH PRIVILEGES;
"""


def _cache() -> Path:
    named = os.environ.get("CANAL_SERVER_CACHE")
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(named) if named else home / "canal-servers"


class ThrowawayServer(ServerProcess):
    """A database server of its own, on a free port of loopback, with its data in memory where there is room.

    Options are the server's own (``"--binlog-row-image=MINIMAL"``). ``user`` has all rights and logs in over TCP;
    ``root`` has no password and only the unix socket. The binlog starts empty. Not thread-safe but for :meth:`connect`.

    Args:
        options: command line options, after and so above the defaults.
        base: an empty or new directory for data, socket and logs; kept afterwards. Without it a temporary one, removed.
        port: 0 takes a free one, which a restart keeps: until ``stop`` nobody else is given it.
        startup_timeout: seconds to wait for the server to answer.
        release: ``"10.5"`` takes the programs of that release, from ``.servers/mariadb-10.5`` or where the system has just that.
    """

    kind: ClassVar[str]

    def __init__(
        self,
        *options: str,
        base: str | os.PathLike[str] | None = None,
        port: int = 0,
        server_id: int = 1,
        user: str = "cdc",
        password: str = "cdc",
        startup_timeout: float = 60.0,
        installation: Installation | None = None,
        release: str = "",
    ) -> None:
        super().__init__(Path(base).absolute() if base is not None else None)
        self.host: Final = "127.0.0.1"
        self.port = port
        self.server_id = server_id
        self.user: Final = user
        self.password: Final = password
        self.options = options
        self.startup_timeout = startup_timeout
        self.installation: Final = installation or find_installation(self.kind, release)
        self._version = ""

    # -- what it is

    @property
    def data_dir(self) -> Path:
        return self.base / "data"

    @property
    def binlog_dir(self) -> Path:
        """The directory of the binlog files and their index, ``binlog.index``."""
        return self.data_dir

    def binlog_paths(self) -> list[Path]:
        """The binlog files of now, in order."""
        index = (self.binlog_dir / "binlog.index").read_text().split()
        return [self.binlog_dir / Path(line).name for line in index]

    @property
    def socket_path(self) -> Path:
        return self.base / "s.sock"

    @property
    def version(self) -> str:
        """What the running server says it is, such as ``9.7.4-2``."""
        return self._version

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def error_log(self) -> str:
        """The end of the server's error log."""
        return tail(self.base / "err.log", lines=200)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._version} port {self.port} {'running' if self.pid else 'stopped'}>"

    # -- life

    def start(self) -> Self:
        """Start the server and return when it answers; its data is made first where there is none.

        Raises:
            ServerUnavailableError: it did not come up; the message carries the end of its error log.
        """
        if self.pid is not None:
            return self
        if self._base is None:
            self._base = Path(tempfile.mkdtemp(prefix=f"canal-{self.kind}-", dir=scratch()))
        if len(str(self._base)) > _LONGEST_BASE:
            raise ServerUnavailableError(f"{self._base} is too long for a unix socket path ({_LONGEST_BASE} bytes)")
        self._base.mkdir(parents=True, exist_ok=True)
        try:
            if not (self.data_dir / "mysql").is_dir():
                self._copy_template()
            if self._port is None:
                self._port = self._take_port()
            self._launch(self._port.getsockname()[1])
        except BaseException:
            self.stop()
            raise
        return self

    def _take_port(self) -> socket.socket:
        try:
            return reserve_port(self.port)
        except OSError as error:
            raise ServerUnavailableError(f"{self.kind} cannot have port {self.port}: {error.strerror}") from error

    def _launch(self, port: int) -> None:
        # A SIGKILL leaves these; a stale pid in the socket's lock would stop MySQL.
        for name in ("pid", "s.sock", "s.sock.lock", "err.log"):
            (self.base / name).unlink(missing_ok=True)
        init = self.base / "init.sql"
        init.write_text((_ACCOUNT if self._makes_users() else _OLD_ACCOUNT).format(user=self.user, password=self.password))
        command = [
            *self.installation.server(),
            *self._common_options(self.base),
            *self._server_options(),
            f"--socket={self.socket_path}",
            f"--pid-file={self.base / 'pid'}",
            f"--log-error={self.base / 'err.log'}",
            f"--tmpdir={self.base}",
            f"--init-file={init}",
            f"--server-id={self.server_id}",
            f"--port={port}",
            "--bind-address=127.0.0.1",
            f"--log-bin={self.data_dir / 'binlog'}",
            f"--relay-log={self.data_dir / 'relay'}",
            "--binlog-format=ROW",
            "--sync-binlog=0",
            "--character-set-server=utf8mb4",
            "--max-connections=200",
            *self.options,
        ]
        self._run(command)
        assert self._process is not None
        # Once MySQL has accepted a password over its socket, it needs neither TLS nor an RSA key over TCP.
        address: dict[str, Any] = {"unix_socket": str(self.socket_path)} if self.kind == "mysql" else {"port": port}
        deadline = time.monotonic() + self.startup_timeout
        while True:
            if self._process.poll() is not None:
                self._reap()
                raise ServerUnavailableError(f"{self.kind} ended at its start: {self._logs()}")
            with contextlib.suppress(pymysql.err.OperationalError, pymysql.err.InternalError, OSError):
                # Only the server we started has this socket; the TCP port is its own once it has bound both.
                with socket.socket(socket.AF_UNIX) as probe:  # PyMySQL does not close one that cannot connect
                    probe.connect(str(self.socket_path))
                with self.connect(**address, connect_timeout=5) as connection, connection.cursor() as cursor:
                    cursor.execute("SELECT @@datadir, VERSION()")
                    row = cursor.fetchone()
                if row and Path(row[0]).resolve() == self.data_dir.resolve():
                    self.port, self._version = port, row[1]
                    return
            if time.monotonic() > deadline:
                self.kill()
                raise ServerUnavailableError(f"{self.kind} gave no answer in {self.startup_timeout} s: {self._logs()}")
            time.sleep(0.02)

    def _logs(self) -> str:
        return tail(self.base / "out.log", self.base / "err.log")

    def restart(self, *options: str) -> Self:
        """Stop and start again on the same port and data; options given here replace the former ones."""
        self.shutdown()
        if options:
            self.options = options
        return self.start()

    # -- use

    def connect(self, **options: Any) -> pymysql.connections.Connection[Any]:
        """Open a PyMySQL connection as ``user``; autocommit, utf8mb4 and no TLS unless ``options`` say otherwise."""
        arguments: dict[str, Any] = {
            "host": self.host,
            "port": self.port,
            "user": self.user,
            "password": self.password,
            "autocommit": True,
            "charset": "utf8mb4",
            "connect_timeout": 10,
            "ssl_disabled": True,  # else PyMySQL loads the system's certificates each time: 40 ms of CPU
        }
        return pymysql.connect(**arguments | options)

    def query(self, sql: str, *arguments: Any) -> list[tuple[Any, ...]]:
        """Run one statement on a connection of its own and give its rows."""
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(sql, arguments or None)
            return list(cursor.fetchall())

    def replicate(self, source: ThrowawayServer, *, gtid: bool = True) -> None:
        """Follow ``source`` from the start of its log, or go on following it where this server stands.

        Both servers need ids of their own (``server_id``). Without ``gtid`` always from the start of the oldest log.
        """
        self.stop_replication()
        settings = {
            "HOST": source.host,
            "PORT": source.port,
            "USER": source.user,
            "PASSWORD": source.password,
            "CONNECT_RETRY": 1,
        }
        if gtid:
            settings |= self._at_gtid()
        else:
            settings |= {"LOG_FILE": source.query("SHOW BINARY LOGS")[0][0], "LOG_POS": 4}
        before, after, role = self._replication_words()
        words = ", ".join(f"{before}_{name} = {value!r}" for name, value in settings.items())
        self.query(f"CHANGE {after} TO {words}{self._login_settings()}".replace("'slave_pos'", "slave_pos"))
        self.query(f"START {role}")

    def stop_replication(self) -> None:
        """Follow nobody any more; what was received and not yet applied is lost."""
        self.query(f"STOP {self._replication_words()[2]}")

    def _replication_words(self) -> tuple[str, str, str]:
        """What begins the names of settings, what is changed, and what is started and stopped."""
        return "MASTER", "MASTER", "SLAVE"

    def _at_gtid(self) -> dict[str, object]:
        """The setting that begins behind the GTIDs that this server has."""
        raise NotImplementedError

    def _login_settings(self) -> str:
        """What a replica needs to log in to a server that may have no TLS."""
        return ""

    def program(self, name: str) -> list[str]:
        """Give the start of a command line for a program that came with this server (``mariadb-binlog``)."""
        return self.installation.program(name)

    # -- data

    def _copy_template(self) -> None:
        template = self._template()
        # Logical copies only: the servers' sparse files stay sparse with cp.
        subprocess.run(["cp", "-a", "--sparse=always", f"{template}/.", str(self.data_dir)], check=True)

    def _template(self) -> Path:
        """A data directory made once per server version and kept in the cache."""
        identity = "\n".join([self.installation.version(), *self._init_options(), getpass.getuser()])
        name = f"{self.kind}-{hashlib.sha256(identity.encode()).hexdigest()[:16]}"
        template = _cache() / "templates" / name
        if template.is_dir():
            return template
        template.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f"canal-{self.kind}-", dir=scratch()))
        try:
            self._initialize(work)
            for own in ("auto.cnf", "aria_log_control.lock"):
                (work / "data" / own).unlink(missing_ok=True)
            fresh = Path(tempfile.mkdtemp(prefix=".new-", dir=template.parent))
            subprocess.run(["cp", "-a", "--sparse=always", f"{work}/data/.", str(fresh)], check=True)
            try:
                fresh.rename(template)
            except OSError:  # another process was quicker
                shutil.rmtree(fresh, ignore_errors=True)
        finally:
            shutil.rmtree(work, ignore_errors=True)
        return template

    def _makes_users(self) -> bool:
        """Whether the server has CREATE USER IF NOT EXISTS."""
        return True

    def _run_initialize(self, command: list[str], work: Path, sql: bytes = b"") -> None:
        out = subprocess.run(command, input=sql, capture_output=True, timeout=300, cwd=work)
        if out.returncode != 0:
            log = out.stderr.decode(errors="replace")[-2000:] + tail(work / "err.log")
            raise ServerUnavailableError(f"{self.kind} could not make its data directory: {log}")

    def _common_options(self, base: Path) -> list[str]:
        raise NotImplementedError

    def _server_options(self) -> list[str]:
        raise NotImplementedError

    def _init_options(self) -> list[str]:
        raise NotImplementedError

    def _initialize(self, work: Path) -> None:
        raise NotImplementedError


#: 0 would lose rows at a SIGKILL that the binlog already has.
_INNODB: Final = [
    "--innodb-flush-log-at-trx-commit=2",
    "--innodb-flush-method=nosync",
    "--innodb-doublewrite=0",
    "--innodb-use-native-aio=0",  # a machine has room for some twenty servers with it
    "--innodb-buffer-pool-size=64M",
    "--performance-schema=OFF",
    "--skip-name-resolve",
]


def _certificate() -> list[str]:
    """Options with a certificate of nobody's, made once and kept in the cache; none where there is no ``openssl``."""
    folder = _cache() / "certificate"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix=".new-", dir=folder.parent))
        command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "36500", "-subj", "/CN=canal.testing"]
        try:
            subprocess.run([*command, "-keyout", fresh / "key.pem", "-out", fresh / "cert.pem"], check=True, capture_output=True)
            fresh.rename(folder)
        except (OSError, subprocess.CalledProcessError):  # no openssl, or another process was quicker
            shutil.rmtree(fresh, ignore_errors=True)
    return [f"--ssl-key={folder / 'key.pem'}", f"--ssl-cert={folder / 'cert.pem'}"] if folder.is_dir() else []


class MariaDBServer(ThrowawayServer):
    """A throwaway MariaDB with GTIDs and a row-format binlog."""

    kind = "mariadb"

    def _share(self) -> Path:
        for name in ("share/mariadb", "share/mysql", "share"):
            share = self.installation.usr / name
            if (share / "mariadb_system_tables.sql").exists() or (share / "mysql_system_tables.sql").exists():
                return share
        raise ServerUnavailableError(f"no system tables of MariaDB in {self.installation.usr / 'share'}")

    def _common_options(self, base: Path) -> list[str]:
        options = ["--no-defaults", f"--user={getpass.getuser()}", f"--datadir={base / 'data'}", *self._init_options()]
        if self.installation.tree is not None:
            usr, share = self.installation.usr, self._share()
            options += [f"--basedir={usr}", f"--lc-messages-dir={share}", f"--character-sets-dir={share / 'charsets'}"]
            if not self.installation.is_archive:
                options += [f"--plugin-dir={usr / 'lib/mysql/plugin'}"]
        return options

    def _init_options(self) -> list[str]:
        return [*_INNODB, "--innodb-log-file-size=16M", "--key-buffer-size=1M", "--aria-pagecache-buffer-size=8M"]

    def _server_options(self) -> list[str]:
        options = ["--log-slave-updates=ON", "--gtid-domain-id=0", "--gtid-strict-mode=ON", "--log-bin-index=binlog.index"]
        if self.installation.release >= (11, 4):  # makes one at each start, which can take it seconds
            options += _certificate()
        return options

    def _initialize(self, work: Path) -> None:
        # What mariadb-install-db does, in one go and without the help tables.
        share = self._share()
        (work / "data").mkdir()
        script = b"CREATE DATABASE IF NOT EXISTS mysql;\nUSE mysql;\nSET @auth_root_socket=NULL;\n"
        parts = "system_tables performance_tables system_tables_data maria_add_gis_sp_bootstrap sys_schema"
        for part in parts.split():
            for name in (f"mariadb_{part}.sql", f"mysql_{part}.sql", f"{part}.sql"):
                if (share / name).exists():
                    script += (share / name).read_bytes() + b"\n"
                    break
        command = [*self.installation.server(), *self._common_options(work), "--bootstrap"]
        command += ["--enforce-storage-engine=", f"--log-error={work / 'err.log'}"]
        self._run_initialize(command, work, script)

    def _at_gtid(self) -> dict[str, object]:
        return {"USE_GTID": "slave_pos"}

    def _login_settings(self) -> str:
        return ", MASTER_SSL = 0"  # since 11.3 it asks for TLS by itself


class MySQLServer(ThrowawayServer):
    """A throwaway MySQL with a row-format binlog, and GTIDs since 5.6; certificates for TLS are its own since 8.0."""

    kind = "mysql"

    def _is_since(self, *release: int) -> bool:
        return self.installation.release >= release

    def _common_options(self, base: Path) -> list[str]:
        usr = self.installation.usr
        options = ["--no-defaults", f"--user={getpass.getuser()}", f"--datadir={base / 'data'}", *self._init_options()]
        options += [f"--secure-file-priv={base}"]
        if self.installation.tree is not None:
            share = usr / "share" if self.installation.is_archive else usr / "share/mysql"
            options += [f"--basedir={usr}", f"--lc-messages-dir={share}", f"--character-sets-dir={share / 'charsets'}"]
            if not self.installation.is_archive:
                options += [f"--plugin-dir={usr / 'lib/mysql/plugin'}"]
        return options

    def _init_options(self) -> list[str]:
        # MySQL 8.0 takes this one only where the data directory was made with it.
        names = [option for option in self.options if option.startswith("--lower-case-table-names")]
        return [*_INNODB, *names, *["--innodb-redo-log-capacity=64M"] * self._is_since(8, 0, 30)]

    def _server_options(self) -> list[str]:
        options = ["--log-bin-index=binlog.index", "--log-slave-updates=ON"]
        if self._is_since(5, 6, 5):
            options += ["--gtid-mode=ON", "--enforce-gtid-consistency=ON"]
        if self._is_since(8, 0, 26):
            options.remove("--log-slave-updates=ON")  # its default, and deprecated
        if self._is_since(8, 0):
            options += ["--mysqlx=OFF"]
        return options

    def _makes_users(self) -> bool:
        return self._is_since(5, 7, 6)

    def _initialize(self, work: Path) -> None:
        if not self._is_since(5, 7, 6):  # its package has a data directory
            shutil.copytree(self.installation.usr / "template", work / "data")
            return
        command = [*self.installation.server(), *self._common_options(work), "--initialize-insecure"]
        command += ["--skip-log-bin", f"--log-error={work / 'err.log'}"]
        self._run_initialize(command, work)

    def _replication_words(self) -> tuple[str, str, str]:
        return ("SOURCE", "REPLICATION SOURCE", "REPLICA") if self._is_since(8, 0, 23) else super()._replication_words()

    def _at_gtid(self) -> dict[str, object]:
        return {"AUTO_POSITION": 1}

    def _login_settings(self) -> str:
        if self._is_since(8, 0, 23):
            return ", GET_SOURCE_PUBLIC_KEY = 1"
        return ", GET_MASTER_PUBLIC_KEY = 1" if self._is_since(8, 0, 4) else ""
