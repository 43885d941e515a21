from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pymysql
import pytest

from canal.testing.installations import Installation, ServerUnavailableError, find_installation
from canal.testing.processes import tail
from canal.testing.servers import MariaDBServer, ThrowawayServer
from tests.support.fix_servers import Line


def test_committed_rows_survive_a_crash_and_a_restart(own_server: ThrowawayServer) -> None:
    own_server.query("CREATE DATABASE d")
    own_server.query("CREATE TABLE d.t (id INT PRIMARY KEY)")
    own_server.query("INSERT INTO d.t VALUES (1)")
    port, base = own_server.port, own_server.base
    own_server.kill()
    assert own_server.pid is None
    with pytest.raises(pymysql.err.OperationalError):
        own_server.connect()
    with socket.socket() as other, pytest.raises(OSError, match="in use"):  # its port stays its own
        other.bind((own_server.host, port))
    own_server.start()
    assert own_server.query("SELECT * FROM d.t") == [(1,)]
    own_server.restart("--server-id=77")
    assert own_server.query("SELECT @@server_id") == [(77,)]
    assert own_server.port == port
    assert len(own_server.binlog_paths()) == 3
    assert all(path.read_bytes()[:4] == b"\xfebin" for path in own_server.binlog_paths())
    own_server.stop()
    assert not base.exists()


@pytest.mark.every_line
def test_the_defaults_of_the_fixtures(line: Line, server: ThrowawayServer, database: str) -> None:
    assert server.query("SELECT @@binlog_format, @@character_set_server") == [("ROW", "utf8mb4")]
    metadata = [value for _, value in server.query("SHOW VARIABLES LIKE 'binlog_row_metadata'")]
    assert metadata == ["FULL"] * line.can("full_metadata")
    assert server.query("SELECT VERSION()")[0][0].startswith(line.facts.version)
    assert server.query("SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = %s", database) == [(0,)]
    assert server.version[0].isdigit()
    assert server.version.split(".")[0] == server.query("SELECT VERSION()")[0][0].split(".")[0]


def test_the_accounts_are_not_in_the_log(server: ThrowawayServer) -> None:
    program = server.program("mariadb-binlog" if server.kind == "mariadb" else "mysqlbinlog")
    text = subprocess.run([*program, str(server.binlog_paths()[0])], capture_output=True, text=True, check=True).stdout
    assert f"CREATE USER '{server.user}'" not in text


def test_a_paused_server_is_silent(own_server: ThrowawayServer) -> None:
    own_server.pause()
    with pytest.raises(pymysql.err.OperationalError):
        own_server.connect(connect_timeout=1, read_timeout=1)
    own_server.resume()
    assert own_server.query("SELECT 1") == [(1,)]


def test_a_server_ends_with_the_process_that_started_it(mariadb_server: ThrowawayServer) -> None:
    script = "import os, time\nfrom canal.testing.servers import MariaDBServer\n"
    script += "s = MariaDBServer().start()\nprint(s.pid, s.base, flush=True)\ntime.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pid, base = process.stdout.readline().split()
        process.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 60
    while (Path(f"/proc/{pid}").exists() or Path(base).exists()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(base).exists()
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid), 0)


def test_a_bad_option_is_reported_with_the_servers_words(mariadb_server: ThrowawayServer) -> None:
    with pytest.raises(ServerUnavailableError, match="no-such-option"):
        MariaDBServer("--no-such-option").start()


def test_of_logs_the_last_lines_are_told(tmp_path: Path) -> None:
    out, log = tmp_path / "out.log", tmp_path / "err.log"
    out.write_text("no memory\n")
    assert tail(out, log) == "no memory"
    log.write_text("".join(f"line {number}\n\n" for number in range(100)))
    assert tail(out, log).splitlines() == [f"line {number}" for number in range(80, 100)]


def test_a_tree_that_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CANAL_MYSQL", str(tmp_path))
    with pytest.raises(ServerUnavailableError, match="not a tree"):
        find_installation("mysql")
    with pytest.raises(ServerUnavailableError, match="is not in"):
        Installation("mysql", tmp_path).program("mysqld")


def test_too_long_a_base(mariadb_server: ThrowawayServer, tmp_path: Path) -> None:
    with pytest.raises(ServerUnavailableError, match="too long"):
        MariaDBServer(base=tmp_path / ("x" * 90)).start()
