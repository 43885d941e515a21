"""Draw sequence diagrams: `python docs/_pictures.py` writes docs/pictures/*.svg."""

from __future__ import annotations

from html import escape
from pathlib import Path

FOLDER = Path(__file__).parent / "pictures"
LANE, STEP, TOP = 210, 34, 64
#: (from, to, text) is an arrow, (process, text) a note, (process,) the end of a process.
Step = tuple[int, int, str] | tuple[int, str] | tuple[int]

PICTURES: dict[str, tuple[str, list[str], list[Step]]] = {
    "delivery": (
        "A message is acked, one is rolled back, and one comes again after a crash",
        ["server", "instance", "your code", "cursor on disk"],
        [
            (0, 1, "rows 1 to 4"),
            (2, 1, "get"),
            (1, 2, "message 1: rows 1, 2"),
            (2, 1, "ack 1"),
            (1, 3, "behind row 2, synced"),
            (1, 2, "the ack returns"),
            (2, 1, "get"),
            (1, 2, "message 2: rows 3, 4"),
            (2, 1, "rollback"),
            (3, "still behind row 2"),
            (2, 1, "get"),
            (1, 2, "message 3: rows 3, 4"),
            (2, "crash before the ack"),
            (2,),
            (1,),
            (3, 1, "new process: behind row 2"),
            (1, 0, "dump from behind row 2"),
            (0, 1, "rows 3, 4 and what came since"),
            (2, 1, "get"),
            (1, 2, "message 1: rows 3, 4"),
            (2, 1, "ack 1"),
            (1, 3, "behind row 4, synced"),
        ],
    ),
    "take-over": (
        "One process delivers, the other stands by and takes over",
        ["process A", "ZooKeeper", "process B", "server"],
        [
            (0, 1, "running node, epoch 7"),
            (1, 2, "it is taken: stand by"),
            (0, 3, "dump"),
            (3, 0, "changes"),
            (0, 1, "ack: cursor, fenced by 7"),
            (0, "dies, or loses its session"),
            (0,),
            (1, 2, "the node is gone"),
            (2, 1, "running node, epoch 8"),
            (1, 2, "the cursor of the last ack"),
            (2, 3, "dump from there"),
            (3, 2, "changes since that ack"),
            (2, 1, "ack: cursor, fenced by 8"),
            (1, "a late ack of epoch 7 fails"),
        ],
    ),
    "spark-batch": (
        "A batch of a Spark query",
        ["server", "reader's process", "driver", "executors", "target"],
        [
            (0, 1, "the log, without a pause"),
            (1, "writes the spool"),
            (2, 1, "how far is it?"),
            (1, 2, "latest offset"),
            (2, "writes it into the checkpoint"),
            (2, 3, "batch from, to"),
            (3, "read and decode the spool"),
            (3, 4, "rows, with the batch's number"),
            (4, "leaves out a batch that it has"),
            (2, "commits"),
            (2, 1, "up to there: acked"),
            (1, "frees the spool"),
        ],
    ),
}


def draw(title: str, lanes: list[str], steps: list[Step]) -> str:
    height = TOP + STEP * len(steps) + 24
    middle = [LANE // 2 + LANE * number for number in range(len(lanes))]
    ends = {step[0]: TOP + STEP * number for number, step in enumerate(steps) if len(step) == 1}
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LANE * len(lanes)} {height}" '
        'font-family="sans-serif" font-size="13">',
        f"<title>{escape(title)}</title>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 0 8 4 0 8z" fill="#00796b"/></marker></defs>',
        '<rect width="100%" height="100%" fill="#ffffff"/>',
    ]
    for number, (x, name) in enumerate(zip(middle, lanes)):
        parts.append(f'<rect x="{x - 75}" y="12" width="150" height="28" rx="4" fill="#e0f2f1" stroke="#00796b"/>')
        parts.append(f'<text x="{x}" y="31" text-anchor="middle" font-weight="bold">{escape(name)}</text>')
        if number in ends:
            parts.append(f'<line x1="{x}" y1="40" x2="{x}" y2="{ends[number]}" stroke="#9e9e9e"/>')
            parts.append(f'<line x1="{x}" y1="{ends[number]}" x2="{x}" y2="{height}" stroke="#9e9e9e" stroke-dasharray="3 5"/>')
        else:
            parts.append(f'<line x1="{x}" y1="40" x2="{x}" y2="{height}" stroke="#9e9e9e"/>')
    for number, step in enumerate(steps):
        y = TOP + STEP * number
        x = middle[step[0]]
        if len(step) == 1:
            parts.append(f'<path d="M{x - 8} {y - 8}l16 16m0 -16l-16 16" stroke="#c62828" stroke-width="3"/>')
        elif len(step) == 2:
            parts.append(f'<rect x="{x - 98}" y="{y - 13}" width="196" height="24" rx="3" fill="#fff8e1" stroke="#ffb300"/>')
            parts.append(f'<text x="{x}" y="{y + 4}" text-anchor="middle">{escape(step[1])}</text>')
        else:
            to = middle[step[1]]
            parts.append(f'<line x1="{x}" y1="{y}" x2="{to}" y2="{y}" stroke="#00796b" marker-end="url(#tip)"/>')
            parts.append(f'<text x="{(x + to) // 2}" y="{y - 5}" text-anchor="middle">{escape(step[2])}</text>')
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, picture in PICTURES.items():
        (FOLDER / f"{name}.svg").write_text(draw(*picture), "utf-8")
