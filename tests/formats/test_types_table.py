"""docs/types.md says what the code does."""

from __future__ import annotations

from pathlib import Path

from canal.schema import TYPE_CODES
from tests.programs import types_table

PAGE = Path(__file__).parents[2] / "docs" / "types.md"


def test_the_page_is_what_the_code_says() -> None:
    assert PAGE.read_text() == types_table.page(), "run: python -m tests.programs.types_table > docs/types.md"


def test_every_type_is_in_the_table() -> None:
    """T86."""
    shown = {example.column.base_type for example in types_table.EXAMPLES}
    kinds = {name for name, code in TYPE_CODES.items() if code == TYPE_CODES["geometry"]} - {"geometry"}

    assert set(TYPE_CODES) - kinds == shown
