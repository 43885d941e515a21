"""Draw the imports between rooms: `python docs/_rooms.py` writes docs/pictures/rooms.svg from the imports in the code.

An arrow goes from a room to one that it imports. An arrow is left out if a longer way of arrows says the same.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path
from textwrap import wrap
from typing import Final

from tests.support.imports import MODULES, imports, reached, tree
from tests.support.imports import room as room_of

FILE = Path(__file__).parent / "pictures" / "rooms.svg"
#: Modules of the root and constants of the binary log, drawn as a single box. Any room may import them.
VALUES: Final = ("alarm", "binlog", "errors", "filter", "gtid", "model", "position", "schema", "statement", "status")
#: Not drawn: helpers of all rooms and the entry of the command line.
HIDDEN: Final = ("", "_util", "__main__")
WIDTH, HEIGHT, GAP, RISE, PASSAGE = 196, 84, 26, 44, 24

Graph = dict[str, set[str]]


def box_of(module: str) -> str:
    room = room_of(module).removeprefix("canal.")
    room = room.partition(".")[0] if room.startswith(("spark.", "formats.")) else room
    return "values" if room in VALUES else room


def graph() -> Graph:
    """Return the rooms that each room imports when it is loaded."""
    found: Graph = {}
    for module, path in MODULES.items():
        if (box := box_of(module)) not in HIDDEN:
            others = {box_of(name) for name in imports(path) & MODULES.keys()}
            found.setdefault(box, set()).update(others - {box, *HIDDEN})
    return found


def reduced(whole: Graph) -> Graph:
    """Return the graph without the arrows that other arrows imply."""
    return {
        box: {other for other in others if not any(other in reached(whole, one) for one in others - {other})}
        for box, others in whole.items()
    }


def levels(arrows: Graph) -> dict[str, int]:
    """Return the row of each room, 0 at the top: below all rooms that import it."""
    found: dict[str, int] = {}

    def level(box: str) -> int:
        if box not in found:
            found[box] = 1 + max((level(user) for user, others in arrows.items() if box in others), default=-1)
        return found[box]

    for box in arrows:
        level(box)
    return found


def with_passages(arrows: Graph, row: dict[str, int]) -> tuple[list[list[str]], list[tuple[str, str]]]:
    """Return the rows, with a passage in each row that an arrow crosses, and the pieces of arrows between two rows."""
    rows: list[list[str]] = [[] for _ in range(max(row.values()) + 1)]
    for box in sorted(row):
        rows[row[box]].append(box)
    pieces = []
    for box in sorted(arrows):
        for other in sorted(arrows[box]):
            last = box
            for number in range(row[box] + 1, row[other]):
                passage = f"{box}>{other}>{number}"
                rows[number].append(passage)
                pieces.append((last, passage))
                last = passage
            pieces.append((last, other))
    return rows, pieces


def places(rows: list[list[str]], pieces: Iterable[tuple[str, str]]) -> dict[str, float]:
    """Return the middle of each box and passage: each row is sorted by the mean of its neighbours until nothing crosses less."""
    beside: dict[str, list[str]] = {}
    for one, other in pieces:
        beside.setdefault(one, []).append(other)
        beside.setdefault(other, []).append(one)
    x = _laid(rows)
    best, fewest = x, _crossings(rows, pieces, x)
    for step in range(24):
        above = step % 2 == 0
        order = range(1, len(rows)) if above else range(len(rows) - 2, -1, -1)
        for number in order:
            near = set(rows[number - 1] if above else rows[number + 1])
            means = {name: _mean([x[one] for one in beside.get(name, ()) if one in near], x[name]) for name in rows[number]}
            rows[number].sort(key=lambda name: (means[name], name))
            x = _laid(rows)
        if (crossed := _crossings(rows, pieces, x)) < fewest:
            best, fewest = x, crossed
    return best


def _crossings(rows: list[list[str]], pieces: Iterable[tuple[str, str]], x: Mapping[str, float]) -> int:
    row = {name: number for number, names in enumerate(rows) for name in names}
    lines = [(row[one], x[one], x[other]) for one, other in pieces]
    return sum(a == b and (top - other) * (end - last) < 0 for a, top, end in lines for b, other, last in lines)


def _mean(values: list[float], default: float) -> float:
    return sum(values) / len(values) if values else default


def _wide(name: str) -> int:
    return PASSAGE if ">" in name else WIDTH + GAP


def _laid(rows: list[list[str]]) -> dict[str, float]:
    whole = max(sum(map(_wide, names)) for names in rows)
    found: dict[str, float] = {}
    for names in rows:
        left = (whole - sum(map(_wide, names))) / 2
        for name in names:
            found[name] = left + _wide(name) / 2
            left += _wide(name)
    return found


def about(box: str) -> str:
    """Return the sentence of a room's docstring, without its name."""
    if box == "values":
        return f"{', '.join(VALUES)}: what every room may import."
    docstring = ast.get_docstring(tree(MODULES[f"canal.{box}"])) or ""
    sentence = docstring.partition(".\n")[0].replace("\n", " ").replace("``", "").removesuffix(".") + "."
    name, colon, rest = sentence.partition(": ")
    return rest[0].upper() + rest[1:] if colon and " " not in name else sentence


def draw() -> str:
    arrows = reduced(graph())
    row = levels(arrows)
    rows, pieces = with_passages(arrows, row)
    x = places(rows, pieces)
    y = {name: 12 + number * (HEIGHT + RISE) for number, names in enumerate(rows) for name in names}
    width, height = max(x[name] + _wide(name) / 2 for name in x), max(y.values()) + HEIGHT + 12
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" font-family="sans-serif" font-size="11">',
        "<title>Which room imports which</title>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 0 8 4 0 8z" fill="#00796b"/></marker></defs>',
        '<rect width="100%" height="100%" fill="#ffffff"/>',
    ]
    for one, other in pieces:
        top = y[one] + HEIGHT
        bend = f"C{x[one]:.0f} {top + RISE / 2:.0f} {x[other]:.0f} {top + RISE / 2:.0f}"
        down = f"M{x[one]:.0f} {top}{bend} {x[other]:.0f} {y[other]}"
        if ">" in other:
            parts.append(f'<path d="{down}V{y[other] + HEIGHT}" fill="none" stroke="#00796b"/>')
        else:
            parts.append(f'<path d="{down}" fill="none" stroke="#00796b" marker-end="url(#tip)"/>')
    for box in sorted(row):
        left = x[box] - WIDTH / 2
        frame = f'width="{WIDTH}" height="{HEIGHT}" rx="4" fill="#e0f2f1" stroke="#00796b"'
        parts.append(f'<rect x="{left:.0f}" y="{y[box]}" {frame}/>')
        middle = f'x="{x[box]:.0f}" text-anchor="middle"'
        parts.append(f'<text {middle} y="{y[box] + 17}" font-size="13" font-weight="bold">{box}</text>')
        lines = wrap(about(box), 31)
        assert len(lines) <= 4, f"the sentence of {box} is too long for its box"
        parts += [f'<text {middle} y="{y[box] + 33 + 13 * number}">{escape(line)}</text>' for number, line in enumerate(lines)]
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    FILE.write_text(draw(), "utf-8")
