"""An Instance of a fake source, and reading it by more than one client."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import canal
from canal.alarm import AlarmKind, AlarmMessage
from canal.testing import FakeBinlog
from tests.support.waiting import until


def instance_of(fake: FakeBinlog, **options: Any) -> canal.Instance:
    return canal.Instance(
        canal.InstanceConfig(
            **{"destination": "test", "source": fake, "start": "earliest", "reconnect_backoff": (0.01, 0.02)}
            | {"alarm": lambda destination, text: None}
            | options
        )
    )


def rows_of(message: canal.Message) -> list[int]:
    return [row.after["id"] for entry in message.entries for row in entry.rows]  # type: ignore[index]


def read(instance: canal.Instance, client: int, count: int, size: int = 7, ack: bool = True) -> list[int]:
    found: list[int] = []
    deadline = time.monotonic() + 60
    while len(found) < count:
        assert time.monotonic() < deadline, f"client {client} has {found}, and not {count}"
        message = instance.get_without_ack(size, timeout=1.0, client_id=client)
        found += rows_of(message)
        if ack:
            instance.ack(message.id, client_id=client)
    return found


def read_up_to(instance: canal.Instance, last: int | None) -> list[int]:
    """The ids up to ``last`` (None: of nothing), and what comes right behind it, acknowledged."""
    found: list[int] = []
    while message := instance.get_without_ack(10, timeout=0.3 if last is None or last in found else 60.0):
        found += rows_of(message)
        instance.ack(message)
    return found


def is_behind(instance: canal.Instance, client: int) -> bool:
    return next(one.is_behind for one in instance.status().clients if one.client_id == client)


def has_all(instance: canal.Instance, client: int) -> bool:
    """Whether there is nothing more for a client, and it reads from the store."""
    message = instance.get_without_ack(9, timeout=0.1, client_id=client)
    instance.ack(message.id, client_id=client)
    assert rows_of(message) == []
    return not message and not is_behind(instance, client)


def ids(message: canal.Message) -> list[int]:
    return [id(entry) for entry in message.entries]


def in_thread(call: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """A call in a thread of its own, and what came of it."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(call())
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, found


class Alarms:
    """An alarm that keeps what it is told of clients that hold others back."""

    def __init__(self) -> None:
        self.told: list[AlarmMessage] = []

    def __call__(self, destination: str, message: str) -> None:
        if isinstance(message, AlarmMessage) and message.kind is AlarmKind.SLOW:
            self.told.append(message)

    def wait(self, is_it: Callable[[AlarmMessage], bool]) -> AlarmMessage:
        return until(lambda: next((message for message in self.told if is_it(message)), None))
