"""The command line: what it prints of files and servers, and how it ends."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import subprocess
import sys
import time
import unicodedata
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import pytest

import canal
from canal.cli.main import main
from canal.cli.tail import _start
from canal.ha import overview
from canal.testing.fake import FakeBinlog
from tests.support.documents import ROOT


def shop() -> FakeBinlog:
    fake = FakeBinlog(clock=lambda: 1_700_000_000)
    orders = fake.table("shop", "orders", "id INT UNSIGNED PRIMARY KEY, note VARCHAR(40), raw VARBINARY(8)")
    other = fake.table("shop", "other", "id INT")
    orders.insert({"id": 1, "note": "it's [bold]é", "raw": b"\1\2"})
    fake.rotate()
    orders.update({"id": 1, "note": "a", "raw": None}, {"note": None})
    other.insert({"id": 7})
    fake.ddl("ALTER TABLE orders ADD x INT", schema="shop")
    orders.delete({"id": 1, "note": None, "raw": None})
    return fake


def test_a_directory_is_printed_as_people_read_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shop().write(tmp_path)

    assert main(["tail", str(tmp_path), "--filter", r"shop\.orders"]) == 0
    lines = capsys.readouterr().out.splitlines()

    assert lines[0].startswith("INSERT shop.orders  2023-11-14 22:13:20Z  binlog.000001:")
    assert lines[1] == '  + id=1  note="it\'s [bold]é"  raw=0x0102'
    assert lines[3] == '  ~ id=1  note: "a" → NULL  raw=NULL'
    assert lines[5] == "  ALTER TABLE orders ADD x INT"
    assert lines[7] == "  - id=1  note=NULL  raw=NULL"
    assert len(lines) == 8


@pytest.mark.parametrize("name", ["canal-json", "debezium-json", "maxwell-json"])
def test_a_format_has_a_line_for_each_row(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shop().write(tmp_path)

    assert main(["tail", str(tmp_path), "--format", name, "--filter", r"shop\.orders"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    kinds = [line.get("op") or line.get("type") for line in found]
    assert (
        kinds
        == {
            "canal-json": ["INSERT", "UPDATE", "ALTER", "DELETE"],
            "debezium-json": ["c", "u", "d"],
            "maxwell-json": ["insert", "update", "delete"],
        }[name]
    )


def test_json_lines_are_canals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (path, *_) = shop().write(tmp_path)

    assert main(["tail", str(path), "--json"]) == 0
    (message,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    assert (message["database"], message["table"], message["type"]) == ("shop", "orders", "INSERT")
    assert message["data"][0]["id"] == "1"


def test_limit_ends_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shop().write(tmp_path)

    assert main(["tail", str(tmp_path), "--json", "--limit", "2"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_the_database_of_a_url_is_its_filter(capsys: pytest.CaptureFixture[str]) -> None:
    fake = FakeBinlog()
    for schema in ("shopping", "my.shop", "shop"):
        fake.table(schema, "orders", "id INT").insert({"id": 1})
    with fake.serve(user="u", password="p") as server:
        url = f"mysql://u:p@{server.host}:{server.port}/my.shop?ssl_mode=DISABLED"
        assert main(["tail", url, "--json", "--start", "earliest", "--limit", "1"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["database"] == "my.shop"


@pytest.mark.parametrize(("terminal", "hint"), [(True, "; pip install 'canal-cdc[cli]' adds colour"), (False, "")])
def test_the_first_line_says_where_it_stands_and_that_it_waits(
    terminal: bool, hint: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On stderr, before any change comes."""
    monkeypatch.setitem(sys.modules, "rich.console", None)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    fake = FakeBinlog()
    fake.table("shop", "orders", "id INT").insert({"id": 1})
    with fake.serve(user="u", password="p") as server:
        url = f"mysql://u:p@{server.host}:{server.port}/shop?ssl_mode=DISABLED"
        assert main(["tail", url, "--since", "2001-01-01", "--limit", "1"]) == 0
        where = f"{server.host}:{server.port}"
    first = rf"canal: connected to {where}, from {fake.journal}:\d+, shop\\\.\.\*: waiting for changes{re.escape(hint)}"
    assert re.fullmatch(first + r" \(Ctrl-C ends it\)\n", capsys.readouterr().err)


def test_it_runs_in_any_thread(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shop().write(tmp_path)
    with ThreadPoolExecutor(1) as other:
        assert other.submit(main, ["tail", str(tmp_path), "--json"]).result(60) == 0
    assert capsys.readouterr().out


def test_a_schema_names_the_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fake = FakeBinlog(metadata="MINIMAL")
    fake.table("shop", "orders", "id INT PRIMARY KEY, note VARCHAR(40)").insert({"id": 1, "note": "a"})
    fake.write(tmp_path)
    schema = tmp_path / "tables.sql"
    schema.write_text("CREATE TABLE shop.orders (id INT PRIMARY KEY, note VARCHAR(40));")

    assert main(["tail", str(tmp_path), "--schema", str(schema)]) == 0
    assert '  + id=1  note="a"' in capsys.readouterr().out.splitlines()


def test_a_time_without_a_zone_is_in_this_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "JST-9")  # without the files of the zones
    time.tzset()
    try:
        assert _start("2026-11-21T10:00:00") == _start("2026-11-21T10:00:00+09:00")
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("15m", 900), ("1h", 3600), ("2d", 172_800)])
def test_an_age_is_counted_from_now(text: str, seconds: int) -> None:
    began = time.time()
    start = _start(text)
    assert isinstance(start, canal.Position)
    assert began - 1 <= start.timestamp / 1000 + seconds <= time.time() + 1


def test_the_version_tells_the_build_too(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        main(["--version"])

    assert exit.value.code == 0
    build = "compiled" if canal.compiled else "interpreted"
    assert capsys.readouterr().out == f"canal {canal.__version__} ({build})\n"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["no-such-file"], "no-such-file"),
        (["."], "binlog"),
        (["mysql://"], "names no server"),
        (["mysql://u:p@127.0.0.1:1/", "--start", "soon"], "neither latest"),
        (["mysql://u:p@127.0.0.1:1/", "--since", "1w"], "--since"),
        (["mysql://u:p@127.0.0.1:1/", "--since", "999999999999d"], "neither latest"),
        (["mysql://u:p@127.0.0.1:1/?colour=red"], "colour"),
        (["mysql://u:p@127.0.0.1:99999/"], "port"),
        (["mysql://u:p@127.0.0.1/?ssl_mode=maybe"], "ssl_mode"),
        (["mysql://u:p@127.0.0.1:1/"], "cannot connect to 127.0.0.1:1"),
        (["mysql://u:p@127.0.0.1:1/", "--schema", "tables.sql"], "--schema is for binlog files"),
        ([".", "--schema", "no-such.sql"], "no-such.sql"),
        ([".", "--start", "0001-01-01"], "neither latest"),
        ([".", "--limit", "-1"], "--limit"),
    ],
)
def test_mistakes_are_one_line(arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tail", *arguments]) == 1
    error = capsys.readouterr().err

    assert error.startswith("canal: ")
    assert text in error
    assert "Traceback" not in error


@pytest.mark.parametrize(
    "url",
    [
        "mysql://u:geheim/1@127.0.0.1:1/",
        "mysql://u:geheim?1@127.0.0.1:1/",
        "mysql://u:geheim#1@127.0.0.1:1/",
        "mysql://u:geheim@127.0.0.1:port/",
        "mysql://u:geheim@[127.0.0.1/",
        "mysql://u:geheim@h\u2100/",
        "mysql://u:geheim@127.0.0.1:1/?colour=red",
        "mysql://u@127.0.0.1:1/?password=geheim",
        "mysql://u:geheim@127.0.0.1:1/",
        "mysql://u:geheim@/",
        "mysql:/u:geheim@127.0.0.1/",
        "MySQL://u:geheim@127.0.0.1:1/",
        "postgres://u:geheim@127.0.0.1/",
    ],
)
def test_the_password_of_a_url_is_never_shown(url: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for arguments in ([url], [str(tmp_path), "--schema", url], [url, "--verbose"]):
        assert main(["tail", *arguments]) == 1
        out, error = capfd.readouterr()
        assert "geheim" not in out + error
        assert "canal: " in error


#: Clears the screen, sets the title, and writes from right to left; C1 does so too.
NASTY = "\x1b[2J\x1b]0;x\x07\x9b2J\x9d\u202eabc\u2066\x7f\u2028\r\n\x00"
SHOWN = r"\x1b[2J\x1b]0;x\x07\x9b2J\x9d\u202eabc\u2066\x7f\u2028\r\n\x00"


@pytest.mark.parametrize("arguments", [[], ["--json"]], ids=["people", "json"])
@pytest.mark.parametrize("colour", [False, True])
def test_what_a_terminal_would_obey_is_shown_instead(
    arguments: list[str], colour: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In names, values and statements."""
    if not colour:
        monkeypatch.setitem(sys.modules, "rich.console", None)
    fake = FakeBinlog()
    nasty = NASTY.replace("\x00", "")
    table = fake.table(f"s{nasty}", f"t{nasty}", "id INT PRIMARY KEY, note VARCHAR(99), n JSON")
    table.insert({"id": 1, "note": NASTY, "n": json.dumps({"a": NASTY})})
    fake.ddl(f"CREATE TABLE x (id INT) COMMENT '{NASTY}'\n-- INSERT forged.row", schema="shop")
    fake.write(tmp_path)

    assert main(["tail", str(tmp_path), *arguments]) == 0
    out = capsys.readouterr().out

    assert [one for one in out if one != "\n" and unicodedata.category(one) in ("Cc", "Cf", "Zl", "Zp", "Cs")] == []
    if arguments:
        (rows, statement) = [json.loads(line) for line in out.splitlines()]
        assert (rows["database"], rows["table"]) == (f"s{nasty}", f"t{nasty}")
        assert rows["data"][0]["note"] == NASTY
        assert NASTY in statement["sql"]
    else:
        assert out.count(SHOWN[:40]) >= 3
        assert "\nINSERT forged" not in out


def test_what_a_server_says_of_itself_is_shown_too(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(source: canal.MySQLSource) -> None:
        raise canal.errors.ServerError(f"it says {NASTY}")

    monkeypatch.setattr(canal.MySQLSource, "connect", refuse)
    assert main(["tail", "mysql://u:p@127.0.0.1:1/"]) == 1

    assert capsys.readouterr().err == f"canal: it says {SHOWN}\n"


def test_what_is_logged_is_shown_too_and_forges_no_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A traceback keeps its lines."""

    def tell(source: canal.MySQLSource) -> None:
        try:
            raise ValueError(f"it says {NASTY}")
        except ValueError:
            logging.getLogger("canal").warning("it says %s\nERROR forged", NASTY, exc_info=True)
        raise canal.errors.ServerError("enough")

    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    monkeypatch.setattr(canal.MySQLSource, "connect", tell)
    assert main(["tail", "mysql://u:p@127.0.0.1:1/"]) == 1

    first, second, *lines = capsys.readouterr().err.split("\n")
    assert first == rf"WARNING it says {SHOWN}\nERROR forged"
    assert second == "Traceback (most recent call last):"
    assert [one for line in lines for one in line if unicodedata.category(one) in ("Cc", "Cf", "Zl", "Zp", "Cs")] == []


@pytest.mark.parametrize("arguments", [[], ["--json"]], ids=["people", "json"])
def test_what_others_have_written_into_zookeeper_is_shown_too(
    arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = overview.ClientOverview(1001, NASTY, canal.Position(journal=f"b{NASTY}", offset=4), 1.0)
    found = overview.DestinationOverview(NASTY, NASTY, True, 1.0, 7, (NASTY, f"other{NASTY}"), (client,))
    monkeypatch.setattr("canal.cli.ha.zookeeper", lambda options: nullcontext())
    monkeypatch.setattr(overview, "destinations", lambda session: [NASTY])
    monkeypatch.setattr(overview, "look_at", lambda session, name: found)

    assert main(["ha", "status", "zk:1", *arguments]) == 0
    out = capsys.readouterr().out

    assert [one for one in out if one != "\n" and unicodedata.category(one) in ("Cc", "Cf", "Zl", "Zp", "Cs")] == []
    if arguments:
        assert json.loads(out)[0]["destination"] == NASTY
    else:
        assert out.count(SHOWN) == 5


def test_a_server_is_followed_until_ctrl_c() -> None:
    fake = shop()
    with fake.serve(user="u", password="p") as server:
        url = f"mysql://u:p@{server.host}:{server.port}/?ssl_mode=DISABLED"
        child = subprocess.Popen(
            [sys.executable, "-m", "canal", "tail", url, "--json", "--start", "earliest"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
        )
        assert child.stdout is not None
        try:
            first = json.loads(child.stdout.readline())
            time.sleep(0.2)
            child.send_signal(signal.SIGINT)
            out, err = child.communicate(timeout=60)
        finally:
            child.kill()

    assert first["type"] == "INSERT"
    assert child.returncode == 0
    assert "Traceback" not in err
