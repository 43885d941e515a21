"""What becomes of a change on its way to a target: left out, cut to some columns, renamed, masked, transformed, sent elsewhere.

Never looks at a clock, a file or a connection: a rule that is applied twice to a change gives the same twice.
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
    r"""What to do with the changes of some tables. The first rule that names a table is the one that counts.

    The parts are applied in this order. All callables must be pure: changes come again after a failure.

    Args:
        tables: the tables by their names at the source, in the syntax of ``InstanceConfig.filter`` (``shop\.orders_\d+``).
        where: ``row -> bool``: which rows the target is to have. An update that brings a row in is an insert, one that takes it
            out a delete.
        fields: the columns to keep, in this order.
        exclude: columns to leave out, where ``fields`` does not say which to keep.
        defaults: values of columns that a new row lacks (``ABSENT``, or no column of the table), by name.
        mask: ``value -> value`` by the name of the column; NULL and ``ABSENT`` stay as they are.
        values: ``row -> value`` by the name of a column, which the row may lack, such as ``canal.Template("{{ row.first }}!")``.
            The row has all columns of the table, with their defaults and masks.
        rename: new names by old ones, or ``name -> name`` for all columns, such as ``str.lower``.
        keys: columns, by their new names, that tell rows apart, where that is not to be the primary key.
        to: what the target calls the table: a text in which ``{schema}`` and ``{table}`` are those of the source, or
            ``change -> name``. The part before the last dot is the schema. An update that changes the name is a delete and an
            insert.
        merge: name of a column that the target's table has in addition. It holds the name of the source's table
            (``shop.orders_1``), and is the first column of the key. Two tables may go into one only with it; a TRUNCATE of one of
            them deletes its rows alone.
        transform: ``change -> change``, or None (left out), or several changes; made with
            ``change.evolve(after={**change.after.as_dict(), …})``: a row that is given is the whole row.

    With partial row images (binlog_row_image MINIMAL or NOBLOB) a callable sees what the log has of the row, before and after the
    change. If it asks for a column that the log does not have, the change is refused.
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
            raise ConfigError("a rule has fields or exclude, not both")
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
        """Whether it is about this table."""
        return self._filter.accepts(table.database, table.own_name) if table.own_name else False

    def path(self, table: Table) -> tuple[str, ...]:
        """What the target calls a table, where ``to`` is no callable."""
        if not isinstance(self.to, str):
            return table.path
        schema, name = table.origin
        return tuple([part.format(schema=schema, table=name) for part in split(self.to)])


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
        self._plans: Recent[str, tuple[Table, Plan | None]] = Recent()

    def apply(self, change: Change) -> Iterable[Change]:
        """What becomes of a change; a table that no rule names goes through as it is.

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
                remedy="Its cause is the exception of the callable.",
            ) from error

    def name_of(self, source: str) -> str:
        """What the target calls a table of the source; "" where a callable says so for each change."""
        table = Table(source, source)
        rule = next((rule for rule in self._rules if rule.accepts(table)), None)
        return "" if rule is not None and callable(rule.to) else ".".join(table.path if rule is None else rule.path(table))

    def table(self, table: Table) -> Table:
        """Return what the target has for a table, as far as that does not depend on its rows."""
        plan = self.plan(table)
        return table if plan is None else plan.table

    def _statement(self, change: Change, plan: Plan) -> Iterable[Change]:
        if change.op is Op.TRUNCATE and not self._is_log and callable(plan.rule.to):
            if change.origin.position in self._acknowledged:
                return ()
            raise UnloggedChangeError(
                f"{change.table.source} was emptied by TRUNCATE, and a rule writes its rows to tables that it names by the row",
                position=change.origin.position,
                remedy="Take its rows away in the target, then start the pipe once with this position in acknowledged.",
            )
        return (change if callable(plan.rule.to) else attrs.evolve(change, table=plan.table),)

    def plan(self, table: Table) -> Plan | None:
        """What becomes of the rows of a table; None if no rule names it.

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
    """A partial row image as a callable of a rule sees it: it raises for a column that the log does not have."""

    __slots__ = ()

    def __getitem__(self, key: Any) -> Any:
        return self._known(key, super().__getitem__(key))

    def get(self, name: str, default: Any = None) -> Any:
        return self._known(name, super().get(name, default))

    @staticmethod
    def _known(key: Any, value: Any) -> Any:
        if value is ABSENT:
            raise UnfitChangeError(
                f"a rule needs the column {key}, which the log does not have of this row",
                remedy="Set binlog_row_image=FULL at the source. Changes that were logged before can be parked by on_unfit.",
            )
        return value


def _seen(row: Row, other: Row | None = None) -> Row:
    """A row as a callable sees it; what it lacks is that of the other, where that did not change."""
    values = row.values()
    if ABSENT not in values:
        return row
    if other is not None:
        values = tuple([old if new is ABSENT else new for old, new in zip(other.values(), values)])
    return _Image(values, ColumnNames(tuple(row.keys())))


class Plan:
    """A rule for one table of certain columns.

    Attributes:
        table: as the target is to have it.
        keys: columns of the source that its keys are made of.
        has_columns: whether ``columns`` does what ``apply`` does, as no callable sees a row or a value.
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
            raise ConfigError(f"a rule gives two columns of {table.source} one name: {[one.name for one in columns]}")
        computed = frozenset([new[name] for name in fitted.computed] + [rule.merge] * bool(rule.merge))
        self.table = self._made(table, columns, [new[name] for name in table.keys], computed)
        self._tables: Recent[str, Table] = Recent()
        self._is_same = columns == table.columns and not rule.mask and not own
        self._wanted = wanted
        #: Of each column of the target the one of the source that it is; or None, and its value.
        self._sources = [name if name in names else None for name in wanted] + [None] * bool(self._merged)
        self.constants: Sequence[Any] = [rule.defaults.get(name) for name in wanted] + list(self._merged)
        sources = dict(zip([column.name for column in columns], self._sources))
        self.keys: Sequence[str] = [name for key in self.table.keys if (name := sources[key]) is not None]
        is_plain = not any((rule.where, rule.transform, rule.mask, rule.values, callable(rule.to)))
        self.has_columns = is_plain and bool(self.keys)
        #: An insert that lacks a column has its default instead.
        has_defaults = any(name in names for name in rule.defaults)
        self.slots: Sequence[int | None] | None = (
            None if not is_plain or has_defaults else [None if one is None else names.index(one) for one in self._sources]
        )
        self._all = ColumnNames(tuple(names + [name for name in rule.defaults if name not in names])) if rule.values else None
        #: Of each column its number at the source (-1: none), its default and its mask.
        self._steps = [
            (names.index(one) if one in names else -1, rule.defaults.get(one, ABSENT), rule.mask.get(one))
            for one in (wanted if self._all is None else self._all.names)
        ]

    def columns(self, changes: ArrowChanges) -> ArrowChanges | None:
        """Return the changes with the columns of the target's table; None if a constant has no such column."""
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
            was, now = before, after  # an image lacks what did not change, which the other may have
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
        """The change in the table that its row names; where that is another one than before, a delete and an insert."""
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
        """One object for each name."""
        if name not in self._tables:
            self._tables[name] = attrs.evolve(self.table, name=name)
        return self._tables[name]

    def _row(self, row: Row | None, other: Row | None = None, *, is_new: bool = False) -> Row | None:
        """A row image of the target's table. ``other``: the image before, for computed columns; ``is_new``: of an insert."""
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
        """The wanted columns, with those that a callable makes: ``ABSENT`` in an image before the change that lacks a column."""
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
                raise ConfigError(f"a transform must give changes or None, not {type(one).__name__}")
            for side in ("before", "after"):
                if isinstance(row := getattr(one, side), _Image):
                    setattr(one, side, Row(row.values(), one.table.names))
        return made


def _check_rule(rule: object) -> None:
    if not isinstance(rule, Rule):
        raise ConfigError(f"rules must be canal.Rule objects, not {rule!r}")
