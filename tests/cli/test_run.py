"""``canal run`` where something is amiss: what it says, when it tries again, and when it ends."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from canal.cli.main import main
from canal.parse.run import ParserRun
from canal.testing import FakeBinlog
from tests.support.waiting import until

FILES = "[destinations.{name}]\nmeta = 'memory'\nstart = 'earliest'\nsource = {{ path = '{logs}' }}\n"
PIPE = "[destinations.{name}.pipe]\ntarget = {{ kind = {target} }}\n"
BAD = "'redis', url = 'nowhere'"


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    fake = FakeBinlog()
    fake.table("shop", "t", "id INT PRIMARY KEY").insert({"id": 1})
    fake.write(tmp_path / "logs")
    return tmp_path / "logs"


@contextmanager
def beside(work: Callable[[], None]) -> Iterator[None]:
    """Do what others do while the main thread runs, and end it then."""

    def whole() -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)
        os.kill(os.getpid(), signal.SIGTERM)

    failures: list[BaseException] = []
    thread = threading.Thread(target=whole)
    thread.start()
    yield
    thread.join()
    assert not failures


def test_a_signal_while_it_waits_for_the_server_ends_it_without_a_word(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits, wait_started = threading.Event(), ParserRun.wait_started
    monkeypatch.setattr(ParserRun, "wait_started", lambda *given: waits.set() or wait_started(*given))
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        (tmp_path / "all.toml").write_text(
            f"[destinations.shop]\nmeta = 'memory'\nsource = 'mysql://canal:x@127.0.0.1:{unused.getsockname()[1]}/'\n"
        )
        with beside(lambda: until(lambda: waits.is_set() and "not connected yet" in caplog.text)):
            assert main(["run", str(tmp_path / "all.toml")]) == 0

    assert [record.message for record in caplog.records if "not connected yet" not in record.message] == []


@pytest.mark.parametrize("name", ["all.toml", "conf"])
def test_an_option_that_proves_wrong_at_run_time_ends_it(
    name: str, logs: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    text = FILES.format(name="shop", logs=logs) + PIPE.format(name="shop", target=BAD)
    if name == "conf":
        path.mkdir()
    (path / "canal.toml" if name == "conf" else path).write_text(text)

    assert main(["run", str(path)]) == 1

    assert capsys.readouterr().err.startswith("canal: [shop] bad URL of a Redis server")
    assert caplog.text.count("bad URL") == 1


def test_the_others_go_on_without_one_whose_options_are_wrong_until_those_are_mended(
    logs: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, out, mended = tmp_path / "all.toml", tmp_path / "out", tmp_path / "mended"
    good = FILES.format(name="good", logs=logs) + PIPE.format(name="good", target=f"'jsonlines', path = '{out}'")
    path.write_text(good + FILES.format(name="bad", logs=logs) + PIPE.format(name="bad", target=BAD))

    def mend() -> None:
        until(lambda: "bad URL" in caplog.text and out.exists())
        target = f"'jsonlines', path = '{mended}'"
        path.write_text(good + FILES.format(name="bad", logs=logs) + PIPE.format(name="bad", target=target))
        until(mended.exists)

    with beside(mend):
        assert main(["run", str(path), "--interval", "0.05"]) == 0

    assert caplog.text.count("bad URL") == 1
    assert out.read_text().count("\n") == mended.read_text().count("\n") == 1


def test_nothing_that_can_be_used_at_the_start_ends_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "all.toml"
    path.write_text("[destinations.shop]\nmeta = 'memory'\nsource = 'mysql://canal@db/'\nfilter = 7\n")

    assert main(["run", str(path)]) == 1
    assert "filter" in capsys.readouterr().err


def test_what_stopped_a_parser_is_tried_again_and_goes_on_when_it_is_mended(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fake, out = FakeBinlog(), tmp_path / "out"
    fake.table("shop", "t", "id INT PRIMARY KEY").insert({"id": 1})
    with fake.serve(user="canal", password="old") as server:
        (tmp_path / "all.toml").write_text(
            f"[destinations.shop]\nmeta = 'memory'\nstart = 'earliest'\nsource = 'mysql://canal:new@127.0.0.1:{server.port}/'\n"
            + PIPE.format(name="shop", target=f"'jsonlines', path = '{out}'")
        )

        def mend() -> None:
            until(lambda: "stopped, retried in" in caplog.text)
            server.password = "new"
            until(out.exists)

        with beside(mend):
            assert main(["run", str(tmp_path / "all.toml")]) == 0

    assert out.read_text().count("\n") == 1
