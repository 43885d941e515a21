"""What an HTTPTarget sends, and what it does with each answer."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.message import Message
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest

import canal
from canal.changes import Change
from canal.errors import ConfigError, ConnectionLostError, TargetError, UnfitChangeError
from canal.formats.change_json import line
from canal.targets import HTTPTarget, JSONLinesTarget
from canal.targets.http import _HTTPWork, _keys, signature
from canal.testing import FakeBinlog
from tests.support.harnesses import Receiver

PAUSED = _HTTPWork.paused
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER = "whsec_" + "A" * 32


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that the target waited for, which took none."""
    found: list[float] = []
    monkeypatch.setattr(_HTTPWork, "paused", lambda self, seconds: found.append(seconds))
    return found


def send(fake: FakeBinlog, target: HTTPTarget, rows: int = 3, **options: Any) -> canal.Pipe:
    """Insert rows with ids from 1 on, and pipe them."""
    fake.table("shop", "orders", "id INT PRIMARY KEY").insert(*({"id": n} for n in range(1, rows + 1)))
    fake.end()
    config = canal.InstanceConfig(destination="shop", source=fake, start="earliest")
    with canal.Instance(config) as instance:
        instance.subscribe()
        made = canal.pipe(instance, target, **{"on_error": "stop", "stream": "é.1", **options})
        made.run()
        return made


def ids(receiver: Receiver) -> list[list[int]]:
    return [[json.loads(text)["after"]["id"] for text in body.splitlines()] for _, body in receiver.requests]


def once(number: int, *answers: tuple[int, dict[str, str]] | None) -> Callable[[Message, bytes], Any]:
    """What answers so from that attempt on, once each, and 200 otherwise."""
    count, left = [0], list(answers)

    def answer(headers: Message, body: bytes) -> Any:
        count[0] += 1
        return left.pop(0) if count[0] >= number and left else (200, {})

    return answer


def test_each_request_has_a_key_that_is_the_same_when_it_comes_again(fake_binlog: FakeBinlog, receiver: Receiver) -> None:
    send(fake_binlog, HTTPTarget(receiver.url, headers={"Authorization": "Bearer x"}))

    keys = [headers["Idempotency-Key"] for headers, _ in receiver.requests]
    changes = [json.loads(body) for _, body in receiver.requests]
    assert keys == [f"%C3%A9%2E1/{change['id']}".replace("mysql-bin.", "mysql-bin%2E") for change in changes]
    assert len(set(keys)) == 3
    assert {headers["Authorization"] for headers, _ in receiver.requests} == {"Bearer x"}
    assert {headers["Content-Type"] for headers, _ in receiver.requests} == {"application/json"}


def test_a_batch_has_so_many_lines_or_bytes(fake_binlog: FakeBinlog, receiver: Receiver) -> None:
    def encode(change: Change) -> bytes:
        text = f'{{"after": {{"id": {change.row["id"]}}}}}'
        return text.ljust(70 if change.row["id"] in (4, 7) else 40).encode()

    send(fake_binlog, HTTPTarget(receiver.url, batch=3, batch_bytes=150, encode=encode), rows=8)

    assert ids(receiver) == [[1, 2, 3], [4, 5], [6, 7], [8]]
    assert [len(body) for _, body in receiver.requests] == [123, 112, 112, 41]
    keys = [headers["Idempotency-Key"].rpartition("/")[2] for headers, _ in receiver.requests]
    assert [headers["Content-Type"] for headers, _ in receiver.requests] == ["application/x-ndjson"] * 4
    assert keys == ["2", "4", "6", "7"]


def test_nothing_is_sent_of_a_change_for_which_there_is_no_body(fake_binlog: FakeBinlog, receiver: Receiver) -> None:
    send(fake_binlog, HTTPTarget(receiver.url, encode=lambda change: "" if change.row["id"] == 2 else line(change)))

    assert ids(receiver) == [[1], [3]]


def test_a_signature_is_that_of_standard_webhooks(fake_binlog: FakeBinlog, receiver: Receiver) -> None:
    known = signature(_keys(SECRET), "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    assert known["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="

    send(fake_binlog, HTTPTarget(receiver.url, secret=[SECRET, OTHER]), rows=1)

    ((headers, body),) = receiver.requests
    key, stamp = headers["Idempotency-Key"], int(headers["webhook-timestamp"])
    assert headers["webhook-id"] == key
    assert "." not in key  # what is signed has dots between its parts
    expected = [signature(_keys(secret), key, stamp, body)["webhook-signature"] for secret in (SECRET, OTHER)]
    assert headers["webhook-signature"].split(" ") == expected


def test_what_is_not_confirmed_is_sent_again_before_the_next(
    fake_binlog: FakeBinlog, receiver: Receiver, waits: list[float]
) -> None:
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=30))
    receiver.answer = once(2, (503, {"Retry-After": "7"}), (429, {"Retry-After": soon}), None, (500, {}))

    made = send(fake_binlog, HTTPTarget(receiver.url))

    assert ids(receiver) == [[1], [2], [3]]
    assert [receiver.attempts, made.status().commits, made.status().failures] == [7, 1, 0]
    assert waits[0] == 7.0
    assert 20 < waits[1] <= 30
    assert waits[2:] == [2.0, 4.0]  # the third and fourth attempt's own


def test_attempts_end_and_the_pipe_waits_as_long_as_it_is_asked_to(
    fake_binlog: FakeBinlog, receiver: Receiver, waits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    paused: list[float] = []
    receiver.answer = once(2, (503, {"Retry-After": "900"}), (503, {}), (503, {}))

    class Stopping(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            paused.append(timeout or 0.0)
            return False

    fake_binlog.table("shop", "orders", "id INT PRIMARY KEY").insert({"id": 1}, {"id": 2})
    fake_binlog.end()
    with canal.Instance(canal.InstanceConfig(destination="shop", source=fake_binlog, start="earliest")) as instance:
        instance.subscribe()
        made = canal.pipe(instance, HTTPTarget(receiver.url, attempts=2), on_error=canal.Retry(first=0.25, longest=0.25))
        monkeypatch.setattr(made, "_stopping", Stopping())
        made.run()

    assert paused == [900.0, 0.25]
    assert ids(receiver) == [[1], [1], [2]]


def test_stop_ends_the_wait_for_the_next_attempt(
    fake_binlog: FakeBinlog, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = threading.Event()

    def paused(work: _HTTPWork, seconds: float) -> bool:
        waiting.set()
        return PAUSED(work, seconds)

    monkeypatch.setattr(_HTTPWork, "paused", paused)
    receiver.answer = lambda headers, body: (503, {"Retry-After": "55"})
    fake_binlog.table("shop", "orders", "id INT PRIMARY KEY").insert({"id": 1})
    with canal.Instance(canal.InstanceConfig(destination="shop", source=fake_binlog, start="earliest")) as instance:
        instance.subscribe()
        with canal.pipe(instance, HTTPTarget(receiver.url)) as made:
            assert waiting.wait(120)
            made.stop()
            assert receiver.attempts == 1
            assert isinstance(made.status().error, TargetError)


@pytest.mark.parametrize("answer", [None, 7, "\ud800"])
def test_a_body_that_encode_cannot_make_is_parked_and_the_others_are_sent(
    answer: Any, fake_binlog: FakeBinlog, receiver: Receiver, tmp_path: Path
) -> None:
    def encode(change: Change) -> Any:
        if change.row["id"] == 2:
            return answer or {}[answer]
        return line(change)

    if answer == 7:
        with pytest.raises(ConfigError, match="must be text"):
            send(fake_binlog, HTTPTarget(receiver.url, encode=encode))
        return
    send(fake_binlog, HTTPTarget(receiver.url, encode=encode), on_unfit=JSONLinesTarget(tmp_path / "parked"))

    assert ids(receiver) == [[1], [3]]
    assert json.loads((tmp_path / "parked").read_text())["after"] == {"id": 2}


@pytest.mark.parametrize(("status", "says"), [(302, "redirects"), (401, "credentials"), (404, "see what")])
def test_what_only_the_owner_mends_is_an_error(status: int, says: str, fake_binlog: FakeBinlog, receiver: Receiver) -> None:
    receiver.answer = once(2, (status, {"Location": "/"}))

    with pytest.raises(TargetError, match=f"answers {status}.*{says}"):
        send(fake_binlog, HTTPTarget(receiver.url))

    assert [ids(receiver), receiver.attempts] == [[[1]], 2]


def test_an_address_without_a_server_is_a_lost_connection(fake_binlog: FakeBinlog, waits: list[float]) -> None:
    with Receiver() as gone:
        url = gone.url
    with pytest.raises(ConnectionLostError, match="ConnectError"):
        send(fake_binlog, HTTPTarget(url.replace("http://", "http://me:pw@") + "?token=x", attempts=2))

    assert waits == [0.5]


@pytest.mark.parametrize("batch", [1, 10])
def test_changes_that_are_refused_are_parked_and_the_others_are_sent_once(
    batch: int, fake_binlog: FakeBinlog, receiver: Receiver, tmp_path: Path
) -> None:
    receiver.answer = lambda headers, body: (422 if b'"after":{"id":2}' in body or b'"after":{"id":4}' in body else 200, {})

    made = send(fake_binlog, HTTPTarget(receiver.url, batch=batch), rows=5, on_unfit=JSONLinesTarget(tmp_path / "parked"))

    assert sum(ids(receiver), []) == [1, 3, 5]
    assert made.status().parked == 2
    parked = [json.loads(text) for text in (tmp_path / "parked").read_text().splitlines()]
    assert [(one["after"]["id"], one["error"].rpartition(" answers ")[2]) for one in parked] == [
        (2, "422 to a change of shop.orders"),
        (4, "422 to a change of shop.orders"),
    ]


def test_nothing_behind_a_change_that_is_refused_is_sent(fake_binlog: FakeBinlog, receiver: Receiver) -> None:
    receiver.answer = lambda headers, body: (400 if b'"after":{"id":2}' in body else 200, {})

    with pytest.raises(UnfitChangeError) as caught:
        send(fake_binlog, HTTPTarget(receiver.url))

    assert [change.after["id"] for change in caught.value.changes] == [2]
    assert ids(receiver) == [[1]]


@pytest.mark.parametrize(
    "options",
    [
        {"url": "ftp://host/"},
        {"url": "host/path"},
        {"url": "http://host:x/"},
        {"batch": 0},
        {"attempts": 0},
        {"timeout": 0},
        {"secret": "whsec_short"},
        {"secret": "no base64!"},
        {"secret": [SECRET, ""]},
    ],
)
def test_options_that_cannot_be_are_refused_without_a_secret(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        HTTPTarget(**{"url": "http://host/", **options})

    assert "short" not in f"{caught.value}"


def test_nothing_secret_is_shown() -> None:
    target = HTTPTarget("https://me:pw@host:81/hook?token=x", secret=SECRET, headers={"Authorization": "pw"})

    assert f"{target}" == "HTTP https://host:81/hook"
    assert not any(word in repr(target) for word in ("pw", "token", "whsec"))
