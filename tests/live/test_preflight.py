"""``canal check``: what it finds of real servers, and that the statements that it names mend it."""

from __future__ import annotations

import re

import pytest

from canal.cli.main import main
from canal.testing.servers import ThrowawayServer


def check(server: ThrowawayServer, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, tuple[str, str]]]:
    """The exit status, and level and text of each finding."""
    status = main(["check", f"mysql://look:secret@127.0.0.1:{server.port}/"])
    lines = capsys.readouterr().out.splitlines()
    found = {what: (level, text) for level, what, text in (re.fullmatch(r"(\w+) +(\w+): (.*)", line).groups() for line in lines)}  # type: ignore[union-attr]
    return status, found


def test_what_is_amiss_is_told_with_what_mends_it(own_server: ThrowawayServer, capsys: pytest.CaptureFixture[str]) -> None:
    own_server.query("CREATE USER look@'%' IDENTIFIED BY 'secret'")
    status, found = check(own_server, capsys)
    assert status == 1
    assert found["privileges"][0] == "error"

    own_server.query("GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO look@'%'")
    status, found = check(own_server, capsys)
    assert (status, found["privileges"][0]) == (0, "warning")

    own_server.query("GRANT SELECT, REFERENCES ON *.* TO look@'%'")
    if own_server.kind == "mysql":
        assert found["snapshot"][0] == "warning"
        own_server.query(f"{re.search(r'GRANT LOCK TABLES ON .* TO', found['snapshot'][1])[0]} look@'%'")  # type: ignore[index]
        assert check(own_server, capsys)[1]["snapshot"][0] == "ok"
    else:
        assert "snapshot" not in found
    own_server.query("CREATE DATABASE fk")
    own_server.query("CREATE TABLE fk.a (id INT PRIMARY KEY)")
    own_server.query("CREATE TABLE fk.b (id INT PRIMARY KEY, a INT, FOREIGN KEY (a) REFERENCES fk.a (id) ON DELETE CASCADE)")
    status, found = check(own_server, capsys)
    assert (status, found["privileges"][0], found["binlog_format"]) == (0, "ok", ("ok", "ROW"))
    is_logged = own_server.kind == "mysql"  # 9.6 and later carry cascades out where they are logged
    assert found["cascades"][0] == ("ok" if is_logged else "warning")

    own_server.query("SET GLOBAL binlog_format = STATEMENT")
    own_server.query("SET GLOBAL binlog_row_image = MINIMAL")
    status, found = check(own_server, capsys)
    assert status == 1
    assert found["binlog_format"] == ("error", "is STATEMENT: the log has no row events. SET GLOBAL binlog_format=ROW;")
    assert found["binlog_row_image"][0] == "warning"
    for name in ("binlog_format", "binlog_row_image"):
        own_server.query(re.search(r"SET GLOBAL .*;", found[name][1])[0])  # type: ignore[index]
    assert check(own_server, capsys)[0] == 0


def test_a_server_that_does_not_answer_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "mysql://look:secret@127.0.0.1:1/"]) == 1
    assert "secret" not in capsys.readouterr().err
