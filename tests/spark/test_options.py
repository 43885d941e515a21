"""Options and offsets: what is accepted, what an error says, and texts that never change."""

from __future__ import annotations

import json
import pickle
import re
import subprocess
import sys
from pathlib import Path

import attrs
import pytest

from canal.errors import ConfigError, CursorError
from canal.parse.source.files import LocalBinlogSource
from canal.parse.source.mysql import MySQLSource
from canal.position import Position
from canal.spark.options import _OWN, known_options, parse_options
from canal.spark.source import CanalSource
from canal.spark.stream.offsets import INITIAL, Offset

ROOT = Path(__file__).resolve().parents[2]
SERVER = {"host": "db", "user": "u", "password": "s3cr3t", "table": "shop.orders"}


def test_options_of_the_server_pass_through_whatever_their_case() -> None:
    found = parse_options({**SERVER, "port": "3307", "SSLMODE": "required", "ssl_ca": "", "connecttimeout": "2.5"})

    assert found.source == MySQLSource(
        host="db", port=3307, user="u", password="s3cr3t", ssl_mode="REQUIRED", ssl_ca="", connect_timeout=2.5
    )
    assert (found.table, found.filter) == (("shop", "orders"), r"shop\.orders,shop\.")


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("latest", "latest"),
        ("Earliest", "earliest"),
        ("mysql-bin.000003:1234", Position(journal="mysql-bin.000003", offset=1234)),
        ("0-1-100", Position(gtid="0-1-100")),
        ("3E11FA47-71CA-11E1-9E33-C80AA9429562:1-5", Position(gtid="3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5")),
        ('{"v":2,"journal":"b.000001","offset":4}', Position(journal="b.000001", offset=4)),
    ],
)
def test_positions(text: str, position: object) -> None:
    assert parse_options({**SERVER, "startingPosition": text}).starting == position


def test_times_are_utc_unless_they_say_otherwise() -> None:
    for text in ("2026-01-02T03:04:05", "2026-01-02 04:04:05+01:00", "1767323045000"):
        assert parse_options({**SERVER, "startingTime": text}).starting == Position(timestamp=1767323045000)


def test_binlog_files() -> None:
    found = parse_options({"path": "/logs", "table": "a.b", "tableSchema": "CREATE TABLE a.b (id int)"})
    assert found.source == LocalBinlogSource("/logs", schema="CREATE TABLE a.b (id int)")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({**SERVER, "tabel": "x"}, "no option 'tabel'"),
        ({**SERVER, "tables": "x"}, "exclude each other"),
        ({"host": "db"}, "needs the option table"),
        ({"table": "a.b"}, "needs the option host"),
        ({**SERVER, "table": "orders"}, "schema.table"),
        ({**SERVER, "maxBytesPerBatch": "lots"}, "64m"),
        ({**SERVER, "maxRowsPerBatch": "0"}, "at least 1"),
        ({**SERVER, "columns": "id,ID"}, "each once"),
        ({**SERVER, "columns": "id,"}, "names of columns"),
        ({**SERVER, "schemaChange": "guess"}, "fail, keep"),
        ({**SERVER, "startingTime": "soon"}, "option startingTime is 'soon'"),
        ({**SERVER, "port": "x"}, "port must be"),
        ({**SERVER, "startingPosition": "begin"}, "none of latest, earliest, a position such as"),
        ({**SERVER, "tableSchema": "x"}, "goes with path"),
        ({"path": "/logs", "host": "db", "table": "a.b"}, "exclude each other"),
        ({"host": "db", "tables": "("}, "filter"),
    ],
)
def test_what_cannot_be_is_said_before_anything_starts(options: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        parse_options(options)
    assert "s3cr3t" not in str(caught.value)


def test_an_unknown_option_lists_the_known() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_options({**SERVER, "x": "1"})
    assert all(name in str(caught.value) for name in known_options())
    assert {"host", "sslCa", "table", "spoolDir", "startingPosition"} <= set(known_options())


def test_a_table_of_a_catalogue_is_refused_when_it_is_made() -> None:
    """CREATE TABLE gives every option twice, with properties of its own; a read of the table would give none at all."""
    twice = {**SERVER, **{f"option.{name}": text for name, text in SERVER.items()}, "provider": "canal", "owner": "root"}
    with pytest.raises(ConfigError, match="CREATE TABLE") as caught:
        parse_options(twice)
    assert "CREATE TEMPORARY VIEW" in str(caught.value)


def test_no_text_shows_the_password() -> None:
    source = CanalSource(SERVER)
    assert "s3cr3t" not in f"{source!r} {source} {parse_options(SERVER)!r}"


def test_options_pickle() -> None:
    options = parse_options(SERVER)
    assert pickle.loads(pickle.dumps(options)) == options


# -- offsets: Spark compares and keeps their text, so it may never change -------------------------------------------------


def test_the_text_of_an_offset_is_fixed() -> None:
    offset = Offset(
        Position(
            journal="b.000002",
            offset=77,
            gtid="B0E:1".replace("B0E", "0" * 8 + "-0000-0000-0000-" + "0" * 12),
            row=3,
            timestamp=5000,
            server_id=9,
            source="abc",
        ),
        2,
    )
    assert json.dumps(INITIAL) == '{"v": 1, "ph": "init"}'
    assert json.dumps(offset.to_document()) == (
        '{"v": 1, "ph": "bin", "ep": 2, "position": {"v": 2, "journal": "b.000002", "offset": 77, '
        '"gtid": "00000000-0000-0000-0000-000000000000:1", "row": 3, "timestamp": 5000, "server_id": 9, "source": "abc"}}'
    )
    assert Offset.from_document(offset.to_document()) == offset
    assert Offset.from_document(json.loads(json.dumps(INITIAL))) is None


def test_the_end_of_a_first_batch_has_with_it_where_it_began_and_is_the_same_offset() -> None:
    begin = Offset(Position(journal="b.000002", offset=77), types='[["id", "int", null, 1]]')
    end = attrs.evolve(begin, position=Position(journal="b.000002", offset=99), types_at="b.000002:77")
    document = attrs.evolve(end, since=begin).to_document()
    found = Offset.from_document(json.loads(json.dumps(document)))

    assert document == {**end.to_document(), "since": begin.to_document()}
    assert found == end
    assert {found: 1}[end] == 1
    assert found.since == begin
    assert found.to_document() == document  # reading it has left it as it is


@pytest.mark.parametrize(
    "text",
    [
        '{"v": 1, "ph": "bin", "ep": 0, "position": {"v": 2, "journal": "mysql-bin.000003", "offset": 1234}}',
        '{"v": 1, "ph": "bin", "ep": 1, "position": {"v": 2, "journal": "b.000002", "offset": 77, "gtid": "0-1-100,1-2-7", '
        '"timestamp": 5000, "server_id": 9, "source": "0-9"}}',
        '{"v": 1, "ph": "snap", "ep": 0, "done": 1, "plan": {"v": 1, "schema": "shop", "table": "orders", "position": '
        '"{\\"v\\":2,\\"journal\\":\\"b.000002\\",\\"offset\\":77,\\"source\\":\\"abc\\"}", "txn": 137438953549, '
        '"timestamp": 1700000000000000, "key": ["id", "k"], "index": "PRIMARY", '
        '"chunks": [[null, ["5", "0x6b"], 100], [["5", "0x6b"], null, 90]], "files": "", "collations": ["latin1_swedish_ci"]}}',
    ],
)
def test_an_offset_of_an_older_release_is_read_and_means_the_same(text: str) -> None:
    """As it stands in checkpoints: another text would be another offset, and without end a batch without rows."""
    offset = Offset.from_document(json.loads(text))
    assert offset is not None
    assert json.dumps(offset.to_document()) == text


@pytest.mark.parametrize(
    "value",
    [
        [],
        {},
        {"v": 2, "ph": "bin"},
        {"v": 1, "ph": "else"},
        {"v": 1, "ph": "bin", "ep": -1, "position": {"v": 2}},
        {"v": 1, "ph": "bin", "ep": True, "position": {"v": 2}},
        {"v": 1, "ph": "bin", "ep": 0, "position": None},
        {"v": 1, "ph": "bin", "ep": 0, "position": {"v": 2, "journal": 3}},
        {"v": 1, "ph": "bin", "ep": 0, "position": {"v": 2}, "since": []},
    ],
)
def test_an_offset_that_is_none_is_refused(value: object) -> None:
    with pytest.raises(CursorError):
        Offset.from_document(value)


def test_the_module_that_spark_imports_at_every_look_up_is_cheap() -> None:
    code = (
        "import pyspark.sql.datasource, sys; before = set(sys.modules); import pyspark_canal; "
        "print(sorted(set(sys.modules) - before)); source = pyspark_canal.DefaultSource(options={'path': '/x', 'table': 'a.b'}); "
        "print(type(source).__name__, source.name())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.splitlines() == ["['pyspark_canal']", "CanalSource canal"]


def test_a_spark_that_has_no_python_sources_is_told() -> None:
    code = "import sys; sys.modules['pyspark.sql.datasource'] = None; import canal.spark.source"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert "\ncanal.errors.ConfigError: the canal source needs Spark 4.0 or later, this is 4." in done.stderr


def test_every_option_is_documented() -> None:
    text = (ROOT / "docs/spark/options.md").read_text()
    named = set(re.findall(r"`(\w+)`", text)) & set(known_options())
    assert named == set(known_options())
    for name, default in re.findall(r"^\| `(\w+)` \| (\d+m?) \|", text, re.MULTILINE):
        attribute, read = _OWN[name]
        assert read(default) == getattr(parse_options(SERVER), attribute), name
