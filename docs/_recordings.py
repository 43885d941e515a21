"""Record `canal tail` and `canal top` as pictures: `python docs/_recordings.py` writes docs/pictures/{tail,top}.svg.

What `canal tail` shows is read from a fake server; the page that `canal top` shows is given here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import redirect_stderr
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any, TextIO, cast
from unittest import mock

import rich.console

from canal.cli import top
from canal.cli.main import main
from canal.testing import FakeBinlog

FOLDER = Path(__file__).parent / "pictures"
NOW = 1_795_687_200.0  # 2026-11-26T10:00:00Z


def record(name: str, width: int, command: str, run: Callable[[rich.console.Console], object]) -> str:
    """Return the picture of a command's output."""
    console = rich.console.Console(
        record=True,
        file=StringIO(),
        force_terminal=True,
        color_system="truecolor",
        width=width,
        height=40,
        highlight=False,
        legacy_windows=False,
        _environ={},
    )
    console.print(f"[green]$[/] {command}", soft_wrap=True)
    with mock.patch("rich.console.Console", return_value=console):
        run(console)
    svg = console.export_svg(title="", unique_id=name)  # without the font from a CDN
    return re.sub(r"[ \t]+$", "", re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL), flags=re.MULTILINE)


def tail(console: rich.console.Console) -> None:
    now = [NOW]
    shop = FakeBinlog(clock=lambda: now[0])
    columns = "id INT PRIMARY KEY, status VARCHAR(10), total DECIMAL(10,2)"
    orders = shop.table("shop", "orders", columns)
    items = shop.table("shop", "items", "order_id INT, product VARCHAR(20), amount INT, PRIMARY KEY (order_id, product)")
    with shop.transaction():
        orders.insert({"id": 1, "status": "new", "total": "29.40"})
        items.insert({"order_id": 1, "product": "coffee", "amount": 2}, {"order_id": 1, "product": "filter", "amount": 1})
    now[0] += 4
    orders.update({"id": 1, "status": "new", "total": "29.40"}, {"status": "paid"})
    now[0] += 11
    orders.alter("ALTER TABLE shop.orders ADD COLUMN note TEXT", f"{columns}, note TEXT")
    with shop.transaction():
        orders.update({"id": 1, "status": "paid", "total": "29.40", "note": None}, {"status": "sent", "note": "at the door"})
        items.delete({"order_id": 1, "product": "filter", "amount": 1})
    with shop.serve() as server, redirect_stderr(cast(TextIO, _Greeting(console, server.port))):
        main(["tail", f"mysql://canal:x@127.0.0.1:{server.port}/shop", "--start", "earliest", "--limit", "6"])


class _Greeting:
    """Return the standard error of a terminal connected to db1."""

    def __init__(self, console: rich.console.Console, port: int) -> None:
        self._console, self._port = console, port

    def write(self, text: str) -> None:
        self._console.print(text.replace(f"127.0.0.1:{self._port}", "db1:3306"), end="", markup=False, soft_wrap=True)

    def flush(self) -> None:
        pass


def client(number: int, offset: int, lag: float, unacked: int, p99: float) -> dict[str, Any]:
    return {
        "client_id": number,
        "acked": {"journal": "binlog.000042", "offset": offset, "gtid": ""},
        "lag": {"seconds": lag},
        "unacked_entries": unacked,
        "latency": {"p99": p99},
        "complete_to": NOW - lag,
    }


def page(at: float) -> dict[str, Any]:
    """Return the status of a process with running, failed and stopped destinations."""
    orders = [client(1001, 81_904_117, 0.0, 12, 0.041), client(1002, 81_377_902, 1.2, 3_806, 1.63)]
    seconds = at - NOW + 2
    return {
        "problems": ["stock: cannot connect to db3:3306 as 'canal': Access denied for user 'canal'@'10.0.0.7'"],
        "instances": [
            {
                "destination": name,
                "at": at,
                "state": state,
                "role": role,
                "store": {"put_rows": int(rate * seconds)},
                "lag": {"seconds": None},
                "clients": clients,
            }
            for name, state, role, rate, clients in (
                ("orders", "streaming", "active", 18_412, orders),
                ("customers", "stopped", "standby", 0, []),
                ("stock", "failed", None, 0, [client(1001, 4_117, 312.4, 0, 0.018)]),
            )
        ],
        "not_started": ["archive"],
    }


def show_top(console: rich.console.Console) -> None:
    rates: top.Rates = {}
    top.page_rows(page(NOW - 2), rates)
    found = page(NOW)
    with mock.patch.object(top.time, "time", return_value=NOW):
        top.show(lambda: (top.page_rows(found, rates), found["problems"]), 2.0, once=True)


RECORDINGS = {
    "tail": partial(record, "tail", 106, "canal tail mysql://canal@db1/shop --start earliest", tail),
    "top": partial(record, "top", 126, "canal top http://127.0.0.1:8000/", show_top),
}

if __name__ == "__main__":
    for name, draw in RECORDINGS.items():
        (FOLDER / f"{name}.svg").write_text(draw(), "utf-8")
