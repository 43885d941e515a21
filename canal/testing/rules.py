"""A rule is given the same change twice, as after a failure of a target: both times the same must come of it."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

from canal.changes import Change
from canal.pipes.rules import Rule, Rules


def check_rule(rule: Rule, changes: Iterable[Change], *, is_log: bool = False) -> list[Change]:
    """What becomes of changes by a rule, which is applied twice.

    Args:
        changes: such as ``canal.changes.Reader().changes(entry)`` gives.
        is_log: as of the target that it is for.

    Raises:
        AssertionError: the second time something else came, or the rule has altered the change that it was given.
        CanalError: what the pipe would stop with.
    """
    changes = list(changes)
    first, second = Rules([rule], is_log=is_log), Rules([rule], is_log=is_log)
    made: list[Change] = []
    for change in changes:
        before = _shown(change)
        found = list(first.apply(_copy(change)))
        given = _copy(change)
        again = list(second.apply(given))
        assert _shown(given) == before, f"{change.id} of {change.table.source}: the rule alters the change that it is given"
        one, other = ([_shown(result) for result in results] for results in (found, again))
        assert one == other, f"{change.id} of {change.table.source}: the rule gives {one}, and then {other}"
        made += found
    return made


def _copy(change: Change) -> Change:
    """With values of its own: a rule that alters a document alters no other's."""
    return change.evolve(
        **{
            name: {column: copy.deepcopy(value) for column, value in row.as_dict().items()}
            for name, row in (("before", change.before), ("after", change.after))
            if row is not None
        }
    )


def _shown(change: Change) -> tuple[Any, ...]:
    rows = tuple(None if row is None else repr(row.as_dict()) for row in (change.before, change.after))
    return change.id, change.table.name, change.table.keys, change.op.name, *rows, change.sql
