"""Masks and pipes in TOML, and ``canal run`` that writes to a target."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import canal
from canal.cli.main import main
from canal.server.configuration.toml_files import TomlFiles
from canal.testing import FakeBinlog

TOML = r"""
[destinations.orders]
meta = "memory"
start = "earliest"
source = { path = "%s" }

[destinations.orders.mask.'shop\.users']
email = { hmac = { env = "PEPPER" } }
phone = { last = 4 }
note = "drop"

[destinations.orders.pipe]
target = { kind = "jsonlines", path = "%s", encode = { format = "debezium-json", tombstones = false } }
batch_size = 100

[[destinations.orders.pipe.rules]]
tables = 'shop\.users'
rename = { phone = "telephone" }
to = "lake.people"
"""


def logs(folder: Path) -> Path:
    fake = FakeBinlog()
    users = fake.table("shop", "users", "id INT PRIMARY KEY, email VARCHAR(40), phone VARCHAR(20), note TEXT")
    users.insert({"id": 1, "email": "a@b", "phone": "555-1234", "note": "secret"})
    folder.mkdir()
    fake.write(folder)
    return folder


def test_a_file_is_all_that_it_takes(tmp_path: Path) -> None:
    path, out = tmp_path / "all.toml", tmp_path / "out.jsonl"
    path.write_text(TOML % (logs(tmp_path / "logs"), out))
    with subprocess.Popen([sys.executable, "-m", "canal", "run", str(path)], env={**os.environ, "PEPPER": "x"}) as child:
        try:
            while not (out.exists() and out.read_text().endswith("\n")):
                assert child.poll() is None
                time.sleep(0.05)
            child.send_signal(signal.SIGTERM)
            assert child.wait(60) == 0
        finally:
            child.kill()
    (line,) = map(json.loads, out.read_text().splitlines())
    assert (line["op"], line["source"]["db"], line["source"]["table"]) == ("c", "lake", "people")
    email = canal.Mask.hmac(key="x").text("a@b")
    assert line["after"] == {"id": 1, "email": email, "telephone": "****1234"}


def test_a_file_can_ask_for_the_rows_that_are_there(tmp_path: Path) -> None:
    text = TOML % (logs(tmp_path / "logs"), tmp_path / "out.jsonl")
    files = TomlFiles(text.replace("batch_size = 100", 'snapshot = "initial"'), environ={"PEPPER": "x"})
    assert files.pipe("orders")["snapshot"] == "initial"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"jsonlines"', '"paper"', "pipe.target has no kind 'paper'.*jsonlines, .*sqlite"),
        ("tombstones", "tombs", "encode.*tombs"),
        ("batch_size", "batch", "pipe has no option batch.*batch_size"),
        ("rename =", "where =", r"rules\[0\] has no option where"),
        ("to = ", "to = 7 #", r"rules\[0\]"),
        ("rename = ", "rename = 'phone' #", r"rules\[0\]: rename of a rule must be a mapping by column"),
        ("{ last = 4 }", "{ first = 4 }", "mask.*phone is"),
        ("{ last = 4 }", "{ last = 0 }", "a number of characters"),
        ("target = {", "goal = {", "a table with a target"),
    ],
)
def test_a_mistake_is_told_by_check(
    old: str, new: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PEPPER", "pepper-key")
    text = TOML % (tmp_path, tmp_path / "out")
    files = TomlFiles(text)
    assert files.config("orders").destination == "orders"
    assert files.pipe("orders") is not None
    assert old in text
    path = tmp_path / "bad.toml"
    path.write_text(text.replace(old, new))

    assert main(["run", str(path), "--check"]) == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert re.search(message, line), line
    assert line.startswith("orders: ")
    assert "[orders]" not in line
    assert "pepper-key" not in line
