"""Names, keys and values of messages as texts with ``{{ … }}``, for those who want no code: jinja2 in its sandbox.

Never gives another text of the same change: a template has no clock, no chance, and alters nothing that it is given.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Any

import attrs

from canal.changes.change import Change, Table
from canal.errors import ConfigError, UnfitChangeError
from canal.formats.texts import TEXTS
from canal.model import Row
from canal.rows.values import ABSENT, PartialJson
from canal.targets.tables import need


@attrs.frozen
class Template:
    """A template of jinja2, to be given wherever a function of a change, of a row, or of a table and a row is taken.

    ::

        canal.Rule(to=canal.Template("{{ schema }}.{{ row.country | lower }}"))
        KafkaTarget("kafka:9092", key=canal.Template("{{ row.id }}"))

    It may use ``row`` (the row after a change, or of a deletion the one before), ``before``, ``after``, ``op`` ("INSERT" …),
    ``name`` (what the target calls the table), ``schema``, ``table`` (the source's), ``id``, ``ts``, ``transaction`` and
    ``position``; of a row alone ``row``. Values are those of Python, and stand in the text as MySQL writes them; the filter
    ``json`` makes JSON of one, ``hex`` digits of bytes. A column that there is not, one that is not in the row image, NULL and
    bytes are no text: the change is unfit. ``{{ row.note or "" }}`` says what NULL is to be.

    Raises:
        ConfigError: it is no template.
    """

    text: str

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise ConfigError(f"a template must be text, not {self.text!r}")
        _compiled(self.text)

    def __call__(self, *about: Any) -> str:
        """The text for a change, for a row, or for a table and a row.

        Raises:
            UnfitChangeError: it cannot be made.
        """
        from jinja2 import TemplateError

        where = ""
        position: str | None = None
        values: dict[str, Any] = {}
        if isinstance(about[0], Change):
            change = about[0]
            where, position = f" of a change of {change.table.source}", change.origin.position
            row = change.before if change.after is None else change.after
            values = {
                "before": _values(change.before),
                "after": _values(change.after),
                "op": change.op.name,
                "id": change.id,
                "ts": change.origin.ts,
                "transaction": change.origin.transaction,
                "position": position,
                **_names(change.table),
                "row": _values(row),
            }
        else:
            row = about[-1]
            if isinstance(about[0], Table):
                where, values = f" of a row of {about[0].source}", _names(about[0])
            values["row"] = _values(row)
        try:
            return str(_compiled(self.text).render(values))
        except Exception as error:  # of a filter, too; only jinja2's own says nothing of values
            why = error.message if isinstance(error, (TemplateError, _NoTextError)) else type(error).__name__
            raise UnfitChangeError(
                f"the template {self.text!r} cannot be made{where}: {why}",
                position=position,
                changes=about[:1] if isinstance(about[0], Change) else (),
                remedy="Mend the template, or park such changes by on_unfit.",
            ) from error


class _NoTextError(Exception):
    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


def _names(table: Table) -> dict[str, str]:
    return {"name": table.name, "schema": table.database, "table": table.own_name}


def _values(row: Row | None) -> Mapping[str, Any] | None:
    """Without what the row image does not hold, so that it is undefined."""
    if row is None:
        return None
    return {name: value for name, value in row.as_dict().items() if value is not ABSENT and not isinstance(value, PartialJson)}


def _text(value: Any) -> Any:
    """What stands in the text for a value."""
    if value is None:
        raise _NoTextError("a value is NULL")
    if isinstance(value, bytes):
        raise _NoTextError("a value is bytes")
    text = TEXTS.get(type(value))
    return value if text is None else text(value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_text)


@functools.lru_cache(maxsize=1024)
def _compiled(text: str) -> Any:
    jinja2: Any = need("jinja2", "templates")
    sandbox: Any = need("jinja2.sandbox", "templates")
    environment = sandbox.ImmutableSandboxedEnvironment(
        undefined=jinja2.StrictUndefined, finalize=_text, keep_trailing_newline=True, autoescape=False
    )
    del environment.globals["lipsum"], environment.filters["random"]  # which give another text each time
    environment.filters |= {"json": _json, "hex": bytes.hex}
    try:
        return environment.from_string(text)
    except jinja2.TemplateSyntaxError as error:
        raise ConfigError(f"{text!r} is no template: line {error.lineno}: {error.message}") from error
    except jinja2.TemplateError as error:  # of what it does at once
        raise ConfigError(f"{text!r} is no template: {error.message}") from error
