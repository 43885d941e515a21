"""What a Python contestant counts: rows, ids, time, processor time, at the first change, at half and at the end."""

from __future__ import annotations

import json
import resource
import time
from pathlib import Path
from typing import Any

from benchmarks.values import checksum


def cpu() -> float:
    """Seconds of this process and of programs that it has run."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def peak_mib() -> float:
    """Most resident memory so far. Not ru_maxrss, which begins with what the parent process had."""
    return _memory("VmHWM")


def _memory(name: str) -> float:
    with open("/proc/self/status") as status:
        return int(next(line for line in status if line.startswith(name)).split()[1]) / 1024


class Meter:
    """Made when the imports are done and before the connection is. ``rows`` and ``ids`` are the contestant's to count."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.job = job
        self.want: int = job["rows"]
        self.rows = self.ids = self.checksum = 0
        #: Whether each row is to be given to ``look``, which a run for speed does not want.
        self.watch: bool = job["check"] or bool(job["latencies"])
        self.kinds: list[str] = job["kinds"].split(",")
        self._seen: list[tuple[int, int]] = []
        self._first = 0.0
        self._half: tuple[int, float, float] | None = None
        self._idle = _memory("VmRSS")
        self._cpu, self._time = cpu(), time.perf_counter()

    def look(self, before: Any, after: Any) -> None:
        """At one row: its time, or every value of both images."""
        if self.job["latencies"]:
            self._seen.append((after[0], time.time_ns()))
            return
        self.checksum += checksum(self.kinds, after)
        if before is not None:
            self.checksum += checksum(self.kinds, before, 1 + len(self.kinds))

    def more(self) -> bool:
        """After each event or batch: whether rows are still wanted."""
        if self.rows and not self._first:
            self._first = time.perf_counter() - self._time
        if self._half is None and self.rows >= self.want // 2:
            self._half = self.rows, time.perf_counter() - self._time, cpu() - self._cpu
        return self.rows < self.want

    def end(self, values: bool = True) -> None:
        """Print the result; without ``values`` the contestant has only counted rows."""
        seconds, used = time.perf_counter() - self._time, cpu() - self._cpu
        rows, half_seconds, half_cpu = self._half or (0, 0.0, 0.0)
        if self._seen:
            Path(self.job["latencies"]).write_text("".join(f"{id} {at}\n" for id, at in self._seen))
        result = {
            "rows": self.rows,
            "ids": self.ids if values else None,
            "checksum": self.checksum if values else None,
            "seconds": seconds,
            "cpu_seconds": used,
            "half_rows": rows,
            "half_seconds": half_seconds,
            "half_cpu": half_cpu,
            "first_seconds": self._first,
            "peak_mib": peak_mib(),
            "idle_mib": self._idle,
        }
        print("RESULT " + json.dumps(result), flush=True)
