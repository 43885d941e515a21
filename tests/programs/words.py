"""Count words that plain technical English rarely needs, and compare each file with its stored maximum.

    python -m tests.programs.words [--write] [FILE…]

Reads the docstrings, comments and error messages of Python files, and the paragraphs of Markdown files. A file may use each
marker up to its limit. The excess over all limits must not exceed the file's maximum in ``tests/words.json``. A file without a
maximum may have an excess of ``ALLOWED`` words. Without ``--write``, print the files that fail, or the marked sentences of each
FILE. With ``--write``, lower the maxima to the present excess. A maximum never rises. When a file moves, move its maximum.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
MAXIMA: Final = ROOT / "tests/words.json"
#: Excess words that any file may have.
ALLOWED: Final = 5
#: Marker words with the limit per 1,000 words: twice the mean rate of psycopg 3, asyncpg, h11, kazoo, httpx and attrs.
LIMITS: Final[dict[str, tuple[str, float]]] = {
    "what": ("what", 1.5),
    "who": ("who|whom|whose|whoever", 0.9),
    "one": ("one|ones", 3.9),
    "that": ("that", 16.2),
    "of": ("of", 30.6),
    "its": ("its", 2.6),
    "own": ("own", 0.7),
    "nothing": ("nothing|nobody|somebody|no more", 0.8),
    "behind": ("behind|beside|by itself|by themselves|by hand|of late|anew", 0.2),
    "says": ("told|tells|tell|says|asks|asked", 0.7),
    "gives": ("gives|give|given|comes|come|goes|go|takes|take", 4.4),
}
_PATTERNS: Final = {name: re.compile(rf"\b(?:{words})\b", re.IGNORECASE) for name, (words, _) in LIMITS.items()}
_WORD: Final = re.compile(r"[A-Za-z][A-Za-z']+")
#: Comments for tools.
_FOR_TOOLS: Final = re.compile(r"#\s*(?:fmt|noqa|type|cython|pragma)")


def files() -> Iterator[Path]:
    """Yield the files that are measured."""
    yield from sorted(path for path in (ROOT / "canal").rglob("*.py"))
    yield from sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the texts of a file with their line numbers, without code in backquotes."""
    source = path.read_text("utf-8")
    for line, text in _in_markdown(source) if path.suffix == ".md" else _in_python(source):
        yield line, re.sub(r"`[^`]*`", "X", text)


def excess(path: Path) -> int:
    """Return how many marker words of a file exceed the limits."""
    words, found = 0, Counter[str]()
    for _, text in texts(path):
        words += len(_WORD.findall(text))
        for name, pattern in _PATTERNS.items():
            found[name] += len(pattern.findall(text))
    return round(sum(max(0.0, found[name] - limit * words / 1000) for name, (_, limit) in LIMITS.items()))


def failures() -> list[str]:
    """Return a message for each file with more marker words than it may have."""
    maxima = json.loads(MAXIMA.read_text("utf-8"))
    counts = {str(path.relative_to(ROOT)): excess(path) for path in files()}
    return [
        f"{name}: {count} marker words over the limits; the maximum is {max(maxima.get(name, 0), ALLOWED)}"
        for name, count in counts.items()
        if count > max(maxima.get(name, 0), ALLOWED)
    ]


def _in_python(source: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("Error"):
            for part in ast.walk(node):
                if isinstance(part, ast.Constant) and isinstance(part.value, str) and part.value.count(" ") > 3:
                    yield part.lineno, part.value
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and not _FOR_TOOLS.match(token.string):
            yield token.start[0], token.string.lstrip("#: ")


def _in_markdown(source: str) -> Iterator[tuple[int, str]]:
    line = 1
    for block in re.sub(r"```.*?```", lambda code: "\n" * code[0].count("\n"), source, flags=re.DOTALL).split("\n\n"):
        if not block.lstrip().startswith(("|", "#")) and not block.startswith("    "):
            yield line, block
        line += block.count("\n") + 2


def _lower() -> None:
    """Lower the maxima to the present excess, and drop the files that need none."""
    old = json.loads(MAXIMA.read_text("utf-8")) if MAXIMA.exists() else None
    new = {str(path.relative_to(ROOT)): excess(path) for path in files()}
    if old is not None:
        new = {name: min(count, old.get(name, 0)) for name, count in new.items()}
    MAXIMA.write_text(json.dumps({name: count for name, count in new.items() if count > ALLOWED}, indent=1) + "\n", "utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="*", type=Path)
    parser.add_argument("--write", action="store_true", help="lower the maxima")
    options = parser.parse_args()
    if options.write:
        _lower()
    for path in options.file:
        for line, text in texts(path):
            for sentence in re.split(r"(?<=[.!?:;])\s+|\n\n", text):
                found = [name for name, pattern in _PATTERNS.items() if name not in ("of", "that") and pattern.search(sentence)]
                if found:
                    print(f"{path}:{line}: {' '.join(sentence.split())}  [{', '.join(found)}]")
    failed = failures() if not options.file else []
    print(*failed, sep="\n", end="\n" * bool(failed))
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
