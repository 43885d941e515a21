"""Reads one large transaction and prints what memory that took.

python -m tests.programs.memory_child PORT USER PASSWORD ROWS BUDGET
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import canal


def peak() -> int:
    """Most resident bytes so far. Not ru_maxrss, which begins with what the parent process had."""
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) * 1024


def main() -> None:
    port, user, password, rows, budget = sys.argv[1:]
    config = canal.InstanceConfig(
        destination="memory",
        source=canal.MySQLSource(host="127.0.0.1", port=int(port), user=user, password=password, get_server_public_key=True),
        filter=r"big\.t",
        start="earliest",
        store_bytes=int(budget),
    )
    seen = total = pieces = 0
    with canal.Instance(config) as instance:
        before = peak()
        instance.subscribe()
        while seen < int(rows):
            message = instance.get_without_ack(5000, timeout=60.0)
            assert message, f"nothing more after {seen} rows"
            for entry in message.entries:
                pieces = max(pieces, entry.part)
                for row in entry.rows:
                    seen += 1
                    total += row.after[0]
            instance.ack(message.id)
        position = instance.position()
    print(json.dumps({"rows": seen, "total": total, "pieces": pieces, "grown": peak() - before, "row": position.row}))


if __name__ == "__main__":
    main()
