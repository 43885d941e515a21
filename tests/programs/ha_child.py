"""One of the processes that embed a destination in a fault run: gets, acks, and writes down what it did.

    python -m tests.programs.ha_child OPTIONS_AS_JSON

SIGUSR1 asks for a release, SIGTERM ends it in order. SIGUSR2 lets it stop itself (SIGSTOP) between two steps of a get or an
ack soon, SIGRTMIN between two steps of its part in the election. It dies with the process that started it.
"""

from __future__ import annotations

import collections
import ctypes
import json
import logging
import os
import random
import signal
import sys
import threading
import time
from typing import Any

import canal
from canal.errors import CoordinationError
from canal.ha import running
from canal.position import journal_key
from canal.zookeeper.session import ZooKeeper
from tests.support.ha_journal import LogPosition, append
from tests.support.journal import changes_of
from tests.support.steps import Steps, ThreadStepper, is_monitor

_PR_SET_PDEATHSIG = 1


def log_position(position: canal.Position) -> LogPosition:
    return journal_key(position.journal)[1], position.offset, position.row


class Consumer:
    def __init__(self, options: dict[str, Any]) -> None:
        self.file = os.open(options["output"], os.O_WRONLY | os.O_APPEND)
        self.rng = random.Random(options["seed"])
        self.leaving = threading.Event()
        self.in_hand: collections.deque[tuple[int, int]] = collections.deque()  # epoch, batch
        self.doubtful = False
        self.steps = Steps(self._stop_here)
        source, *standby = [
            canal.MySQLSource(
                host="127.0.0.1",
                port=port,
                user=options["user"],
                password=options["password"],
                get_server_public_key=True,
                connect_timeout=options.get("patience", 2.0),
                read_timeout=options.get("patience", 3.0),
                heartbeat_interval=0.5,
            )
            for port in (options["port"], *options.get("standby", ()))
        ]
        self.instance = canal.Instance(
            canal.InstanceConfig(
                destination=options["destination"],
                source=source,
                standby=standby[0] if standby else None,
                heartbeat=canal.Heartbeat(interval=0.2, timeout=options["patience"], retries=2) if standby else None,
                filter=options["schema"] + r"\..*",
                ha=ZooKeeper(
                    hosts=options["hosts"], session_timeout=options["session_timeout"], takeover_delay=options["takeover_delay"]
                ),
                store_bytes=1 << 20,
                reconnect_backoff=(0.05, 0.3),
            )
        )

    def write(self, *record: Any) -> None:
        append(self.file, *record)

    def stop_soon(self, thread: threading.Thread | None) -> None:
        """Between two steps of this thread."""
        if thread is not None:
            self.steps.arm(thread, self.rng.randrange(1, 400))

    def _stop_here(self, step: str) -> None:
        self.write("STOPPED", step)
        os.kill(os.getpid(), signal.SIGSTOP)

    def run(self) -> None:
        self.write("START", os.getpid())
        self.steps.follow()
        with self.instance:
            threading.Thread(target=self._watch_session, daemon=True).start()
            self._subscribe()
            while not self.leaving.is_set():
                self._turn()

    def _subscribe(self) -> None:
        while not self.leaving.is_set():
            try:
                self.instance.subscribe(timeout=2.0)
                self.write("SUBSCRIBED")
                return
            except canal.CanalError as error:
                self.write("ERROR", "subscribe", repr(error))

    def _turn(self) -> None:
        asked = time.monotonic()
        try:
            message = self.instance.get_without_ack(self.rng.choice((1, 20, 200)), timeout=0.3)
        except canal.CanalError as error:
            self.write("ERROR", "get", repr(error))
            time.sleep(0.05)
            return
        came = time.monotonic()
        if message:
            pieces = [
                (log_position(entry.position), list(changes_of([entry])))
                for entry in message.entries
                if entry.entry_type is not canal.EntryType.TRANSACTIONBEGIN  # its position is that of the END before
            ]
            self.write("GOT", message.epoch, message.id, asked, came, log_position(message.position), pieces)
            self.in_hand.append((message.epoch, message.id))
            if self.rng.random() < 0.02 and not self.doubtful:
                self._roll_back(message.epoch)
            elif self.rng.random() < 0.05:
                self._ack_out_of_order()
        while self.in_hand and (not message or len(self.in_hand) > 3 or self.rng.random() < 0.6):
            if not self._ack(*self.in_hand[0]):
                return
            self.in_hand.popleft()

    def _roll_back(self, epoch: int) -> None:
        if any(one != epoch for one, _ in self.in_hand):
            return  # those of an earlier turn are acked, and refused
        try:
            self.instance.rollback()
        except canal.NotActiveError:
            return
        except canal.CanalError as error:
            self.write("ERROR", "rollback", repr(error))
            return
        self.write("ROLLBACK", epoch)
        self.in_hand.clear()

    def _ack_out_of_order(self) -> None:
        """Never to be accepted; what is in hand stays so."""
        if len(self.in_hand) < 2:
            return
        (epoch, batch), called, answer = self.in_hand[-1], time.monotonic(), "ACKED"
        try:
            self.instance.ack(batch)
        except canal.BatchError:
            return
        except canal.NotActiveError:
            answer = "REFUSED"
        self.write("ACKING", epoch, batch, called)
        self.write(answer, epoch, batch, time.monotonic())

    def _ack(self, epoch: int, batch: int) -> bool:
        """Whether there is an answer."""
        self.write("ACKING", epoch, batch, time.monotonic())
        try:
            self.instance.ack(batch)
        except canal.NotActiveError:
            self.write("REFUSED", epoch, batch, time.monotonic())
        except (CoordinationError, canal.CursorError) as error:
            self.write("UNKNOWN", epoch, batch, time.monotonic())
            self.write("ERROR", "ack", repr(error))
            self.doubtful = True
            time.sleep(0.05)
            return False
        else:
            self.write("ACKED", epoch, batch, time.monotonic())
        self.doubtful = False
        return True

    def release(self) -> None:
        try:
            self.instance.release()
        except canal.CanalError as error:
            self.write("ERROR", "release", repr(error))

    def _watch_session(self) -> None:
        """So that the session can be closed by id."""
        known = None
        while True:
            client = self.instance._ha.session._client  # type: ignore[union-attr]
            found = client.client_id if client is not None else None
            if found and found[0] and found != known:
                known = found
                self.write("SESSION", *found)
            time.sleep(0.05)


def main() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    options = json.loads(sys.argv[1])
    logging.basicConfig(
        filename=options["output"] + ".log",
        level=logging.INFO,
        format="%(asctime)s.%(msecs)03d %(name)s %(message)s",
        datefmt="%H:%M:%S",
    )
    logging.getLogger("canal.ha.kazoo").setLevel(logging.WARNING)
    if os.getpid() % 2:  # it can be held at a step of its election; the others run that on shared threads
        running.Stepper = ThreadStepper  # type: ignore[misc]
    consumer = Consumer(options)

    def leave(*_: Any) -> None:
        consumer.leaving.set()
        consumer.steps.disarm()

    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGUSR2, lambda *_: consumer.stop_soon(threading.current_thread()))
    signal.signal(signal.SIGRTMIN, lambda *_: consumer.stop_soon(next(filter(is_monitor, threading.enumerate()), None)))
    signal.signal(signal.SIGUSR1, lambda *_: threading.Thread(target=consumer.release).start())
    consumer.run()


if __name__ == "__main__":
    main()
