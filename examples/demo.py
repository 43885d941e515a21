"""The main job in one process, no server needed: changes of a small shop, an ack, a rollback, a restart that resumes.

python examples/demo.py
"""

from __future__ import annotations

import tempfile
import threading
import time
from decimal import Decimal
from pathlib import Path

import canal
from canal.testing import FakeBinlog

try:
    from rich.console import Console

    show_line = Console(soft_wrap=True).print
    BOLD = "[bold]{}[/bold]"
except ImportError:
    show_line, BOLD = print, "{}"

COLUMNS = "id INT UNSIGNED PRIMARY KEY, customer VARCHAR(40), price DECIMAL(10,2), status ENUM('new','paid','sent')"


class Shop:
    """A shop whose orders change while we watch: FakeBinlog writes what a server's binary log would hold."""

    def __init__(self) -> None:
        self.log = FakeBinlog(flavor="mysql")
        self.orders = self.log.table("shop", "orders", COLUMNS)
        self.rows: dict[int, dict[str, object]] = {}

    def order(self, number: int, customer: str, price: str) -> None:
        row = {"id": number, "customer": customer, "price": Decimal(price), "status": "new"}
        self.orders.insert(row)
        self.rows[number] = row

    def set_status(self, number: int, status: str) -> None:
        before, after = self.rows[number], {**self.rows[number], "status": status}
        self.orders.update(before, after)
        self.rows[number] = after

    def cancel(self, number: int) -> None:
        self.orders.delete(self.rows.pop(number))

    def open_for_a_while(self) -> None:
        """What happens in the shop, as a thread."""
        for number, (customer, price) in enumerate((("Ada", "12.50"), ("Grace", "99.00"), ("Edsger", "7.25")), 1):
            self.order(number, customer, price)
            time.sleep(0.15)
            self.set_status(number, "paid")
            time.sleep(0.15)
        self.cancel(3)


def title(text: str) -> None:
    show_line("\n" + BOLD.format(text))


def show(message: canal.Message) -> None:
    for entry in message.entries:
        for row in entry.rows:
            if row.before is None:
                show_line(f"   batch {message.id}:  + {row.after.as_dict()}")
            elif row.after is None:
                show_line(f"   batch {message.id}:  - {row.before.as_dict()}")
            else:
                changed = {n: f"{row.before[n]} → {v}" for n, v in row.after.as_dict().items() if v != row.before[n]}
                show_line(f"   batch {message.id}:  ~ id {row.after['id']} {changed}")


def main() -> None:
    shop = Shop()
    with tempfile.TemporaryDirectory() as directory:
        config = canal.InstanceConfig(destination="demo", source=shop.log, filter=r"shop\..*", meta=canal.FileMeta(directory))
        show_line(f"canal {canal.__version__}, {'compiled' if canal.compiled else 'interpreted'}")

        title("1. An Instance follows the shop's binary log; each batch is acked")
        with canal.Instance(config) as instance:
            instance.subscribe()
            staff = threading.Thread(target=shop.open_for_a_while)
            staff.start()
            changes = 0
            while changes < 7:
                message = instance.get_without_ack(batch_size=100, timeout=1.0)
                show(message)
                changes += message.row_count
                instance.ack(message.id)
            staff.join()
            show_line(f"   the cursor is at {instance.position()}, in {Path(directory, 'demo', 'meta.dat').name}")

            title("2. A batch that fails is rolled back, and comes again")
            shop.set_status(2, "sent")
            message = instance.get_without_ack(batch_size=100, timeout=1.0)
            show(message)
            instance.rollback(message.id)
            show_line("   rolled back")
            show(instance.get_without_ack(batch_size=100, timeout=1.0))
            show_line("   … and now the process ends, before it acks")

        title("3. A new Instance resumes at the last ack: the change comes once more, and one made meanwhile")
        shop.order(4, "Barbara", "31.40")
        with canal.Instance(config) as instance:
            instance.subscribe()
            while instance.position().offset != shop.log.position.offset:
                message = instance.get_without_ack(batch_size=100, timeout=1.0)
                show(message)
                instance.ack(message.id)
            title("4. How it stands")
            show_line(str(instance.status(source_timeout=1.0)))

    title("Now with a server of your own")
    show_line(
        "   Look at one:\n"
        "     .venv/bin/canal check mysql://user@host:3306/\n"
        "     .venv/bin/canal tail mysql://user@host:3306/\n"
        "   Follow one from Python:\n"
        "     with canal.connect('mysql://user:password@host/database') as instance:\n"
        "         for change in instance.changes():\n"
        "             print(change.table, change.op, change.before, change.after)\n"
        "   The server needs binlog_format=ROW (and better binlog_row_metadata=FULL), the user REPLICATION SLAVE,\n"
        "   REPLICATION CLIENT and SELECT. README.md goes on from here."
    )


if __name__ == "__main__":
    main()
