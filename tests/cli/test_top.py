"""``canal top``: what it shows of a page, of ZooKeeper (tests/ha/test_ha_cli.py), and of what is no page."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from typing import Any

import pytest

import canal
from canal.cli import web
from canal.cli.main import main
from tests.support.waiting import until
from tests.support.web import NASTY, Refuse, config, served


@pytest.fixture
def address() -> Any:
    with canal.Server([config("orders"), config("broken", hooks=[Refuse()]), config("idle")]) as server:
        instance = server.instance("orders")
        instance.subscribe()
        instance.ack(instance.get_without_ack(timeout=60).id)
        server.instance("broken").subscribe()
        until(lambda: server.status()["broken"].state is canal.State.FAILED)
        with served(web.app(server)) as address:
            yield address


def test_it_shows_each_client_and_what_is_not_well(
    address: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)

    status = main(["top", address, "--once"])

    out = capsys.readouterr().out
    (orders,) = [line.split() for line in out.splitlines() if line.startswith("orders")]
    assert orders[1:4] == ["streaming", "1001", "binlog.000001:" + orders[3].partition(":")[2]]
    assert "idle " in out
    assert "not started" in out
    assert NASTY in out
    assert status == 1, "one is not well"


def test_on_a_terminal_it_goes_on_until_ctrl_c(address: str) -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "200", "LINES": "40"}
    command = [sys.executable, "-m", "canal", "top", address, "--interval", "0.05"]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as process:
        try:
            os.close(theirs)
            seen = b""
            while seen.count(b"canal top") < 3:
                seen += os.read(ours, 1 << 16)
            process.send_signal(signal.SIGINT)
            try:
                while more := os.read(ours, 1 << 16):
                    seen += more
            except OSError:  # the terminal is closed
                pass
            assert process.wait(60) == 0
        finally:
            process.kill()
    os.close(ours)
    assert b"streaming" in seen


@pytest.mark.parametrize(
    ("path", "said"), [("../nothing/", "the page answers 404"), ("?x=", "no page of canal"), (None, "does not answer")]
)
def test_what_is_no_page_is_said(address: str, capsys: pytest.CaptureFixture[str], path: str | None, said: str) -> None:
    url = "http://127.0.0.1:1/" if path is None else address + path

    assert main(["top", url, "--once"]) == 1

    assert said in capsys.readouterr().err


def test_an_interval_that_cannot_be_is_refused(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", address, "--interval", "0"]) == 1
    assert "--interval" in capsys.readouterr().err
