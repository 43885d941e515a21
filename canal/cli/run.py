"""``canal run``: all destinations of a configuration, each read by one client on a thread of its own.

Never keeps anything itself: cursors are where the configuration says.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from typing import Any

from canal._util.findings import Finding
from canal.alarm import log_alarm
from canal.cli import check as surroundings
from canal.config import InstanceConfig
from canal.errors import CanalError, ConfigError, NotActiveError, StateError
from canal.filter import TableFilter
from canal.instance.instance import Instance
from canal.model import Message
from canal.parse.source.mysql import MySQLSource
from canal.pipes import pipe
from canal.pipes.rules import Rules
from canal.server.configuration.sources import DirectorySource
from canal.server.server import Server
from canal.targets import look as target_look
from canal.targets.protocol import Guarantee

log = logging.getLogger("canal")

#: Called with a destination and a message, which is acked when it returns.
Handler = Callable[[str, Message], Any]

#: Seconds between two looks at which destinations there are, and before one that failed is tried again, at first and at most.
_LOOK, _FIRST_PAUSE, _PAUSE = 0.2, 0.5, 30.0
#: Tables of a target that are looked at, at most.
_LOOKED_AT = 100


def handler(name: str) -> Handler:
    """The function that MODULE:FUNCTION names; modules are looked for in the working directory too. Raises ConfigError."""
    module, colon, function = name.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"the handler {name!r} cannot be imported: {error}", remedy="Write MODULE:FUNCTION.") from error
    if not callable(found):
        raise ConfigError(f"the handler {name!r} cannot be called")
    return found  # type: ignore[no-any-return]


def check(source: DirectorySource, tell: Callable[[str], None]) -> int:
    """Tell of each destination whether it can be used; gives the exit status."""
    failed = 0
    for name in source.files.destinations():
        try:
            source.files.config(name)
            source.files.pipe(name)
        except CanalError as error:
            failed, error.destination = 1, ""  # it is named once
            tell(f"{name}: {error}")
            continue
        tell(f"{name}: can be used")
        for key, reason in source.files.notes(name).items():
            tell(f"  {key} has no meaning here: {reason}")
    return failed


def look_at(source: DirectorySource) -> Iterator[tuple[str, Finding]]:
    """What is found of each destination's source, standby, ZooKeeper, cursors and target, behind its name."""
    for name in source.files.destinations():
        try:
            config, piped = source.files.config(name), source.files.pipe(name)
        except CanalError as error:
            yield f"{name}  ", Finding("destination", "error", error.message, error.remedy)
            continue
        for part, one in _parts(name, config, piped):
            yield f"{name} {part}  ", one


def _parts(name: str, config: InstanceConfig, piped: dict[str, Any] | None) -> Iterator[tuple[str, Finding]]:
    target = None if piped is None else piped["target"]
    yield from surroundings.look(config, target is not None and target.guarantee is Guarantee.ONCE)
    if piped is not None:
        yield from surroundings.tried("target", _target, name, config, piped)


def _target(name: str, config: InstanceConfig, piped: dict[str, Any]) -> list[Finding]:
    own, tables = config.source, []
    if isinstance(own, MySQLSource):
        try:
            tables = _tables(own, config.table_filter(), Rules(piped["rules"]))
        except CanalError:  # as the look at the source tells
            pass
    return target_look.look(piped["target"], piped.get("stream") or name, tables)


def _tables(source: MySQLSource, accepted: TableFilter, rules: Rules) -> list[str]:
    """What the target calls the source's tables that a filter takes, not more than somebody would read of."""
    with closing(source.connect()) as connection:
        names = [name for name in connection.table_names() or () if accepted.accepts(*name)]
    return list(filter(None, dict.fromkeys(rules.name_of(".".join(name)) for name in names)))[:_LOOKED_AT]


def run(source: DirectorySource, handler: Handler, interval: float | None = None) -> int:
    """Start all destinations and hand their messages to ``handler`` until the process is told to end; gives the exit status.

    Of a destination with a pipe the changes go there instead.

    Destinations that the configuration gets later are read too. What the handler raises stops that destination's reading for a
    while, with what was in hand rolled back. One whose options prove wrong is not read until they are changed.

    Raises:
        ConfigError: the options of every destination are wrong.
        CanalError: none can be started.
    """
    files: Any = source.files
    server = Server()
    server.stop_on_signals()
    readers: dict[str, threading.Thread] = {}
    refused: dict[str, tuple[str, ConfigError]] = {}  # with the digest of the configuration
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
    """Read one destination until it is gone, the server stops, or its options prove wrong."""
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
        except (StateError, NotActiveError):  # stopped, or started anew with another configuration
            pause = _LOOK
        except ConfigError as error:
            log_alarm(destination, f"it is not read until its configuration is changed: {error}")
            error.destination = error.destination or destination
            refused[destination] = digest, error
            _stop(server, destination)
            return
        except Exception as error:
            if time.monotonic() - began > _PAUSE:
                wait = _FIRST_PAUSE
            log_alarm(destination, f"it is not read, again in {wait:g} s: {type(error).__name__}: {error}")
            if not isinstance(error, CanalError):
                log.exception("[%s] the handler failed", destination)
            if instance is not None and instance.error is not None:  # its parser reads again after a new start only
                _stop(server, destination)
            pause, wait = wait, min(2 * wait, _PAUSE)
        if server.wait(pause):
            return


def _stop(server: Server, destination: str) -> None:
    with contextlib.suppress(CanalError):  # it is stopped already
        server.stop(destination)
