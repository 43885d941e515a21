"""One of several processes that take turns to copy two tables into PostgreSQL.

    python -m tests.programs.pipe_turns_child OPTIONS_AS_JSON

It prints what its pipe has done so far, a line of JSON each time. On SIGUSR1 it stops itself (SIGSTOP) before its next commit,
when it has looked at the progress already.
"""

from __future__ import annotations

import ctypes
import json
import signal
import sys
import threading

import canal
from canal.targets import PostgreSQLTarget
from canal.testing.target_suite import Faulty
from canal.zookeeper.session import ZooKeeper

_PR_SET_PDEATHSIG = 1


def main() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    options = json.loads(sys.argv[1])
    is_to_stop = threading.Event()
    signal.signal(signal.SIGUSR1, lambda *signalled: is_to_stop.set())

    def at(point: str) -> None:
        if point == "before" and is_to_stop.is_set():
            is_to_stop.clear()
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)  # os.kill lets this thread go on for a moment

    config = canal.InstanceConfig(
        destination=options["schema"],
        filter=rf"{options['schema']}\..*",
        source=canal.MySQLSource(
            host="127.0.0.1",
            port=options["port"],
            user=options["user"],
            password=options["password"],
            heartbeat_interval=0.5,
            get_server_public_key=True,
        ),
        ha=ZooKeeper(hosts=options["hosts"], root=options["root"], session_timeout=2.0, takeover_delay=0.2),
    )
    with canal.Instance(config) as instance:
        instance.subscribe(timeout=None)
        retry = canal.Retry(times=None, first=0.05, longest=0.3)
        with canal.pipe(instance, Faulty(PostgreSQLTarget(options["target"]), at), on_error=retry) as pipe:
            while True:
                pipe.join(0.05)
                status = pipe.status()
                error = None if status.error is None else type(status.error).__name__
                print(json.dumps([status.commits, error]), flush=True)


if __name__ == "__main__":
    main()
