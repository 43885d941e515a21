"""A look at the file of a :class:`canal.targets.SQLiteTarget` before the start.

Never writes to it and makes no file beside it, as SQLite does for a reader of a file in WAL mode.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

from canal._util.findings import Finding
from canal.targets.protocol import Progress
from canal.targets.sqlite import SQLiteTarget


def look(target: SQLiteTarget, stream: str, tables: Sequence[str]) -> Iterator[Finding]:
    """What was found, in the order in which it matters."""
    path = Path(os.fspath(target.path)).absolute()
    folder = path.parent
    if not folder.is_dir():
        yield Finding("file", "error", f"the directory {folder} does not exist.", f"mkdir -p {folder}")
        return
    if not os.access(folder, os.W_OK | os.X_OK):
        text = f"this user cannot write to {folder}, where SQLite keeps its journal."
        yield Finding("file", "error", text, f"Let this user write there, such as by chown of {folder}.")
        return
    if not path.exists():
        yield Finding("file", "ok", f"{path} is not there, and is made")
        known: set[str] = set()
        progress = None
    elif not os.access(path, os.R_OK | os.W_OK):
        yield Finding("file", "error", f"this user may not read and write {path}.", "Let this user write it, such as by chown.")
        return
    else:
        try:
            known, progress = _contents(target, path, stream)
        except sqlite3.Error as error:
            yield Finding("file", "error", f"{path} cannot be read: {error}.", "Name a file of SQLite, or one that is not there.")
            return
        yield Finding("file", "ok", f"{path} is writable")
    for name in tables:
        if not target.create and name.rpartition(".")[2].lower() not in known:
            remedy = "Make the table, with the columns of the source's, or let the pipe make it: create=True."
            yield Finding(name, "error", "there is no such table, and create is False.", remedy)
    if progress is None:
        yield Finding("progress", "ok", f"there is none of {stream}: it begins with what is not acked")
    else:
        yield Finding("progress", "ok", f"{stream} is at {Progress.from_text(progress).position}")


def _contents(target: SQLiteTarget, path: Path, stream: str) -> tuple[set[str], str | None]:
    """Its tables, in lower case, and the text of the progress."""
    is_written = any(os.path.exists(f"{path}{end}") for end in ("-wal", "-journal"))
    uri = f"{path.as_uri()}?mode=ro" + ("" if is_written else "&immutable=1")
    with closing(sqlite3.connect(uri, uri=True, timeout=10)) as connection:
        known = {str(name).lower() for (name,) in connection.execute("SELECT name FROM sqlite_master")}
        if target.progress_table.lower() not in known:
            return known, None
        name = target.progress_table.replace('"', '""')
        found = connection.execute(f"SELECT progress FROM \"{name}\" WHERE stream = ? AND target = ''", (stream,)).fetchone()
        return known, found and str(found[0])
