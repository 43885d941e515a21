"""Docstrings, comments, messages and pages are written in plain technical English."""

from __future__ import annotations

from pathlib import Path

from tests.programs import words


def test_no_file_has_more_marker_words_than_its_maximum() -> None:
    assert words.failures() == [], "python -m tests.programs.words FILE lists the sentences"


def test_marker_words_are_counted_in_each_kind_of_text(tmp_path: Path) -> None:
    python = tmp_path / "module.py"
    python.write_text(
        '"""What the module says."""\n'
        "value = 'what no reader sees'\n"
        "value = 1  # behind the value, nobody asks\n"
        "raise ValueError('the value is given by somebody who asks')\n"
    )
    page = tmp_path / "page.md"
    page.write_text("# What a heading says\n\nWhat `nobody` reads.\n\n```\nwhat code says\n```\n")

    assert (words.excess(python), words.excess(page)) == (9, 1)
