"""``canal ha``: shows owners and standbys of destinations in ZooKeeper, and releases them."""

from __future__ import annotations

import argparse
import json
import logging
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from typing import Any

import canal
from canal.errors import visible
from canal.ha import overview
from canal.zookeeper.session import ROOT, Session


def options(commands: Any) -> None:
    ha = commands.add_parser("ha", help="manage destinations with high availability")
    actions = ha.add_subparsers(dest="action", required=True)
    status = actions.add_parser("status", help="show owners, standbys and clients")
    release = actions.add_parser("release", help="hand a destination over to another process")
    adopt = actions.add_parser("adopt", help="count turns on from those of another ZooKeeper, root or destination")
    adopt.add_argument("--epoch", type=int, required=True, help="number of the last turn there, from the error of a pipe")
    for command in (status, release, adopt):
        command.add_argument("hosts", metavar="ZK_HOSTS", help="ZooKeeper's members, such as zk1:2181,zk2:2181,zk3:2181")
        command.add_argument(
            "destination", metavar="DESTINATION", nargs="?" if command is status else None, help="name of the destination"
        )
        command.add_argument("--root", default=ROOT, help=f"root of the tree (default: {ROOT})")
        seconds = 60.0 if command is release else 10.0
        command.add_argument("--timeout", type=float, default=seconds, metavar="SECONDS", help="seconds to wait")
        command.add_argument("--verbose", action="store_true", help="log what the library does")
        command.epilog = "CANAL_ZOOKEEPER_AUTH has the credentials, such as digest:user:password."
    status.add_argument("--json", action="store_true", help="print a JSON array of destinations")
    status.set_defaults(run=_status)
    release.set_defaults(run=_release)
    adopt.set_defaults(run=_adopt)


@contextmanager
def zookeeper(options: argparse.Namespace) -> Iterator[Session]:
    scheme, _, credential = os.environ.get("CANAL_ZOOKEEPER_AUTH", "").partition(":")
    auth = [(scheme, credential)] if scheme else []
    session = Session(canal.ZooKeeper(hosts=options.hosts, root=options.root, auth=auth))
    kazoo = logging.getLogger("canal.ha.kazoo")
    with ExitStack() as leaving:
        if not options.verbose:
            leaving.callback(kazoo.setLevel, kazoo.level)
            kazoo.setLevel(logging.CRITICAL)
        leaving.callback(session.close)
        session.open()
        if not session.wait_connected(min(options.timeout, 10.0)):
            raise canal.CoordinationError(
                f"ZooKeeper at {options.hosts} does not answer",
                remedy="Check the addresses, and that a majority of the members runs.",
            )
        yield session


def _status(options: argparse.Namespace) -> int:
    with zookeeper(options) as session:
        names = [options.destination] if options.destination else overview.destinations(session)
        found = [overview.look_at(session, name) for name in names]
    now = time.time()
    if options.json:
        print(json.dumps([_document(one, now) for one in found], indent=2))
    elif not found:
        print(f"no destination under {options.root}")
    else:
        print("\n".join(visible(line) for one in found for line in _lines(one, now)))
    return 1 if any(one.damaged for one in found) else 0


def _release(options: argparse.Namespace) -> int:
    with zookeeper(options) as session:
        old, new = overview.release(session, options.destination, options.timeout)
    print(visible(f"{options.destination}: {old} has let go, {new.owner} runs it (epoch {new.epoch})"))
    return 0


def _adopt(options: argparse.Namespace) -> int:
    with zookeeper(options) as session:
        last = overview.adopt(session, options.destination, options.epoch)
    print(visible(f"{options.destination}: the next turn is {last + 1}"))
    return 0


def _document(one: overview.DestinationOverview, now: float) -> dict[str, Any]:
    return {
        "destination": one.name,
        "owner": one.owner or None,
        "active": one.active,
        "since": _moment(one.since) if one.owner else None,
        "epoch": one.epoch,
        "members": list(one.members),
        "clients": [
            {
                "id": client.id,
                "filter": client.filter,
                "cursor": json.loads(client.cursor.to_text()) if client.cursor else None,
                "acked": _moment(client.acked) if client.acked else None,
                "behind_at_most_s": client.behind(now),
            }
            for client in one.clients
        ],
        "damaged": list(one.damaged),
    }


def _lines(one: overview.DestinationOverview, now: float) -> Iterator[str]:
    yield one.name
    if one.owner:
        asked = "" if one.active else "  (asked to let go)"
        yield f"  runs on   {one.owner}  since {_moment(one.since)} ({now - one.since:.0f} s)  epoch {one.epoch}{asked}"
    else:
        yield f"  runs on   no process  epoch {one.epoch}"
    for member in one.standbys:
        yield f"  stands by {member}"
    for client in one.clients:
        yield f"  client {client.id}" + (f"  filter {client.filter}" if client.filter else "")
        if client.cursor is None:
            yield "    a cursor that cannot be read" if client.problem else "    no cursor"
            continue
        behind = client.behind(now)
        yield f"    acked     {client.cursor}" + (f"  at {_moment(client.acked)}" if client.acked else "")
        if behind is not None:
            yield f"    behind    {behind:.1f} s at most: the last change that was acked is as old"
    for sentence in one.damaged:
        yield f"  damaged   {sentence}"


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
