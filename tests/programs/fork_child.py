"""An Instance and a fork of its process: what each of the two says, for tests/instance/test_fork.py.

    python -m tests.programs.fork_child SOURCE DIRECTORY [ZOOKEEPER ROOT]

SOURCE is a host:port:user:password, or "fake". Prints "ready"; at each line of its input it forks. The child prints what each
call of the Instance says, stops it and ends as a process does; at "stay" it stays. At "end COUNT" the parent prints the ids that
it has read, once they are so many.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import canal
from canal.testing import FakeBinlog


def source_of(text: str) -> Any:
    if text == "fake":
        return FakeBinlog()
    host, port, user, password = text.split(":")
    return canal.MySQLSource(host=host, port=int(port), user=user, password=password, read_timeout=60, get_server_public_key=True)


def descriptors() -> set[str]:
    """The sockets that this process has open."""
    found = set()
    for number in os.listdir("/proc/self/fd"):
        try:
            name = os.readlink(f"/proc/self/fd/{number}")
        except OSError:
            continue
        found.add(name)
    return {name for name in found if name.startswith("socket:")}


def told(call: Callable[[], Any]) -> str:
    try:
        return f"returned {call()!r}"
    except canal.StateError as error:
        return "refused" if str(os.getppid()) in error.message and "after the fork" in error.remedy else repr(error)
    except BaseException as error:
        return repr(error)


def main(where: str, directory: str, zookeeper: str = "", root: str = "") -> None:
    source = source_of(where)
    options: dict[str, Any] = {"meta": canal.FileMeta(directory)}
    if zookeeper:
        options = {"ha": canal.ZooKeeper(hosts=zookeeper, root=root)}
    alarms: list[str] = []
    options |= {"filter": r".*\.t", "alarm": lambda _, text: alarms.append(text)}
    server = canal.Server([canal.InstanceConfig(destination="f", source=source, **options)])
    server.stop_on_signals()
    instance = server.instance("f")
    instance.subscribe()
    table = source.table("d", "t", "id INT PRIMARY KEY") if where == "fake" else None
    before = descriptors()
    read: list[int] = []
    done = threading.Event()

    def consume() -> None:
        while not done.is_set():
            message = instance.get(10, timeout=0.05)
            read.extend(row.after["id"] for entry in message.entries for row in entry.rows if row.after)

    consumer = threading.Thread(target=consume)
    consumer.start()
    print("ready", flush=True)
    for number, line in enumerate(sys.stdin):
        command, *count = line.split()
        if command == "end":
            while len(read) < int(count[0]):
                time.sleep(0.01)
            break
        if table is not None:
            table.insert({"id": number})
        child = os.fork()
        if command == "stay":
            if child:
                print(child, flush=True)
            signal.pause()
        if child:
            print("child ended", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
            continue
        calls: dict[str, Callable[[], Any]] = {
            "get": instance.get,
            "get_without_ack": instance.get_without_ack,
            "ack": lambda: instance.ack(1),
            "ack of nothing": lambda: instance.ack(-1),
            "rollback": instance.rollback,
            "subscribe": instance.subscribe,
            "unsubscribe": instance.unsubscribe,
            "subscriptions": instance.subscriptions,
            "position": instance.position,
            "list_batches": instance.list_batches,
            "status": instance.status,
            "switch": instance.switch,
            "release": instance.release,
            "wait_active": lambda: instance.wait_active(1),
            "stream": lambda: next(instance.stream()),
            "consume": lambda: instance.consume(print),
            "start": instance.start,
            "server": lambda: server.instance("f"),
        }
        said = {name: told(call) for name, call in calls.items()}
        print("said", {name: what for name, what in said.items() if what != "refused"}, flush=True)
        print("running", instance.is_running, instance.role.value, server.destinations(), flush=True)
        print("sockets", len(descriptors() & before) if not zookeeper else 0, flush=True)
        instance.stop()
        server.stop()
        server.wait()
        if number % 2:  # a fork that a signal ends
            os.kill(os.getpid(), 15)
        sys.exit(0)  # and not os._exit: everything is collected
    done.set()
    consumer.join()
    status = instance.status()
    assert status.parser is not None
    print("read", read, "reconnects", status.parser.reconnects, "alarms", alarms, flush=True)
    server.stop()
    os._exit(0 if threading.active_count() == 1 else 3)


if __name__ == "__main__":
    main(*sys.argv[1:])
