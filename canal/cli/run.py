"""``canal run``: runs all destinations of a configuration, each on its own thread.

Never stores anything itself: the configuration decides where cursors are.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import logging
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from canal.alarm import log_alarm
from canal.cli.printers import print_json
from canal.errors import CanalError, ConfigError, NotActiveError, StateError, visible
from canal.formats.message import Message
from canal.instance.instance import Instance
from canal.pipes import pipe
from canal.server.configuration.sources import DirectorySource
from canal.server.server import Server

log = logging.getLogger("canal")

#: Called with a destination and a message. The message is acked when the handler returns.
Handler = Callable[[str, Message], Any]

#: Seconds between polls of the destinations, and the first and longest wait before a failed destination is retried.
_LOOK, _FIRST_PAUSE, _PAUSE = 0.2, 0.5, 30.0


def options(commands: Any) -> None:
    run = commands.add_parser(
        "run",
        help="run the destinations of a configuration",
        description="Run all destinations of a configuration, and follow its changes: canal's conf directory, or TOML files.",
        epilog="SIGTERM and Ctrl-C end it. Unacknowledged changes are rolled back and repeat.",
    )
    run.add_argument("path", help="a directory with canal.properties or TOML files, or one such file")
    run.add_argument(
        "--handler",
        metavar="MODULE:FUNCTION",
        help="function of (destination, message), acked when it returns. Without a handler and a pipe, changes are printed as "
        "canal-json",
    )
    run.add_argument("--interval", type=float, metavar="SECONDS", help="seconds between polls of the files")
    run.add_argument("--check", action="store_true", help="only check the configuration and list keys without a meaning")
    run.add_argument("--verbose", action="store_true", help="log what the library does")
    run.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    source = DirectorySource(options.path)
    if options.check:
        return check(source)
    on_message = handler(options.handler) if options.handler else _print_of
    return run(source, on_message, options.interval)


def _print_of(destination: str, message: Message) -> None:
    print_json(message)
    sys.stdout.flush()


def handler(name: str) -> Handler:
    """Import MODULE:FUNCTION, also from the working directory. Raise ConfigError if that fails."""
    module, colon, function = name.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"cannot import the handler {name!r}: {error}", remedy="Use MODULE:FUNCTION.") from error
    if not callable(found):
        raise ConfigError(f"the handler {name!r} is not callable")
    return found  # type: ignore[no-any-return]


def check(source: DirectorySource) -> int:
    """Print the state of each destination's configuration and return the exit status."""
    failed = 0
    for name in source.files.destinations():
        try:
            source.files.config(name)
            source.files.pipe(name)
        except CanalError as error:
            failed, error.destination = 1, ""  # name it once
            print(visible(f"{name}: {error}"))
            continue
        print(visible(f"{name}: can be used"))
        for key, reason in source.files.notes(name).items():
            print(visible(f"  {key} has no meaning here: {reason}"))
    return failed


def run(source: DirectorySource, handler: Handler, interval: float | None = None) -> int:
    """Run all destinations until a signal ends the process. Return the exit status.

    Messages go to ``handler``, or to the destination's pipe. Destinations that are added to the configuration start too. An
    exception of the handler rolls back, and the destination is retried after a pause. A destination with wrong options stops
    until its configuration changes.

    Raises:
        ConfigError: the options of all destinations are wrong.
        CanalError: no destination can be started.
    """
    files: Any = source.files
    server = Server()
    server.stop_on_signals()
    readers: dict[str, threading.Thread] = {}
    refused: dict[str, tuple[str, ConfigError]] = {}  # by destination, with the digest of its configuration
    with server:
        if getattr(files, "scans", True):
            server.follow(source, interval if interval is not None else getattr(files, "interval", 5.0))
        if not server.configured():
            for name in files.destinations():
                server.configure(source.load(name), lazy=source.is_lazy(name))
        while not server.wait(_LOOK):
            names = server.configured()
            for name in names:
                if name in refused and refused[name][0] != source.files.digest(name):
                    del refused[name], readers[name]
                if name not in refused and (name not in readers or not readers[name].is_alive()):
                    work = partial(_read, server, source, name, handler, refused)
                    readers[name] = threading.Thread(target=work, name=f"canal-{name}-run", daemon=True)
                    readers[name].start()
            if names and refused.keys() >= set(names):
                raise refused[names[0]][1]
    for reader in readers.values():
        reader.join(_PAUSE)
    return 0


def _read(
    server: Server, source: DirectorySource, destination: str, handler: Handler, refused: dict[str, tuple[str, ConfigError]]
) -> None:
    """Run one destination until it is removed, the server stops or its options are wrong."""
    wait = _FIRST_PAUSE
    while destination in server.configured():
        began, digest, pause = time.monotonic(), source.files.digest(destination), _PAUSE
        instance: Instance | None = None
        try:
            instance = server.instance(destination)
            instance.subscribe()
            piped = source.files.pipe(destination)
            if piped is None:
                instance.consume(lambda message: handler(destination, message))
            else:
                pipe(instance, **piped).run()
        except (StateError, NotActiveError):  # stopped, or restarted with another configuration
            pause = _LOOK
        except ConfigError as error:
            log_alarm(destination, f"stopped until its configuration changes: {error}")
            error.destination = error.destination or destination
            refused[destination] = digest, error
            _stop(server, destination)
            return
        except Exception as error:
            if time.monotonic() - began > _PAUSE:
                wait = _FIRST_PAUSE
            log_alarm(destination, f"stopped, retried in {wait:g} s: {type(error).__name__}: {error}")
            if not isinstance(error, CanalError):
                log.exception("[%s] the handler failed", destination)
            if instance is not None and instance.error is not None:  # only a new start revives its parser
                _stop(server, destination)
            pause, wait = wait, min(2 * wait, _PAUSE)
        if server.wait(pause):
            return


def _stop(server: Server, destination: str) -> None:
    with contextlib.suppress(CanalError):  # it may have stopped already
        server.stop(destination)
