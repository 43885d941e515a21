"""What type checkers make of a user's program: a right one passes, and each wrong option is found before it runs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import get_type_hints

import attrs
import pytest

import canal
from canal.parse.options import ParserKeywords

ROOT = Path(__file__).resolve().parents[1]
RIGHT = """
import canal

with canal.connect("mysql://canal@db/shop", tables=["orders"], meta="cursors", password="...", json="objects") as connected:
    for change in connected.changes():
        print(change.table, change.op, change.before, change.after, change.key)
minimal = canal.InstanceConfig(destination="example", source=canal.MySQLSource(host="db"))
source = canal.MySQLSource(
    host="db", port=3307, user="canal", password="...", ssl_mode="VERIFY_CA", ssl_ca="ca.pem", tls_min_version="TLSv1.2",
    connect_timeout=3, server_id=7,
)
parser = canal.parse.BinlogParser(
    source, start="earliest", tables=canal.filter.TableFilter("shop"), history=canal.FileHistory("cursors"), standby=None,
    masks=None,
)
parser = canal.parse.BinlogParser(canal.parse.ParserOptions(source=source, on_lost="earliest"), backoff=(1, 60))
config = canal.InstanceConfig(
    destination="example", source=source, filter="shop", on_lost="earliest", json="objects", meta=canal.FileMeta("cursors"),
    standby=canal.MySQLSource.from_url("mysql://db2/"), start=canal.Position(timestamp=1_700_000_000_000),
)
with canal.Instance(config) as instance:
    instance.subscribe()
    for message in instance.stream():
        for entry in message.entries:
            for row in entry.rows:
                print(entry.header.table, entry.event_type.name, row.before, row.after, row.key)
"""
WRONG = """
import canal

source = canal.MySQLSource()
canal.connect("mysql://db/shop", tables=3)  # wrong
canal.connect("mysql://db/shop", meta=3)  # wrong
canal.connect("mysql://db/shop", start=3)  # wrong
canal.MySQLSource(user=None)  # wrong
canal.MySQLSource(port="3306")  # wrong
canal.MySQLSource(ssl_mode="maybe")  # wrong
canal.MySQLSource(tls_min_version="1.2")  # wrong
canal.MySQLSource(connect_timeout="1")  # wrong
canal.MySQLSource(read_timeout="1")  # wrong
canal.MySQLSource(server_id="1")  # wrong
canal.MySQLSource(require_row_format="yes")  # wrong
canal.InstanceConfig(destination="e", source=source, on_lost="ignore")  # wrong
canal.InstanceConfig(destination="e", source=source, json="dict")  # wrong
canal.InstanceConfig(destination="e", source=source, on_slow="drop")  # wrong
canal.InstanceConfig(destination="e", source=source, start_timeout="1")  # wrong
canal.InstanceConfig(destination="e", source=source, meta="/var/lib")  # wrong
canal.InstanceConfig(destination="e", source="mysql://db/")  # wrong
canal.parse.BinlogParser(source, strat="earliest")  # wrong
canal.parse.BinlogParser(source, start=5)  # wrong
canal.parse.BinlogParser(source, tables="shop")  # wrong
canal.parse.BinlogParser(source, on_lost="ignore")  # wrong
canal.parse.BinlogParser(canal.parse.ParserOptions(source=source), backoff=1)  # wrong
canal.parse.ParserOptions(source=source, strat="earliest")  # wrong
canal.Heartbeat(interval="1")  # wrong
canal.ZooKeeper(hosts=["zk1:2181"])  # wrong
canal.ZooKeeper(hosts="zk1:2181", session_timeout="1")  # wrong
"""


#: What a page shows first of all.
_SHOWN = re.compile(r"```python\n(import canal\n.*?)```", re.DOTALL)
PROGRAMS = {"right.py": RIGHT, "wrong.py": WRONG} | {
    f"right_{path.stem}_{number}.py": code
    for path in (ROOT / "README.md", ROOT / "docs/index.md")
    for number, code in enumerate(_SHOWN.findall(path.read_text("utf-8")))
}


def mypy(folder: Path) -> list[str]:
    options = ("strict = true", "follow_imports = silent", f"mypy_path = {ROOT}", f"cache_dir = {folder}/cache")
    (folder / "mypy.ini").write_text("\n".join(["[mypy]", *options]))
    return [sys.executable, "-m", "mypy", *PROGRAMS]


def pyright(folder: Path) -> list[str]:
    text = {"include": [*PROGRAMS], "extraPaths": [str(ROOT)], "typeCheckingMode": "standard"}
    (folder / "pyrightconfig.json").write_text(json.dumps(text))
    return [sys.executable, "-m", "pyright", "--pythonpath", sys.executable]


@pytest.mark.parametrize("checker", [mypy, pytest.param(pyright, marks=pytest.mark.nightly)])
def test_wrong_types_are_found_and_right_ones_pass(checker: Callable[[Path], list[str]], tmp_path: Path) -> None:
    wrong = {("wrong.py", n) for n, line in enumerate(WRONG.splitlines(), 1) if line.endswith("# wrong")}
    for name, text in PROGRAMS.items():
        (tmp_path / name).write_text(text)
    done = subprocess.run(checker(tmp_path), cwd=tmp_path, capture_output=True, text=True)

    assert len(PROGRAMS) > 4
    found = {(name, int(line)) for name, line in re.findall(r"\b((?:right|wrong)\w*\.py):(\d+)[^\n]* error: ", done.stdout)}
    assert found == wrong, done.stdout + done.stderr


def test_the_keywords_of_a_parser_are_its_options() -> None:
    options, keywords = get_type_hints(canal.parse.ParserOptions), get_type_hints(ParserKeywords)
    assert [*options] == ["source", *keywords]
    assert {name: kind for name, kind in keywords.items() if kind not in (options[name], options[name] | None)} == {}


def test_every_option_of_a_server_is_described() -> None:
    text = (ROOT / "canal/parse/source/server.py").read_text("utf-8")
    options = [field.name for field in attrs.fields(canal.MySQLSource) if field.init]
    assert [name for name in options if not re.search(rf"^    #: [^\n]+\n    {name}: ", text, re.MULTILINE)] == []
