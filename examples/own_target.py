"""A target of one's own: tables as dicts in one file, which a commit replaces as a whole.

python examples/own_target.py       # puts it through the suite
"""

from __future__ import annotations

import os
import pickle
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from canal.changes import TableState
from canal.targets import Guarantee, StateWork, conflict
from canal.testing import target_suite


class DictTarget:
    guarantee, scope, is_log = Guarantee.ONCE, "all", False

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def begin(self, stream: str) -> Iterator[DictWork]:
        yield DictWork(self.path, stream)


class DictWork(StateWork):
    def __init__(self, path: Path, stream: str) -> None:
        super().__init__()
        self.path, self.stream = path, stream

    def content(self) -> dict[str, Any]:
        return pickle.loads(self.path.read_bytes()) if self.path.exists() else {}

    def load(self, table: str) -> str | None:
        return self.content().get(f"progress of {self.stream}")

    def write(self, made: Sequence[TableState], old: str | None, new: str, table: str) -> None:
        content = self.content()
        if content.get(f"progress of {self.stream}") != old:  # several processes would need a lock from here on
            raise conflict()
        content[f"progress of {self.stream}"] = new
        for state in made:
            rows = content.setdefault(state.table.name, {})
            if state.is_emptied:
                rows.clear()
            rows |= {key: dict(zip(state.table.names.names, row)) for key, row in state.rows.items() if row is not None}
            for key in state.deletes:
                rows.pop(key, None)
        self.path.with_suffix(".new").write_bytes(pickle.dumps(content))
        os.replace(self.path.with_suffix(".new"), self.path)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tables"
        harness = target_suite.Harness(
            lambda: DictTarget(path), rows=lambda table: list(DictWork(path, "").content().get(table, {}).values())
        )
        for case in target_suite.CASES:
            target_suite.run(case, harness)
            print("ok", case)
