"""What becomes of a change on its way to a target: left out, cut to some columns, renamed, masked, transformed, sent elsewhere.

Never looks at a clock, a file or a connection: a rule that is applied twice to a change gives the same twice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import attrs

from canal._util.bounded import Recent
from canal._util.option_names import checks_names
from canal.changes.change import Change, Table
from canal.errors import CanalError, ConfigError, HookError, UnloggedChangeError
from canal.filter import TableFilter
from canal.model import ColumnNames, EventType, Row
from canal.rows.values import ABSENT

_ROWS: Final = (EventType.INSERT, EventType.UPDATE, EventType.DELETE)
#: A filter that names one table only.
_ONE: Final = re.compile(r"[\w$]+\\?\.[\w$]+")


def _names(value: Sequence[str] | None) -> tuple[str, ...] | None:
    if isinstance(value, str):
        raise ConfigError(f"columns must be a sequence of names, not {value!r}")
    return None if value is None else tuple(value)


def _by_column(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if not isinstance(value, Mapping) and not (attribute.name == "rename" and callable(value)):
        raise ConfigError(f"{attribute.name} of a rule must be a mapping by column, not {value!r}")


def _callable(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if value is not None and not callable(value):
        raise ConfigError(f"{attribute.name} of a rule must be callable, not {value!r}")


@checks_names()
@attrs.frozen(kw_only=True)
class Rule:
    r"""What to do with the changes of some tables. The first rule that names a table is the one that counts.

    The parts are applied in this order. All callables must be pure: changes come again after a failure.

    Args:
        tables: the tables by their names at the source, in the syntax of ``InstanceConfig.filter`` (``shop\.orders_\d+``).
        where: ``row -> bool``: which rows the target is to have. An update that brings a row in is an insert, one that takes it
            out a delete. With partial row images a column may be ``canal.ABSENT``.
        fields: the columns to keep, in this order.
        exclude: columns to leave out, where ``fields`` does not say which to keep.
        defaults: values of columns that the row lacks (``ABSENT``, or no column of the table), by name.
        mask: ``value -> value`` by the name of the column; NULL and ``ABSENT`` stay as they are.
        values: ``row -> value`` by the name of a column, which the row may lack, such as ``canal.Template("{{ row.first }}!")``.
            The row has all columns of the table, with their defaults and masks.
        rename: new names by old ones, or ``name -> name`` for all columns, such as ``str.lower``.
        keys: columns, by their new names, that tell rows apart, where that is not to be the primary key.
        to: what the target calls the table: a text in which ``{schema}`` and ``{table}`` are those of the source, or
            ``change -> name``.
        transform: ``change -> change``, or None (left out), or several changes; made with
            ``change.evolve(after={**change.after.as_dict(), …})``: a row that is given is the whole row.
    """

    tables: str = ""
    where: Callable[[Row], bool] | None = attrs.field(default=None, validator=_callable)
    fields: Sequence[str] | None = attrs.field(default=None, converter=_names)
    exclude: Sequence[str] = attrs.field(default=(), converter=_names)
    rename: Mapping[str, str] | Callable[[str], str] = attrs.field(factory=dict, validator=_by_column)
    defaults: Mapping[str, Any] = attrs.field(factory=dict, validator=_by_column)
    mask: Mapping[str, Callable[[Any], Any]] = attrs.field(factory=dict, validator=_by_column)
    values: Mapping[str, Callable[[Row], Any]] = attrs.field(factory=dict, validator=_by_column)
    keys: Sequence[str] | None = attrs.field(default=None, converter=_names)
    to: str | Callable[[Change], str] | None = None
    transform: Callable[[Change], Change | Iterable[Change] | None] | None = attrs.field(default=None, validator=_callable)

    _filter: TableFilter = attrs.field(init=False, repr=False, eq=False)

    @_filter.default
    def _compile(self) -> TableFilter:
        return TableFilter(self.tables)

    def __attrs_post_init__(self) -> None:
        if isinstance(self.rename, Mapping) and not all(isinstance(name, str) for name in self.rename.values()):
            raise ConfigError(f"rename of a rule must have names, not {dict(self.rename)!r}")
        for name, mask in self.mask.items():
            if not callable(mask):
                raise ConfigError(
                    f"the mask of {name} in a rule must be callable, not a {type(mask).__name__}",
                    remedy="A canal.Mask belongs into InstanceConfig(mask=…).",
                )
        for name, value in self.values.items():
            if not callable(value):
                raise ConfigError(f"values of a rule must be callable, not the {type(value).__name__} of {name}")
        if self.fields is not None and self.exclude:
            raise ConfigError("a rule has fields or exclude, not both")
        if isinstance(self.to, str):
            try:
                self.to.format(schema="", table="")
            except (KeyError, IndexError, ValueError) as error:
                raise ConfigError(f"to of a rule may have {{schema}} and {{table}}, not {self.to!r}") from error
        elif self.to is not None and not callable(self.to):
            raise ConfigError(f"to of a rule must be text or callable, not {self.to!r}")

    def accepts(self, table: Table) -> bool:
        """Whether it is about this table."""
        return self._filter.accepts(table.database, table.own_name) if table.own_name else False

    @property
    def keeps_tables_apart(self) -> bool:
        """Whether two tables of the source can never be one of the target's."""
        if self.to is None or _ONE.fullmatch(self.tables):
            return not callable(self.to)
        return isinstance(self.to, str) and "{schema}" in self.to and "{table}" in self.to


class Rules:
    """The rules of one pipe.

    Args:
        is_log: whether the target takes statements as such.
        acknowledged: positions (``journal:offset``) of statements that the target's owner has taken care of.
    """

    def __init__(self, rules: Iterable[Rule], *, is_log: bool = False, acknowledged: Collection[str] = ()) -> None:
        self._rules = tuple(rules)
        self._is_log = is_log
        self._acknowledged = frozenset(acknowledged)
        for rule in self._rules:
            _check_rule(rule)
        self._plans: Recent[str, tuple[Table, _Plan | None]] = Recent()

    def apply(self, change: Change) -> Iterable[Change]:
        """What becomes of a change; a table that no rule names goes through as it is.

        Raises:
            HookError: a callable of a rule raised.
        """
        plan = self._plan(change.table) if self._rules else None
        if plan is None:
            return (change,)
        try:
            if change.op in _ROWS:
                return plan.apply(change)
            return self._statement(change, plan)
        except CanalError:
            raise
        except Exception as error:
            raise HookError(
                f"a rule for {change.table.source} failed: {type(error).__name__}", position=change.origin.position,
                remedy="Its cause is the exception of the callable.",
            ) from error  # fmt: skip

    def name_of(self, source: str) -> str:
        """What the target calls a table of the source; "" where a callable says so for each change."""
        table = Table(source, source)
        rule = next((rule for rule in self._rules if rule.accepts(table)), None)
        if rule is None or rule.to is None:
            return source
        return rule.to.format(**_parts(table)) if isinstance(rule.to, str) else ""

    def _statement(self, change: Change, plan: _Plan) -> Iterable[Change]:
        if change.op is EventType.TRUNCATE and not self._is_log and not plan.rule.keeps_tables_apart:
            if change.origin.position in self._acknowledged:
                return ()
            raise UnloggedChangeError(
                f"{change.table.source} was emptied by TRUNCATE, and a rule may write other tables to the same target",
                position=change.origin.position,
                remedy="Take its rows away in the target, then start the pipe once with this position in acknowledged.",
            )
        return (change if callable(plan.rule.to) else attrs.evolve(change, table=plan.table),)

    def _plan(self, table: Table) -> _Plan | None:
        known = self._plans.get(table.source)
        if known is not None and known[0] is table:
            return known[1]
        rule = next((rule for rule in self._rules if rule.accepts(table)), None)
        plan = None if rule is None else _Plan(rule, table)
        self._plans[table.source] = table, plan
        return plan


class _Plan:
    """A rule for one table of certain columns."""

    def __init__(self, rule: Rule, table: Table) -> None:
        self.rule = rule
        names = list(table.names.names)
        wanted = [name for name in names if name not in rule.exclude] if rule.fields is None else list(rule.fields)
        own = {**rule.defaults, **rule.values}
        wanted += [name for name in own if name not in wanted and name not in names]
        unknown = [name for name in (*wanted, *rule.exclude, *rule.mask) if name not in names and name not in own]
        if unknown and table.columns:
            raise ConfigError(
                f"a rule names columns that {table.source} does not have: {', '.join(unknown)}",
                remedy=f"Its columns are {', '.join(names)}.",
            )
        values = dict.fromkeys(names) | dict.fromkeys(rule.values, "") | dict(rule.defaults)
        fitted = table.fitting({name: values[name] for name in wanted}) if table.columns else table
        new = {name: rule.rename(name) if callable(rule.rename) else rule.rename.get(name, name) for name in names + wanted}
        columns = tuple(attrs.evolve(column, name=new[column.name]) for column in fitted.columns)
        if len({column.name for column in columns}) < len(columns):
            raise ConfigError(f"a rule gives two columns of {table.source} one name: {[one.name for one in columns]}")
        keys = rule.keys if rule.keys is not None else [new[name] for name in table.keys]
        has_keys = set(keys) <= {column.name for column in columns}
        if not has_keys and rule.keys is not None and columns:
            raise ConfigError(f"keys of a rule for {table.source} are not among its columns: {', '.join(keys)}")
        name = rule.to.format(**_parts(table)) if isinstance(rule.to, str) else table.name
        self.table = attrs.evolve(table, name=name, columns=columns, keys=tuple(keys) if has_keys else ())
        self._tables: Recent[str, Table] = Recent()
        self._is_same = columns == table.columns and not rule.mask and not own
        self._wanted = wanted
        self._all = ColumnNames(tuple(names + [name for name in rule.defaults if name not in names])) if rule.values else None
        #: Of each column its number at the source (-1: none), its default and its mask.
        self._steps = [
            (names.index(one) if one in names else -1, rule.defaults.get(one, ABSENT), rule.mask.get(one))
            for one in (wanted if self._all is None else self._all.names)
        ]

    def apply(self, change: Change) -> Iterable[Change]:
        rule = self.rule
        before, after, op = change.before, change.after, change.op
        if rule.where is not None:
            before = before if before is not None and rule.where(before) else None
            after = after if after is not None and rule.where(after) else None
            if before is None and after is None:
                return ()
            op = EventType.DELETE if after is None else EventType.INSERT if before is None else op
        made = Change(self.table, op, self._row(before), self._row(after), change.origin, change.ord)
        if callable(rule.to):
            made.table = self._named(rule.to(made))
        return (made,) if rule.transform is None else self._transformed(made)

    def _named(self, name: str) -> Table:
        """One object for each name."""
        if name not in self._tables:
            self._tables[name] = attrs.evolve(self.table, name=name)
        return self._tables[name]

    def _row(self, row: Row | None) -> Row | None:
        if row is None:
            return None
        if self._is_same:
            return Row(row.values(), self.table.names)
        values, found = row.values(), []
        for number, default, mask in self._steps:
            value = values[number] if number >= 0 else ABSENT
            if value is ABSENT:
                value = default
            elif mask is not None and value is not None:
                value = mask(value)
            found.append(value)
        if self._all is not None:
            whole, made = Row(tuple(found), self._all), self.rule.values
            found = [made[name](whole) if name in made else whole[name] for name in self._wanted]
        return Row(tuple(found), self.table.names)

    def _transformed(self, change: Change) -> Iterable[Change]:
        assert self.rule.transform is not None
        found = self.rule.transform(change)
        if found is None:
            return ()
        made = [found] if isinstance(found, Change) else list(found)
        for part, one in enumerate(made):
            if not isinstance(one, Change):
                raise ConfigError(f"a transform must give changes or None, not {type(one).__name__}")
            one.part = part
        return made


def _check_rule(rule: object) -> None:
    if not isinstance(rule, Rule):
        raise ConfigError(f"rules must be canal.Rule objects, not {rule!r}")


def _parts(table: Table) -> dict[str, str]:
    return {"schema": table.database, "table": table.own_name}
