"""One of the processes that take turns for a group or a router: gets, acks, and writes down what it did.

    python -m tests.programs.turns_child OPTIONS_AS_JSON OUTPUT_FILE

SIGUSR1 asks for a release, SIGUSR2 stops it (SIGSTOP) between its next get and that batch's ack, which SIGCONT ends or takes
back. It dies with who started it.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import signal
import sys
import threading
import time
from typing import Any

import canal
from canal.zookeeper.session import ZooKeeper
from tests.support.ha_journal import append
from tests.support.journal import changes_of

_PR_SET_PDEATHSIG = 1


class Follower:
    """Reads each of some instances on a thread of its own."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._stops = threading.Event()

    def stop_soon(self, *signalled: Any) -> None:
        self._stops.set()

    def go_on(self, *signalled: Any) -> None:
        self._stops.clear()

    def run(self, instances: dict[str, canal.Instance]) -> None:
        threads = [threading.Thread(target=self._follow, args=one) for one in instances.items()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _follow(self, name: str, instance: canal.Instance) -> None:
        self._tried(name, lambda: instance.subscribe(timeout=60.0))
        append(self._file, "SUBSCRIBED", name)
        while True:
            message = self._tried(name, lambda: instance.get_without_ack(5, timeout=0.3))
            if not message:
                continue
            found = [(entry.member, change) for entry in message.entries for change in changes_of([entry])]
            append(self._file, "GOT", name, message.epoch, message.id, [(member, one[1], one[4]["id"]) for member, one in found])
            if found and self._stops.is_set():
                self._stops.clear()
                append(self._file, "STOPPED", name, message.epoch, message.id)
                os.kill(os.getpid(), signal.SIGSTOP)
                time.sleep(0.5)  # the kernel stops one thread after the other: this one must not have begun the ack by then
            append(self._file, "ACKING", name, message.epoch, message.id, time.monotonic())
            try:
                instance.ack(message)
                append(self._file, "ACKED", name, message.epoch, message.id, time.monotonic())
            except canal.NotActiveError:
                append(self._file, "REFUSED", name, message.epoch, message.id, time.monotonic())
            except canal.CanalError as error:
                append(self._file, "FAILED", name, message.epoch, message.id, repr(error))

    def _tried(self, name: str, call: Any) -> Any:
        while True:
            try:
                return call()
            except canal.CanalError as error:
                append(self._file, "ERROR", name, repr(error))
                time.sleep(0.1)


def main() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(threadName)s %(message)s")
    options, output = json.loads(sys.argv[1]), sys.argv[2]
    follower = Follower(os.open(output, os.O_WRONLY | os.O_APPEND))
    # On a machine whose processes stand still for seconds, shorter sessions end one after the other, and nobody gets a turn.
    ha = ZooKeeper(hosts=options["hosts"], root=options["root"], session_timeout=4.0, takeover_delay=0.2)
    sources = {
        name: canal.MySQLSource(
            host="127.0.0.1",
            port=port,
            user=options["user"],
            password=options["password"],
            heartbeat_interval=0.5,
            get_server_public_key=True,
        )
        for name, port in options["ports"].items()
    }
    filter = r"turns\..*"
    composed: canal.Instance | canal.server.RouterSink
    if options["kind"] == "group":
        parsers = {
            name: canal.parse.BinlogParser(
                source, tables=canal.filter.TableFilter(filter), backoff=(0.05, 0.3), history=canal.parse.ZooKeeperHistory(ha)
            )
            for name, source in sources.items()
        }
        composed = canal.Instance.compose("turns", parser=canal.parse.GroupParser(parsers, order="arrival"), ha=ha)
        instances = {"all": composed}
    else:
        source = next(iter(sources.values()))
        composed = canal.server.RouterSink(canal.InstanceConfig(destination="turns", source=source, filter=filter, ha=ha))
        instances = {"all": composed.output("all"), "t": composed.output("only-t", r"turns\.t")}
    signal.signal(signal.SIGUSR1, lambda *signalled: composed.release())
    signal.signal(signal.SIGUSR2, follower.stop_soon)
    signal.signal(signal.SIGCONT, follower.go_on)
    with composed:
        follower.run(instances)


if __name__ == "__main__":
    main()
