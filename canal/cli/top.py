"""``canal top``: shows the destinations of a :func:`canal.cli.web.app` page or of ZooKeeper on a terminal.

Never changes anything and escapes control characters.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from typing import Any, Final

from canal.cli.ha import zookeeper
from canal.errors import ConfigError, ConnectionLostError, visible
from canal.ha import overview
from canal.ha.overview import DestinationOverview
from canal.status import utc

#: Maximum size of a status document.
_MOST_BYTES: Final = 64 << 20

Rates = dict[str, tuple[float, int]]


def options(commands: Any) -> None:
    top = commands.add_parser(
        "top",
        help="watch destinations",
        description="Watch the destinations of a process that serves canal.cli.web.app, or those in ZooKeeper.",
        epilog="Ctrl-C ends it. CANAL_PAGE_AUTHORIZATION is the Authorization header. CANAL_ZOOKEEPER_AUTH has credentials such "
        "as digest:user:password.",
    )
    top.add_argument("source", help="http://host:port/path/ of the page, or ZooKeeper's members, such as zk1:2181,zk2:2181")
    top.add_argument("--interval", type=float, default=2.0, metavar="SECONDS", help="seconds between updates (default: 2)")
    top.add_argument("--once", action="store_true", help="print once and exit")
    top.add_argument("--root", default="/otter/canal", help="root of ZooKeeper's tree (default: /otter/canal)")
    top.add_argument("--timeout", type=float, default=10.0, metavar="SECONDS", help="seconds to wait for an answer")
    top.add_argument("--verbose", action="store_true", help="log what the library does")
    top.set_defaults(run=_top)


def _top(options: argparse.Namespace) -> int:
    if is_page(options.source):
        rates: Rates = {}

        def look() -> tuple[list[tuple[str, ...]], list[str]]:
            found = read_page(options.source, options.timeout)
            return page_rows(found, rates), found["problems"]

        return show(look, options.interval, options.once)
    options.hosts = options.source
    with zookeeper(options) as session:

        def look() -> tuple[list[tuple[str, ...]], list[str]]:
            found = [overview.look_at(session, name) for name in overview.destinations(session)]
            return overview_rows(found, time.time()), [sentence for one in found for sentence in one.damaged]

        return show(look, options.interval, options.once)


def is_page(source: str) -> bool:
    """Return if the source is the address of a page."""
    return source.startswith(("http://", "https://"))


def read_page(url: str, timeout: float) -> dict[str, Any]:
    """Return the status document of the page.

    Raises:
        ConnectionLostError: the page does not answer.
        ConfigError: the address is not a page of canal.
    """
    try:
        address = urllib.request.Request(f"{url.rstrip('/')}/status.json")
        if authorization := os.environ.get("CANAL_PAGE_AUTHORIZATION"):
            address.add_unredirected_header("Authorization", authorization)
        with urllib.request.urlopen(address, timeout=timeout) as answer:
            found = json.loads(answer.read(_MOST_BYTES))
    except urllib.error.HTTPError as error:
        error.close()
        raise ConfigError(
            f"the page answers {error.code} {error.reason}", remedy="Use the address of canal.cli.web.app."
        ) from error
    except (OSError, urllib.error.URLError) as error:
        raise ConnectionLostError(f"the page does not answer: {getattr(error, 'reason', error)}") from error
    except ValueError as error:
        raise ConfigError("the address is no page of canal", remedy="Use the address of canal.cli.web.app.") from error
    if not isinstance(found, dict) or "instances" not in found:
        raise ConfigError("the address is no page of canal", remedy="Use the address of canal.cli.web.app.")
    return found


#: Width of lines to a file or pipe, so that none is truncated.
_UNCUT: Final = 1000

HEAD: Final = ("destination", "state", "client", "acked", "behind", "not acked", "p99", "complete up to", "rows/s")


def page_rows(found: dict[str, Any], rates: Rates) -> list[tuple[str, ...]]:
    """Return a row per client, or one row if a destination has none. ``rates`` stores the previous counters."""
    rows: list[tuple[str, ...]] = []
    for one in found["instances"]:
        store = one["store"] or {}
        counted, before = store.get("put_rows", 0), rates.get(one["destination"])
        rates[one["destination"]] = one["at"], counted
        rate = ""
        if before is not None and one["at"] > before[0] and counted >= before[1]:
            rate = f"{(counted - before[1]) / (one['at'] - before[0]):.0f}"
        state = one["state"] + (f", {one['role']}" if one["role"] else "")
        head = (one["destination"], state)
        for client in one["clients"]:
            latency = client["latency"]
            rows.append(
                (
                    *head,
                    str(client["client_id"]),
                    _position(client["acked"]),
                    _seconds(client["lag"]["seconds"]),
                    "" if client["unacked_entries"] is None else str(client["unacked_entries"]),
                    _seconds(latency["p99"], 3) if latency else "",
                    utc(client["complete_to"]) if client["complete_to"] else "",
                    rate,
                )
            )
            head, rate = ("", ""), ""
        if not one["clients"]:
            rows.append((*head, "", "", _seconds(one["lag"]["seconds"]), "", "", "", rate))
    return rows + [(name, "not started", *[""] * 7) for name in found["not_started"]]


def overview_rows(found: Iterable[DestinationOverview], now: float) -> list[tuple[str, ...]]:
    """Return the rows for destinations in ZooKeeper."""
    rows: list[tuple[str, ...]] = []
    for one in found:
        head = (one.name, f"on {one.owner}, {len(one.standbys)} stand by" if one.owner else "no process")
        for client in one.clients:
            cursor = client.cursor
            position = "" if cursor is None else f"{cursor.journal}:{cursor.offset}" if cursor.journal else cursor.gtid
            rows.append((*head, str(client.id), position, _seconds(client.behind(now)), "", "", "", ""))
            head = ("", "")
        if not one.clients:
            rows.append((*head, *[""] * 7))
    return rows


def _position(position: dict[str, Any]) -> str:
    return f"{position['journal']}:{position['offset']}" if position["journal"] else str(position["gtid"])


def _seconds(value: float | None, digits: int = 1) -> str:
    return "" if value is None else f"{value:.{digits}f} s"


def show(look: Callable[[], tuple[list[tuple[str, ...]], list[str]]], interval: float, once: bool) -> int:
    """Show rows and problems repeatedly. Return the exit status of the last update.

    Raises:
        ConfigError: rich is not installed, or the interval is not above 0.
    """
    if not interval > 0:
        raise ConfigError(f"--interval must be above 0, not {interval:g}")
    try:
        from rich.console import Console, Group
        from rich.live import Live
        from rich.table import Table
        from rich.text import Text
    except ImportError as error:
        raise ConfigError("canal top needs the package rich", remedy="pip install 'canal-cdc[cli]'.") from error

    def drawn() -> tuple[Group, int]:
        rows, problems = look()
        table = Table(*HEAD, box=None, pad_edge=False, header_style="bold")
        for row in rows:
            table.add_row(*(Text(visible(cell)) for cell in row))
        lines = [Text(visible(problem), style="red") for problem in problems]
        return Group(Text(f"canal top  {utc(time.time())}", style="dim"), table, *lines), 1 if problems else 0

    console = Console()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console = Console(width=_UNCUT)
    if once or not console.is_terminal:
        group, status = drawn()
        console.print(group)
        return status
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            try:
                group, _ = drawn()
            except ConnectionLostError as error:  # the process may restart
                group = Group(Text(visible(str(error)), style="red"))
            live.update(group, refresh=True)
            time.sleep(interval)
