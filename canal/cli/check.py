"""``canal check``: checks a destination's servers, ZooKeeper, cursor directory and target.

Never creates a file or node and takes no lock, so that running processes are not disturbed.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from canal._util.findings import Finding
from canal.cli.arguments import is_url, server
from canal.config import InstanceConfig
from canal.errors import CanalError, ConfigError, CursorError, UnknownDestinationError, visible
from canal.filter import TableFilter
from canal.ha import overview
from canal.meta import FileMeta, MemoryMeta, document
from canal.parse.connect import purged_alone
from canal.parse.source import preflight
from canal.parse.source.logs import shortened
from canal.parse.source.mysql import URL_FORM, MySQLSource
from canal.pipes.rules import Rules
from canal.server.configuration.sources import DirectorySource
from canal.targets import look as target_look
from canal.targets.protocol import Guarantee
from canal.zookeeper.session import Session, ZooKeeper

#: Seconds to wait for ZooKeeper.
_PATIENCE: Final = 10.0
#: Maximum number of a target's tables to check.
_LOOKED_AT: Final = 100
#: Required rights on a destination's node, as zkCli.sh writes them.
_RIGHTS: Final = "cdrw"


def options(commands: Any) -> None:
    check = commands.add_parser(
        "check",
        help="check a server, and the target of a pipe, before the start",
        description="Check a server's settings and the user's privileges, and print remedies. For a file of `canal run`, check "
        "the sources and targets of all destinations.",
        epilog="The password comes from the URL, from CANAL_PASSWORD or a prompt. "
        "The exit status is 1 if an instance could not run.",
    )
    check.add_argument("source", help="mysql://user[:password]@host[:port]/[?ssl_mode=…], or a TOML file")
    check.add_argument("--verbose", action="store_true", help="log what the library does")
    check.set_defaults(run=_check)


def _check(options: argparse.Namespace) -> int:
    if is_url(options.source):
        found = [("", one) for one in preflight.look(server(options.source))]
    elif Path(options.source).exists():
        found = list(look_at(DirectorySource(options.source)))
    else:
        raise ConfigError(
            f"{options.source!r} is neither a URL nor an existing file", remedy=f"{URL_FORM}, or name an existing file"
        )
    for where, one in found:
        print(visible(f"{where}{one}"))
    return int(any(one.level == "error" for _, one in found))


def look_at(source: DirectorySource) -> Iterator[tuple[str, Finding]]:
    """Yield the findings of each destination, with its name and the part."""
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
    yield from look(config, target is not None and target.guarantee is Guarantee.ONCE)
    if piped is not None:
        yield from tried("target", _target, name, config, piped)


def _target(name: str, config: InstanceConfig, piped: dict[str, Any]) -> list[Finding]:
    own, tables = config.source, []
    if isinstance(own, MySQLSource):
        try:
            tables = _tables(own, config.table_filter(), Rules(piped["rules"]))
        except CanalError:  # the check of the source reports it
            pass
    return target_look.look(piped["target"], piped.get("stream") or name, tables)


def _tables(source: MySQLSource, accepted: TableFilter, rules: Rules) -> list[str]:
    """Return the target names of the source's filtered tables, limited in number."""
    with closing(source.connect()) as connection:
        names = [name for name in connection.table_names() or () if accepted.accepts(*name)]
    return list(filter(None, dict.fromkeys(rules.name_of(".".join(name)) for name in names)))[:_LOOKED_AT]


def look(config: InstanceConfig, keeps_progress: bool) -> Iterator[tuple[str, Finding]]:
    """Yield the findings of a config, each with its part.

    Args:
        keeps_progress: True if the target of a pipe stores the progress.
    """
    for member, one in (config.members() or {"": config}).items():
        for part, source in (("source", one.source), ("standby", one.standby)):
            if isinstance(source, MySQLSource):
                yield from tried(f"{member} {part}".strip(), preflight.look, source, one.table_filter())
        if isinstance(one.source, MySQLSource) and isinstance(one.standby, MySQLSource):
            yield from tried(f"{member} standby".strip(), _own_transactions, one.source, one.standby)
    if config.ha is not None:
        yield from tried("zookeeper", _zookeeper, config.ha, config.destination)
    if isinstance(config.meta, FileMeta):
        yield from tried("cursors", _folder, config.meta.directory, config.destination)
    elif type(config.meta) is MemoryMeta and not keeps_progress:
        text = f"cursors are kept in memory: each start begins at {config.start!r} again."
        yield "cursors", Finding("meta", "warning", text, 'Set meta = "/a/directory" to continue after the last ack.')


def tried(part: str, look: Callable[..., Iterable[Finding]], *arguments: Any) -> Iterator[tuple[str, Finding]]:
    """Yield the findings of a check. Yield its error as a finding of the part."""
    try:
        for one in look(*arguments):
            yield part, one
    except CanalError as error:
        yield part, Finding("reachable", "error", f"{error.message}.", error.remedy)


def _own_transactions(source: MySQLSource, standby: MySQLSource) -> Iterator[Finding]:
    try:
        with closing(standby.connect()) as connection:
            own = purged_alone(connection, source)
    except CanalError:  # each part reports its own error
        return
    if own:
        text = f"the standby has purged transactions that the source has never executed: {shortened(str(own))}."
        remedy = "A running process switches anyway. If the standby lacks changes of the source, replicate them first."
        yield Finding("gtid_purged", "warning", text, remedy)


# -- ZooKeeper ------------------------------------------------------------------------------------------------------------


def _zookeeper(config: ZooKeeper, destination: str) -> Iterator[Finding]:
    session = Session(config)
    with closing(session):
        session.open()
        if not session.wait_connected(min(config.session_timeout, _PATIENCE)):
            text = f"ZooKeeper at {config.hosts} does not answer: {session.problem}."
            yield Finding("server", "error", text, "Check the addresses, and that a majority of the members runs.")
            return
        yield Finding("server", "ok", f"{config.hosts} answers; the session timeout is {session.timeout:g} s")
        path = config.destination_path(destination)
        while (rights := session.rights(path)) is None and path not in ("", "/"):
            path = path.rpartition("/")[0] or "/"
        if rights is None:
            parent, _, chroot = config.hosts.partition("/")
            text = f"the chroot /{chroot} of the addresses does not exist."
            yield Finding("node", "error", text, f"Create it: zkCli.sh -server {parent} create /{chroot}")
            return
        is_there = path == config.destination_path(destination)
        missing = [one for one in (_RIGHTS if is_there else "cr") if one not in rights] if "?" not in rights else []
        if missing:  # nothing below it is readable
            text = f"these credentials lack the rights {''.join(missing)} on {path}."
            yield Finding(
                "rights", "error", text, "Set auth to credentials in its ACL, or let the owner change the ACL (setAcl)."
            )
            return
        if "?" in rights:
            yield Finding("rights", "ok", f"unknown: the ACL of {path} names logins of another scheme")
        else:
            yield Finding("rights", "ok", f"{path} is writable")
        yield from _turns(session, destination)


def _turns(session: Session, destination: str) -> Iterator[Finding]:
    """Yield the owner and the standbys of the destination."""
    try:
        found = overview.look_at(session, destination)
    except UnknownDestinationError:
        yield Finding("turns", "ok", "no process has run the destination yet: the first creates its nodes")
        return
    owner = f"{found.owner} runs it" if found.owner else "no process runs it now"
    yield Finding("turns", "ok", f"{owner}, {len(found.standbys)} stand by")
    for text in found.damaged:
        yield Finding("nodes", "error", f"{text}.", "See docs/high-availability.md.")


# -- a directory --------------------------------------------------------------------------------------------------------------


def writable(folder: Path) -> str:
    """Return why this process cannot write to or create a directory, or ""."""
    above = next(one for one in (folder, *folder.absolute().parents) if os.path.exists(one))
    if not above.is_dir():
        return f"{above} is not a directory."
    if not os.access(above, os.W_OK | os.X_OK):
        return f"this user cannot write to {above}."
    return "" if os.statvfs(above).f_bavail else f"the disk of {above} is full."


def _folder(directory: Path, destination: str) -> Iterator[Finding]:
    folder = directory / destination
    if problem := writable(folder):
        yield Finding("meta", "error", problem, f"Let this user write there, for example by chown or mkdir of {directory}.")
        return
    is_there = os.path.exists(folder)
    yield Finding("meta", "ok", f"{folder} is writable" if is_there else f"{folder} is missing and will be created")
    found = [path for name in ("meta.dat", "meta.dat.bak") if os.path.exists(path := folder / name)]
    problems = []
    for path in found:
        try:
            clients = document.load(path.read_bytes(), destination, must_verify=path.suffix == ".bak")
        except CursorError as error:
            problems.append(f"{path} cannot be used ({error.message})")
            continue
        except OSError as error:
            yield Finding(
                "cursor", "error", f"{path} cannot be read: {error.strerror}.", "Let this user read and write the file."
            )
            return
        if problems:
            yield Finding("cursor", "warning", f"{problems[0]}: {path.name} is used instead.", "Changes may repeat.")
        told = ", ".join(f"client {id} is at {one.cursor or 'no position yet'}" for id, one in clients.items())
        yield Finding("cursor", "ok", told or "no client has subscribed yet")
        return
    if problems:
        yield Finding("cursor", "error", f"{'; '.join(problems)}.", f"Restore a good copy, or delete {folder} to start over.")
    else:
        yield Finding("cursor", "ok", "there is no cursor yet")
