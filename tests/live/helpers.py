"""What the live tests share: an Instance on a throwaway server, and reading it up to the server's present end."""

from __future__ import annotations

import queue
import threading
import time
from typing import Any

import canal
from canal.testing.journal import Change, changes_of
from canal.testing.servers import ThrowawayServer


def source(server: ThrowawayServer, **options: Any) -> canal.MySQLSource:
    return canal.MySQLSource(
        host=server.host, port=server.port, user=server.user, password=server.password, **options
    )


def end_of_log(server: ThrowawayServer) -> canal.Position:
    connection = source(server).connect()
    try:
        return connection.resolve("latest")
    finally:
        connection.close()


class Reader:
    """Reads an instance on one thread, acks on another, and keeps every change in the order of delivery."""

    def __init__(self, instance: canal.Instance, batch_size: int = 200) -> None:
        self.instance = instance
        self.batch_size = batch_size
        self.changes: list[Change] = []
        self.entries = 0
        self.failure: BaseException | None = None
        self._to_ack: queue.Queue[int | None] = queue.Queue(8)
        self._target: canal.Position | None = None
        self._threads = [threading.Thread(target=self._read), threading.Thread(target=self._ack)]

    def __enter__(self) -> Reader:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._target = self._target or canal.Position()
        for thread in self._threads:
            thread.join(60)

    def read_up_to(self, target: canal.Position, timeout: float = 60.0) -> list[Change]:
        """All changes, once everything up to ``target`` has been acked."""
        self._target = target
        deadline = time.monotonic() + timeout
        for thread in self._threads:
            thread.join(max(0.1, deadline - time.monotonic()))
        if self.failure is not None:
            raise self.failure
        assert not any(thread.is_alive() for thread in self._threads), (
            f"not at {target} within {timeout} s, but at {self.instance.position()}"
        )
        return self.changes

    def _read(self) -> None:
        try:
            while True:
                target = self._target
                message = self.instance.get_without_ack(self.batch_size, timeout=0.5)
                if message:
                    self.entries += len(message.entries)
                    self.changes.extend(changes_of(message.entries))
                    self._to_ack.put(message.id)
                elif target is not None and self._is_behind(target):
                    break
        except BaseException as error:
            self.failure = error
        finally:
            self._to_ack.put(None)

    def _is_behind(self, target: canal.Position) -> bool:
        """Whether the parser has received everything up to the target."""
        parser: Any = self.instance.parser
        received = canal.Position(journal=parser._decoder.journal, offset=parser._decoder.offset)
        before = received.precedes(canal.Position(journal=target.journal, offset=target.offset))
        return before is False

    def _ack(self) -> None:
        try:
            while (id := self._to_ack.get()) is not None:
                self.instance.ack(id)
        except BaseException as error:
            self.failure = error
