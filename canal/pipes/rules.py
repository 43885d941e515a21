"""Rules that filter, project, rename, mask, transform and route changes on the way to a target.

Rules are pure: applying a rule to the same change twice returns the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from canal._util.bounded import Recent
from canal._util.option_names import checks_names
from canal.changes.change import ROW_OPS, Change, Op, Table, qualified, split
from canal.errors import CanalError, ConfigError, HookError, UnfitChangeError, UnloggedChangeError
from canal.filter import TableFilter
from canal.model import ColumnNames, Row
from canal.rows.values import ABSENT
from canal.schema import ColumnSchema, column_from_text

if TYPE_CHECKING:
    from canal.changes.fold import ArrowChanges


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
    r"""A rule for the changes of some tables. For each table, the first matching rule applies.

    The options apply in this order. All callables must be pure, because changes are delivered again after a failure.

    Args:
        tables: source tables, in the syntax of ``InstanceConfig.filter`` (``shop\.orders_\d+``).
        where: ``row -> bool``, True for rows that the target should contain. An update that makes a row match is an insert. An
            update after which the row no longer matches is a delete.
        fields: the columns to keep, in this order.
        exclude: the columns to drop, instead of ``fields``.
        defaults: values by column name, for columns that a new row lacks (``ABSENT``, or no column of the table).
        mask: ``value -> value`` by column name. NULL and ``ABSENT`` are not passed.
        values: ``row -> value`` by column name, for existing or new columns, such as ``canal.Template("{{ row.first }}!")``. The
            row has all columns of the table, with defaults and masks applied.
        rename: a mapping from old to new column names, or ``name -> name`` for all columns, such as ``str.lower``.
        keys: key columns by their new names, if the key is not the primary key.
        to: name of the target table: a text that may contain ``{schema}`` and ``{table}`` of the source, or ``change -> name``.
            The part before the last dot is the schema. An update that changes the name is a delete and an insert.
        merge: name of an additional column of the target table. It holds the source table's name (``shop.orders_1``) and is the
            first column of the key. Merging tables requires it. A TRUNCATE of a source table deletes only the rows of this table.
        transform: ``change -> change``, returning a change, several changes, or None to drop the change. Create changes with
            ``change.evolve(after={**change.after.as_dict(), …})``. The new row must be complete.

    With partial row images (binlog_row_image MINIMAL or NOBLOB), a callable sees the columns in the log, from before and after
    the change. A change is refused if a callable reads a column that is not in the log.
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
    merge: str = ""
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
            raise ConfigError("a rule cannot have both fields and exclude")
        if self.merge and not isinstance(self.to, str):
            raise ConfigError("merge of a rule needs to= with the name of the table to merge into")
        if isinstance(self.to, str):
            try:
                self.to.format(schema="", table="")
            except (KeyError, IndexError, ValueError) as error:
                raise ConfigError(f"to of a rule may have {{schema}} and {{table}}, not {self.to!r}") from error
        elif self.to is not None and not callable(self.to):
            raise ConfigError(f"to of a rule must be text or callable, not {self.to!r}")

    def accepts(self, table: Table) -> bool:
        """Return whether the rule matches this table."""
        return self._filter.accepts(table.database, table.own_name) if table.own_name else False

    def path(self, table: Table) -> tuple[str, ...]:
        """Return the target's path of a table, if ``to`` is not a callable."""
        if not isinstance(self.to, str):
            return table.path
        schema, name = table.origin
        return tuple([part.format(schema=schema, table=name) for part in split(self.to)])


class Rules:
    """The rules of a pipe.

    Args:
        is_log: whether the target accepts statements.
        acknowledged: positions (``journal:offset``) of statements that the user has handled in the target.
    """

    def __init__(self, rules: Iterable[Rule], *, is_log: bool = False, acknowledged: Collection[str] = ()) -> None:
        self._rules = tuple(rules)
        self._is_log = is_log
        self._acknowledged = frozenset(acknowledged)
        for rule in self._rules:
            _check_rule(rule)
        self._plans: Recent[str, tuple[Table, Plan | None]] = Recent()

    def apply(self, change: Change) -> Iterable[Change]:
        """Apply the matching rule. A change of a table without a rule is not modified.

        Raises:
            HookError: a callable of a rule raised.
        """
        plan = self.plan(change.table) if self._rules else None
        if plan is None:
            return (change,)
        try:
            if change.op in ROW_OPS:
                return plan.apply(change)
            return self._statement(change, plan)
        except UnfitChangeError as error:
            if error.changes:
                raise
            raise UnfitChangeError(
                f"{error.message}: a change of {change.table.source}",
                position=change.origin.position,
                changes=(change,),
                remedy=error.remedy,
            ) from error
        except CanalError:
            raise
        except Exception as error:
            raise HookError(
                f"a rule for {change.table.source} failed: {type(error).__name__}",
                position=change.origin.position,
                remedy="See __cause__ for the exception of the callable.",
            ) from error

    def name_of(self, source: str) -> str:
        """Return the target's name of a source table, or "" if a callable decides for each change."""
        table = Table(source, source)
        rule = next((rule for rule in self._rules if rule.accepts(table)), None)
        return "" if rule is not None and callable(rule.to) else ".".join(table.path if rule is None else rule.path(table))

    def table(self, table: Table) -> Table:
        """Return the target's table for a source table, as far as it does not depend on the row."""
        plan = self.plan(table)
        return table if plan is None else plan.table

    def _statement(self, change: Change, plan: Plan) -> Iterable[Change]:
        if change.op is Op.TRUNCATE and not self._is_log and callable(plan.rule.to):
            if change.origin.position in self._acknowledged:
                return ()
            raise UnloggedChangeError(
                f"TRUNCATE emptied {change.table.source}, whose rows a rule routes to tables by the row",
                position=change.origin.position,
                remedy="Delete its rows in the target, then start the pipe once with this position in acknowledged.",
            )
        return (change if callable(plan.rule.to) else attrs.evolve(change, table=plan.table),)

    def plan(self, table: Table) -> Plan | None:
        """Return the plan for a table, or None if no rule matches the table.

        Raises:
            ConfigError: the rule does not fit the table's columns.
        """
        known = self._plans.get(table.source)
        if known is not None and known[0] is table:
            return known[1]
        rule = next((rule for rule in self._rules if rule.accepts(table)), None)
        plan = None if rule is None else Plan(rule, table)
        self._plans[table.source] = table, plan
        return plan


class _Image(Row):
    """A partial row image for a rule's callable. Reading a column that is not in the log raises UnfitChangeError."""

    __slots__ = ()

    def __getitem__(self, key: Any) -> Any:
        return self._known(key, super().__getitem__(key))

    def get(self, name: str, default: Any = None) -> Any:
        return self._known(name, super().get(name, default))

    @staticmethod
    def _known(key: Any, value: Any) -> Any:
        if value is ABSENT:
            raise UnfitChangeError(
                f"a rule needs the column {key}, which is not in the log for this row",
                remedy="Set binlog_row_image=FULL at the source. Changes that were logged before can be parked by on_unfit.",
            )
        return value


def _seen(row: Row, other: Row | None = None) -> Row:
    """Return the row for a callable, with missing columns from the other image."""
    values = row.values()
    if ABSENT not in values:
        return row
    if other is not None:
        values = tuple([old if new is ABSENT else new for old, new in zip(other.values(), values)])
    return _Image(values, ColumnNames(tuple(row.keys())))


class Plan:
    """A rule compiled for a table with certain columns.

    Attributes:
        table: the target's table.
        keys: source columns of the key.
        has_columns: whether ``columns`` is equivalent to ``apply``, because no callable sees a row or a value.
    """

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
        self._merged = (qualified(*table.origin),) if rule.merge else ()
        if rule.merge and columns:
            columns += (column_from_text(rule.merge, "varchar(255)", charset="utf8mb4", nullable=False),)
        if len({column.name.lower() for column in columns}) < len(columns):
            raise ConfigError(f"a rule renames two columns of {table.source} to the same name: {[one.name for one in columns]}")
        computed = frozenset([new[name] for name in fitted.computed] + [rule.merge] * bool(rule.merge))
        self.table = self._made(table, columns, [new[name] for name in table.keys], computed)
        self._tables: Recent[str, Table] = Recent()
        self._is_same = columns == table.columns and not rule.mask and not own
        self._wanted = wanted
        #: The source column of each target column, or None for a constant.
        self._sources = [name if name in names else None for name in wanted] + [None] * bool(self._merged)
        self.constants: Sequence[Any] = [rule.defaults.get(name) for name in wanted] + list(self._merged)
        sources = dict(zip([column.name for column in columns], self._sources))
        self.keys: Sequence[str] = [name for key in self.table.keys if (name := sources[key]) is not None]
        is_plain = not any((rule.where, rule.transform, rule.mask, rule.values, callable(rule.to)))
        self.has_columns = is_plain and bool(self.keys)
        #: A missing column of an insert gets the default.
        has_defaults = any(name in names for name in rule.defaults)
        self.slots: Sequence[int | None] | None = (
            None if not is_plain or has_defaults else [None if one is None else names.index(one) for one in self._sources]
        )
        self._all = ColumnNames(tuple(names + [name for name in rule.defaults if name not in names])) if rule.values else None
        #: Of each column: the number of the source column (-1: none), the default and the mask.
        self._steps = [
            (names.index(one) if one in names else -1, rule.defaults.get(one, ABSENT), rule.mask.get(one))
            for one in (wanted if self._all is None else self._all.names)
        ]

    def columns(self, changes: ArrowChanges) -> ArrowChanges | None:
        """Return the changes with the columns of the target's table, or None if a constant does not fit the column's type."""
        import pyarrow as pa

        from canal.formats.arrow import arrow_type

        constants = dict(zip([column.name for column in self.table.columns], self.constants))
        own = dict(zip(constants, self._sources))
        try:
            filled = {
                column.name: pa.repeat(pa.scalar(constants[column.name], arrow_type(column)), len(changes.op))
                for column in self.table.columns
                if own[column.name] is None
            }
        except (pa.ArrowException, TypeError, ValueError):
            return None

        def table(given: Any, names: Iterable[str]) -> Any:
            arrays = {name: filled[name] if own[name] is None else given[own[name]] for name in names}
            return pa.Table.from_arrays(list(arrays.values()), list(arrays))

        return attrs.evolve(
            changes, table=self.table, after=table(changes.after, own), before_keys=table(changes.before_keys, self.table.keys)
        )

    def _made(self, table: Table, columns: tuple[ColumnSchema, ...], own: Sequence[str], computed: frozenset[str]) -> Table:
        rule = self.rule
        keys = tuple(rule.keys if rule.keys is not None else own)
        has_keys = set(keys) <= {column.name for column in columns}
        if not has_keys and rule.keys is not None and columns:
            raise ConfigError(f"keys of a rule for {table.source} are not among its columns: {', '.join(keys)}")
        if rule.merge and keys and has_keys:
            keys = (rule.merge, *(name for name in keys if name != rule.merge))
        path = rule.path(table)
        return attrs.evolve(
            table,
            name=".".join(path),
            path=path,
            columns=columns,
            keys=keys if has_keys else (),
            merge=(rule.merge, *self._merged) if self._merged else None,
            computed=computed,
        )

    def apply(self, change: Change) -> Iterable[Change]:
        rule = self.rule
        before, after, op = change.before, change.after, change.op
        if rule.where is not None:
            was, now = before, after  # an image may lack unchanged columns that the other image has
            before = before if was is not None and rule.where(_seen(was)) else None
            after = after if now is not None and rule.where(_seen(now, was)) else None
            if before is None and after is None:
                return ()
            op = Op.DELETE if after is None else Op.INSERT if before is None and op is Op.UPDATE else op
        is_new = change.before is None
        made = Change(
            self.table, op, self._row(before), self._row(after, change.before, is_new=is_new), change.origin, change.ord
        )
        routed = self._routed(made) if callable(rule.to) else (made,)
        if rule.transform is not None:
            routed = [one for change in routed for one in self._transformed(change)]
        for part, one in enumerate(routed):
            one.part = part
        return routed

    def _routed(self, change: Change) -> Sequence[Change]:
        """Route the change to the table chosen by the row. If the table changes, return a delete and an insert."""
        assert callable(self.rule.to)
        before, after = change.before, change.after
        was = None if before is None else _seen(before)
        now = None if after is None else _seen(after, before)
        new = self._named(self.rule.to(attrs.evolve(change, before=was, after=now)))
        old = new if was is None or now is None else self._named(self.rule.to(attrs.evolve(change, before=was, after=was)))
        if old is new or now is None:
            change.table = new
            return (change,)
        return (
            attrs.evolve(change, table=old, op=Op.DELETE, after=None),
            attrs.evolve(change, table=new, op=Op.INSERT, before=None, after=Row(now.values(), self.table.names)),
        )

    def _named(self, name: str) -> Table:
        """Return the same Table object for the same name."""
        if name not in self._tables:
            self._tables[name] = attrs.evolve(self.table, name=name)
        return self._tables[name]

    def _row(self, row: Row | None, other: Row | None = None, *, is_new: bool = False) -> Row | None:
        """Map a row image to the target's table.

        Args:
            other: the image before the change, for computed columns.
            is_new: whether the change is an insert.
        """
        if row is None:
            return None
        values = row.values()
        if self._is_same:
            return Row(values + self._merged, self.table.names)
        found = self._stepped(values, is_new)
        if self._all is not None:
            former = None if other is None else self._stepped(other.values(), is_new)
            found = self._computed(found, former, is_after=is_new or other is not None)
        return Row(tuple(found) + self._merged, self.table.names)

    def _stepped(self, values: Sequence[Any], is_new: bool) -> list[Any]:
        found = []
        for number, default, mask in self._steps:
            value = values[number] if number >= 0 else default
            if value is ABSENT:
                value = default if is_new else ABSENT
            elif mask is not None and value is not None and number >= 0:
                value = mask(value)
            found.append(value)
        return found

    def _computed(self, found: list[Any], other: list[Any] | None, *, is_after: bool) -> list[Any]:
        """Return the wanted columns, with computed ones. ``ABSENT`` if the image before the change lacks a column."""
        assert self._all is not None
        whole = Row(tuple(found), self._all)
        seen = _seen(whole, None if other is None else Row(tuple(other), self._all))
        made = []
        for name in self._wanted:
            if name not in self.rule.values:
                made.append(whole[name])
                continue
            try:
                made.append(self.rule.values[name](seen))
            except UnfitChangeError:
                if is_after or seen is whole:
                    raise
                made.append(ABSENT)
        return made

    def _transformed(self, change: Change) -> Iterable[Change]:
        assert self.rule.transform is not None
        before, after = change.before, change.after
        shown = attrs.evolve(
            change, before=None if before is None else _seen(before), after=None if after is None else _seen(after, before)
        )
        found = self.rule.transform(shown)
        if found is None:
            return ()
        made = [found] if isinstance(found, Change) else list(found)
        for one in made:
            if not isinstance(one, Change):
                raise ConfigError(f"a transform must return changes or None, not {type(one).__name__}")
            for side in ("before", "after"):
                if isinstance(row := getattr(one, side), _Image):
                    setattr(one, side, Row(row.values(), one.table.names))
        return made


def _check_rule(rule: object) -> None:
    if not isinstance(rule, Rule):
        raise ConfigError(f"rules must be canal.Rule objects, not {rule!r}")
