"""A look at what a destination needs beside its target: its servers, ZooKeeper, and the folder of its cursors.

Never makes a file or a node, and locks nothing: whoever runs now is not disturbed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from canal._util.findings import Finding
from canal.config import InstanceConfig
from canal.errors import CanalError, CursorError, UnknownDestinationError
from canal.ha import overview
from canal.meta import FileMeta, MemoryMeta, document
from canal.parse.source import preflight
from canal.parse.source.mysql import MySQLSource
from canal.zookeeper.session import Session, ZooKeeper

#: Seconds that ZooKeeper has to answer.
_PATIENCE: Final = 10.0
#: What a destination's node must allow, as ZooKeeper's zkCli.sh writes it.
_RIGHTS: Final = "cdrw"


def look(config: InstanceConfig, keeps_progress: bool) -> Iterator[tuple[str, Finding]]:
    """What was found, each with the part that it is of.

    Args:
        keeps_progress: the target of a pipe keeps how far it is.
    """
    for member, one in (config.members() or {"": config}).items():
        for part, server in (("source", one.source), ("standby", one.standby)):
            if isinstance(server, MySQLSource):
                yield from tried(f"{member} {part}".strip(), preflight.look, server, one.table_filter())
    if config.ha is not None:
        yield from tried("zookeeper", _zookeeper, config.ha, config.destination)
    if isinstance(config.meta, FileMeta):
        yield from tried("cursors", _folder, config.meta.directory, config.destination)
    elif type(config.meta) is MemoryMeta and not keeps_progress:
        text = f"they are kept in memory: each start begins at {config.start!r} again."
        yield "cursors", Finding("meta", "warning", text, 'Write meta = "/a/folder" to go on behind the last ack.')


def tried(part: str, look: Callable[..., Iterable[Finding]], *arguments: Any) -> Iterator[tuple[str, Finding]]:
    """What a look finds; what it raises is an error of its part alone."""
    try:
        for one in look(*arguments):
            yield part, one
    except CanalError as error:
        yield part, Finding("reachable", "error", f"{error.message}.", error.remedy)


# -- ZooKeeper ------------------------------------------------------------------------------------------------------------


def _zookeeper(config: ZooKeeper, destination: str) -> Iterator[Finding]:
    session = Session(config)
    with closing(session):
        session.open()
        if not session.wait_connected(min(config.session_timeout, _PATIENCE)):
            text = f"ZooKeeper at {config.hosts} does not answer: {session.problem}."
            yield Finding("server", "error", text, "Check the addresses, and that a majority of its members runs.")
            return
        yield Finding("server", "ok", f"{config.hosts} answers; a session lives for {session.timeout:g} s")
        path = config.destination_path(destination)
        while (rights := session.rights(path)) is None and path not in ("", "/"):
            path = path.rpartition("/")[0] or "/"
        if rights is None:
            parent, _, chroot = config.hosts.partition("/")
            text = f"there is no node /{chroot}, which is named behind the addresses."
            yield Finding("node", "error", text, f"Make it: zkCli.sh -server {parent} create /{chroot}")
            return
        is_there = path == config.destination_path(destination)
        missing = [one for one in (_RIGHTS if is_there else "cr") if one not in rights] if "?" not in rights else []
        if missing:  # then nothing below it can be read
            text = f"{path} does not allow {''.join(missing)} with these credentials."
            yield Finding("rights", "error", text, "Give auth the credentials of its ACL, or let their owner change it (setAcl).")
            return
        if "?" in rights:
            yield Finding("rights", "ok", f"not told: the ACL of {path} is for logins that ZooKeeper knows in another way")
        else:
            yield Finding("rights", "ok", f"{path} can be written")
        yield from _turns(session, destination)


def _turns(session: Session, destination: str) -> Iterator[Finding]:
    """Who runs the destination, where somebody does."""
    try:
        found = overview.look_at(session, destination)
    except UnknownDestinationError:
        yield Finding("turns", "ok", "no process has run the destination yet: its nodes are made by the first")
        return
    owner = f"{found.owner} runs it" if found.owner else "no process runs it now"
    yield Finding("turns", "ok", f"{owner}, {len(found.standbys)} stand by")
    for text in found.damaged:
        yield Finding("nodes", "error", f"{text}.", "docs/high-availability.md tells what to do.")


# -- a folder --------------------------------------------------------------------------------------------------------------


def writable(folder: Path) -> str:
    """What keeps this process from writing into a folder, or from making it; "" for nothing."""
    above = next(one for one in (folder, *folder.absolute().parents) if os.path.exists(one))
    if not above.is_dir():
        return f"{above} is no folder."
    if not os.access(above, os.W_OK | os.X_OK):
        return f"this user may not write into {above}."
    return "" if os.statvfs(above).f_bavail else f"the disk of {above} is full."


def _folder(directory: Path, destination: str) -> Iterator[Finding]:
    folder = directory / destination
    if problem := writable(folder):
        yield Finding("meta", "error", problem, f"Let this user write there, such as by chown or mkdir of {directory}.")
        return
    is_there = os.path.exists(folder)
    yield Finding("meta", "ok", f"{folder} can be written" if is_there else f"{folder} is not there yet, and is made")
    found = [path for name in ("meta.dat", "meta.dat.bak") if os.path.exists(path := folder / name)]
    problems = []
    for path in found:
        try:
            clients = document.load(path.read_bytes(), destination, must_verify=path.suffix == ".bak")
        except CursorError as error:
            problems.append(f"{path} cannot be used ({error.message})")
            continue
        except OSError as error:
            yield Finding("cursor", "error", f"{path} cannot be read: {error.strerror}.", "Let this user read and write it.")
            return
        if problems:
            yield Finding("cursor", "warning", f"{problems[0]}: it goes on from {path.name}.", "Changes may come again.")
        told = ", ".join(f"client {id} is at {one.cursor or 'no position yet'}" for id, one in clients.items())
        yield Finding("cursor", "ok", told or "no client has subscribed yet")
        return
    if problems:
        yield Finding("cursor", "error", f"{'; '.join(problems)}.", f"Put a good copy back, or delete {folder} to begin anew.")
    else:
        yield Finding("cursor", "ok", "there is none yet")
