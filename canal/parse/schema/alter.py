"""Applies the clauses of an ALTER TABLE, or the body of a CREATE TABLE, in the server's order.

Never affects another table: the catalog handles renames and exchanged partitions.
"""

from __future__ import annotations

import attrs

from canal.parse.schema.alteration import Alteration, Placed
from canal.parse.schema.column_types import GEOMETRIES, char_bytes, converted_type, resolve, text_size, type_text
from canal.parse.schema.keys import (
    POINT_BYTES,
    ROW_END,
    declared_length,
    hashed,
    hidden_columns,
    is_shown_as_primary,
    named_keys,
    takes_prefix,
    value_bytes,
    with_functional,
    with_keys,
    with_points,
)
from canal.parse.schema.parts import INNODB, PRIMARY, Body, ColumnType, Dialect, Key, NotUnderstoodError, TableOptions
from canal.parse.schema.table_state import TableVersion
from canal.rows.charsets import WIDE, encoded, label_text
from canal.schema import UNTOLD, ColumnSchema, TableSchema, column_from_text, is_sure, label_bytes


def altered(
    state: TableVersion, change: Alteration, dialect: Dialect, database: str | None, session: str | None = None
) -> TableVersion:
    """Return the table after the clauses. Default charsets: ``database`` of its schema, ``session`` of the current one."""
    convert = None
    if change.convert is not None:
        unsure = dialect.is_mariadb and not dialect.has("convert_by_database")
        if unsure and database != session and change.convert.charset is None:
            raise NotUnderstoodError("DEFAULT may mean either database's charset")
        convert = change.convert.over(database if dialect.is_mariadb else session)
    if change.convert is not None and convert is None:
        raise NotUnderstoodError("CONVERT TO an unknown charset")
    charset = change.charset.over(database) if change.charset else convert or state.charset
    if convert and not dialect.is_mariadb:  # since 8.0 it must equal the default
        charset = convert
    known = {column.name.lower() for column in state.shown}
    change = attrs.evolve(change, placed=_effective(change.placed, known))
    columns_made = _columns(state, change, dialect, convert or charset, convert)
    columns = [made.column for made in columns_made]
    forgets = dialect.has("in_place_alters") and not dialect.has("converts_in_place")
    if convert and convert != state.charset and forgets and tuple(columns) == state.shown:
        charset = None  # may be the old or the new charset
    periods = {bound.lower() for bounds in change.body.periods.values() for bound in bounds}
    columns = [attrs.evolve(c, nullable=False) if c.name.lower() in periods else c for c in columns]
    if not columns:
        raise NotUnderstoodError("no column is left")
    if len({column.name.lower() for column in columns}) != len(columns):
        raise NotUnderstoodError("two columns with the same name")
    if not dialect.has("members_apart"):
        _check_members(columns, dialect)
    row_end = _row_end(state, change)
    counted = _counted(state, change, columns_made)
    if dialect.is_mariadb:
        columns = _with_unlogged(state, change, columns, columns_made, counted)
    made, keys = _keys(state, change, dialect, columns, columns_made, row_end)
    hidden: tuple[ColumnSchema, ...] = ()
    if dialect.is_mariadb and keys is not None:
        hidden = hidden_columns(made, keys, row_end)
    elif state.hidden or (dialect.is_mariadb and (row_end or any(key.unique for key in change.body.keys))):
        raise NotUnderstoodError("hidden columns with unknown keys")
    schema = attrs.evolve(state.schema, columns=made + hidden)
    engine = change.engine or state.engine
    partitioned = state.partitioned if change.partitioned is None else change.partitioned
    counts_first = engine == INNODB and not partitioned and _counts_first(state, change, columns_made)
    return TableVersion(schema, charset, keys, row_end, len(hidden), counts_first, engine, partitioned, counted)


def _counted(state: TableVersion, change: Alteration, made: list[_Made]) -> str | None:
    """Return the AUTO_INCREMENT column after the clauses."""
    defined = {p.name.lower(): p.definition for p in change.placed if p.definition is not None}
    counting = [name for name, definition in defined.items() if definition.auto_increment]
    if counting:
        return counting[-1]
    if not state.counted:
        return state.counted
    new = next((one.name for one in made if not one.is_new and (one.old or one.name) == state.counted), "")
    return "" if new in defined else new


def _with_unlogged(
    state: TableVersion, change: Alteration, columns: list[ColumnSchema], made: list[_Made], counted: str | None
) -> list[ColumnSchema]:
    """Mark VIRTUAL columns computed from the AUTO_INCREMENT column: MariaDB logs them as if the new row's number were 0."""
    defined = {p.name.lower(): p.definition.made_of for p in change.placed if p.definition is not None}
    sources = {column.name.lower() for column in columns if not column.virtual} if counted is None else {counted} - {""}
    if counted is None and state.keys is not None:
        sources &= {name.lower() for key in state.keys for name, _ in key.columns[:1]}
    # When a column becomes AUTO_INCREMENT, the expressions of existing VIRTUAL columns are unknown.
    before = next((one.old or one.name for one in made if one.name == counted and not one.is_new), "")
    is_new = bool(counted) and state.counted not in (None, before)
    unlogged: set[str] = set()
    while True:
        found = {
            column.name.lower()
            for column in columns
            if column.virtual
            and (
                bool(defined[column.name.lower()] & (sources | unlogged))
                if column.name.lower() in defined
                else is_new or not column.logged
            )
        }
        if found == unlogged:
            return [attrs.evolve(one, logged=False) if one.name.lower() in unlogged else one for one in columns]
        unlogged = found


def _row_end(state: TableVersion, change: Alteration) -> str:
    """Return the column that ends a row's period after the clauses, "" without system versioning."""
    if change.versioned is None:
        return state.row_end
    named = [p.name for p in change.placed if p.definition is not None and p.definition.row_bound == "END"]
    return (named[0] if named else ROW_END) if change.versioned else ""


@attrs.frozen
class _Made:
    """A column of the new table. ``old``: the former name in lower case if CHANGE or RENAME affects it, otherwise ""."""

    column: ColumnSchema
    old: str = ""
    is_new: bool = False

    @property
    def name(self) -> str:
        return self.column.name.lower()

    def is_of(self, column: ColumnSchema) -> bool:
        """Return whether this is the given column of the old table, changed or not."""
        return not self.is_new and (self.old or self.name) == column.name.lower()


def _columns(state: TableVersion, change: Alteration, dialect: Dialect, charset: str | None, convert: str | None) -> list[_Made]:
    """Return the columns in the new order: apply drops and replacements, then each clause that adds or moves a column."""
    known = {column.name.lower() for column in state.shown}
    placed = change.placed
    if change.visible.keys() - known or {c for c, conditional in change.dropped.items() if not conditional} - known:
        raise NotUnderstoodError("a column that the table lacks")
    replaced = {p.old.lower(): p for p in placed if p.old.lower() in known - change.dropped.keys()}
    made: list[_Made] = []
    for column in state.defined:
        old = column.name.lower()
        new = replaced.get(old)
        if old in change.dropped:
            continue
        column = attrs.evolve(column, visible=change.visible.get(old, column.visible))
        if new is not None and new.definition is not None:
            is_text = new.definition.type.base.endswith(("text", "blob"))
            if convert and is_text and dialect.has("converts_by_old_column"):
                raise NotUnderstoodError("the new length depends on the column's contents")
            column = resolve(new.definition, dialect, charset, forced=convert is not None)
        else:
            column = _converted(attrs.evolve(column, name=new.name if new else column.name), convert, dialect)
        made.append(_Made(column, old if new else ""))
    for p in placed:
        old = p.old.lower()
        if old in replaced:
            if p.first or p.after:
                moved = made.pop(next(i for i, one in enumerate(made) if one.old == old))
                made.insert(_place_of(p, made), moved)
        else:
            if old:  # MariaDB lets a statement change a column that it adds itself
                _remove_new(p.name, made)
            if p.definition is None:
                raise NotUnderstoodError("a column that the table lacks")
            column = resolve(p.definition, dialect, charset, forced=convert is not None)
            made.insert(_place_of(p, made), _Made(column, is_new=True))
    return _with_generated_key(state, made) if dialect.has("generated_keys") else made


def _with_generated_key(state: TableVersion, made: list[_Made]) -> list[_Made]:
    """Keep a primary key that MySQL generated before all other columns."""
    if not state.defined or not _may_be_generated(state):
        return made
    ordered = sorted(made, key=lambda one: not one.is_of(state.defined[0]))
    if ordered != made and not state.counts_first:
        raise NotUnderstoodError("a column before a possibly generated primary key")
    return ordered


def _may_be_generated(state: TableVersion) -> bool:
    """Return whether the first column looks like a primary key that MySQL generated."""
    first = state.defined[0]
    is_alone = [column for column in state.defined if column.key] == [first]
    is_primary = state.keys is None or any(key.is_primary for key in state.keys)
    is_of_type = first.base_type == "bigint" and first.unsigned and not first.visible
    return first.name.lower() == "my_row_id" and is_of_type and is_alone and is_primary


def _counts_first(state: TableVersion, change: Alteration, made: list[_Made]) -> bool:
    """Return whether the first column is certainly AUTO_INCREMENT after the clauses."""
    defined = [p.definition for p in change.placed if p.definition is not None and p.name.lower() == made[0].name]
    return defined[-1].auto_increment if defined else state.counts_first and made[0].is_of(state.defined[0])


def _remove_new(name: str, made: list[_Made]) -> None:
    for i, column in enumerate(made):
        if column.is_new and column.name == name.lower():
            del made[i]
            return
    raise NotUnderstoodError("a column that the table lacks")


def _effective(placed: list[Placed], known: set[str]) -> list[Placed]:
    """Remove no-ops: IF EXISTS for a missing column, IF NOT EXISTS for an existing or just added column."""
    kept = []
    added: set[str] = set()
    for one in placed:
        is_idle = one.old.lower() not in known if one.old else one.name.lower() in known | added
        if not (one.conditional and is_idle):
            kept.append(one)
            added.add(one.name.lower())
    return kept


def _place_of(placed: Placed, columns: list[_Made]) -> int:
    if placed.first:
        return 0
    if not placed.after:
        return len(columns)
    for i, column in enumerate(columns):
        if column.name == placed.after.lower():
            return i + 1
    raise NotUnderstoodError(f"AFTER unknown column {placed.after!r}")


def _converted(column: ColumnSchema, charset: str | None, dialect: Dialect) -> ColumnSchema:
    """Convert an existing column for CONVERT TO. A column that the same statement defines keeps the type."""
    base = column.base_type
    if charset is None or column.charset in (None, "binary") or base == "json":
        return column
    labels = column.labels
    if labels is None:
        text = converted_type(column.column_type, column.charset, charset, dialect)
    else:
        labels = _relabelled(labels, str(column.charset), charset, dialect)
        text = type_text(ColumnType(base, labels=labels), dialect, charset)
    made = column_from_text(
        column.name,
        text,
        charset=None if charset == "binary" else charset,
        nullable=column.nullable,
        key=column.key,
        visible=column.visible,
        virtual=column.virtual,
    )
    return attrs.evolve(made, labels=labels)


def _check_members(columns: list[ColumnSchema], dialect: Dialect) -> None:
    """Raise NotUnderstoodError if the server may corrupt labels.

    Some servers treat labels as NUL-terminated, which corrupts labels with a NUL byte, or shares them between columns. Old
    servers store labels in wide charsets such as ucs2 as hexadecimal digits, and corrupt labels shared by two columns.
    """
    labelled = [column for column in columns if column.labels is not None]
    narrow = {tuple(_label_bytes(label, one) for label in one.labels or ()) for one in labelled if one.charset not in WIDE}
    if len({tuple(label.partition(b"\0")[0] for label in labels) for labels in narrow}) < len(narrow):
        raise NotUnderstoodError("labels may be replaced by those of another column")
    if dialect.has("wide_labels"):
        return
    wide = [column.labels for column in labelled if column.charset in WIDE]
    if len(set(wide)) < len(wide) or any(b"\0" in label for labels in narrow for label in labels):
        raise NotUnderstoodError("labels are corrupted")


def _label_bytes(label: str, column: ColumnSchema) -> bytes:
    charset = "utf8mb4" if column.charset in (None, "binary") else str(column.charset)
    return encoded(label, charset) if is_sure(label) else label_bytes(label)


def _relabelled(labels: tuple[str, ...], old: str, new: str, dialect: Dialect) -> tuple[str, ...]:
    """Return the labels after CONVERT TO, which keeps the bytes: with another charset they are other texts, or invalid."""
    if old == UNTOLD:
        raise NotUnderstoodError("labels in an unknown charset")
    if (old in WIDE or new in WIDE) and old != new and not dialect.has("wide_labels"):
        raise NotUnderstoodError("labels are corrupted")
    return tuple(_relabelled_one(label, old, new) for label in labels)


def _relabelled_one(label: str, old: str, new: str) -> str:
    raw = encoded(label, old) if is_sure(label) else label_bytes(label)
    # Servers show "?" for a label that the charset lacks. The bytes are then unknown.
    return label if not is_sure(label) and b"?" in raw else label_text(raw, new)


def _keys(
    state: TableVersion, change: Alteration, dialect: Dialect, columns: list[ColumnSchema], made: list[_Made], row_end: str
) -> tuple[tuple[ColumnSchema, ...], tuple[Key, ...] | None]:
    if state.keys is None:
        return _unknown_keys(state, change, dialect, columns, made), None
    by_name = {column.name.lower(): column for column in columns}
    new_keys = [_with_period(key, change.body) for key in change.body.keys]
    if any(part and part.lower() not in by_name for key in new_keys for part, _ in key.columns):
        raise NotUnderstoodError("a key of a column that the table lacks")
    # MariaDB does not find unique hash keys by DROP CONSTRAINT.
    constraints = {key.name.lower() for key in state.keys if key.unique and not key.hash} & change.dropped_constraints
    if not dialect.has("unique_constraints"):
        constraints = set()
    dropped = constraints | change.dropped_keys.keys()
    for missing in change.dropped_keys.keys() - {key.name.lower() for key in state.keys}:
        # It may be a foreign key's index, which is not tracked. But generated names such as a_2 depend on all other keys.
        if not change.dropped_keys[missing] and (missing == "primary" or missing.rpartition("_")[2].isdigit()):
            raise NotUnderstoodError(f"no key {missing!r}")
    kept = []
    for key in state.keys:
        if key.name.lower() in dropped:
            continue
        found = (_kept_part(part, state, change, dialect, columns, made) for part in key.columns)
        parts = tuple(part for part in found if part is not None)
        if parts:
            kept.append(attrs.evolve(key, name=change.renamed_keys.get(key.name.lower(), key.name), columns=parts))
    added = [attrs.evolve(key, columns=tuple(_added_part(part, by_name) for part in key.columns)) for key in new_keys]
    ordered = with_points(named_keys(kept, added, state.keys), columns, dialect.is_mariadb)
    if not dialect.has("hash_keys"):  # USING HASH has no effect there
        ordered = [attrs.evolve(key, hash=False) for key in ordered]
    elif change.remakes or len(ordered) > len(kept) or _has_effect(state, change):
        ordered = _rehashed(state, change, ordered[: len(kept)], ordered[len(kept) :], columns, row_end)
    if dialect.logs_functional_keys:
        columns = with_functional(columns, state.keys, dropped, change.renamed_keys, ordered)
    is_ordered = dialect.has("keeps_key_order") and len(ordered) == len(kept) and not change.copies
    is_ordered = is_ordered and not _is_demoted(state, change, dialect, kept, by_name)
    return with_keys(columns, ordered, row_end, dialect, is_ordered)


def _with_period(key: Key, body: Body) -> Key:
    """Resolve WITHOUT OVERLAPS: the period's end and start follow the key's columns."""
    if not key.period:
        return key
    if key.period.lower() not in body.periods:
        raise NotUnderstoodError("a period defined before the statement")
    start, end = body.periods[key.period.lower()]
    return attrs.evolve(key, columns=(*key.columns, (end, None), (start, None)), period="")


def _is_demoted(
    state: TableVersion, change: Alteration, dialect: Dialect, kept: list[Key], columns: dict[str, ColumnSchema]
) -> bool:
    """Return whether the key shown as primary loses a column or becomes nullable: MariaDB then sorts all keys again."""
    before = {column.name.lower(): column for column in state.shown}
    if not state.keys or not is_shown_as_primary(state.keys[0], before, dialect):
        return False
    old = state.keys[0]
    name = change.renamed_keys.get(old.name.lower(), old.name)
    new = next((key for key in kept if key.name == name), None)
    if new is None:
        return old.name.lower() not in change.dropped_keys.keys() | change.dropped_constraints
    may_be_null = not new.is_primary and any(columns[named.lower()].nullable for named, _ in new.columns)
    return len(new.columns) < len(old.columns) or may_be_null


def _added_part(part: tuple[str, int | None], columns: dict[str, ColumnSchema]) -> tuple[str, int | None]:
    """Resolve a new key's column and prefix. Numbers may have a prefix length in bytes, which is dropped."""
    if not part[0]:
        return part
    column, length = columns[part[0].lower()], part[1]
    base = column.base_type
    if length and base.endswith(("text", "blob")):
        return column.name, min(length, text_size(base))
    return column.name, length if length and takes_prefix(column, length) else None


def _has_effect(state: TableVersion, change: Alteration) -> bool:
    """Return whether the clauses, including IF EXISTS, do more than rename the table."""
    columns = {column.name.lower() for column in state.shown}
    keys = {key.name.lower() for key in state.keys or ()}
    others = (change.placed, change.renamed_keys, change.visible, change.charset, change.convert, change.versioned is not None)
    gone = columns & change.dropped.keys() or keys & change.dropped_keys.keys()
    return bool(gone or any(others) or change.engine or change.partitioned is not None)


def _rehashed(
    state: TableVersion, change: Alteration, kept: list[Key], added: list[Key], columns: list[ColumnSchema], row_end: str
) -> list[Key]:
    """Return the keys of a rebuilt table. A rebuild forgets USING HASH of existing keys."""
    by_name = {column.name.lower(): column for column in columns}
    is_unsure = any(key.unique and not key.is_primary for key in kept)
    if "memory" in (state.engine, change.engine) and change.engine not in ("", state.engine) and is_unsure:
        raise NotUnderstoodError("MEMORY does not show which keys are USING HASH")
    engine = change.engine or state.engine
    return [hashed(one, by_name, engine, row_end) for one in [*(attrs.evolve(key, hash=False) for key in kept), *added]]


def _kept_part(
    part: tuple[str, int | None],
    state: TableVersion,
    change: Alteration,
    dialect: Dialect,
    columns: list[ColumnSchema],
    made: list[_Made],
) -> tuple[str, int | None] | None:
    """Return a key part that stays; None if the column is gone."""
    old, length = part
    new = _successor(old, made) if old else ""
    if not old or not new:
        return None if old else part
    if length is None and not dialect.is_mariadb and old.lower() not in change.dropped:
        length = _prefix_of_whole(next(column for column in state.shown if column.name.lower() == old.lower()))
    return new, _length(old, new, length, state, change, columns)


def _prefix_of_whole(column: ColumnSchema) -> int | None:
    """Return the prefix length of MySQL's key on a whole ENUM, SET or POINT after a change to text: mostly the size in bytes."""
    if column.base_type == "point":
        return POINT_BYTES
    if column.labels is None:
        return None
    lengths, size, width = list(map(len, column.labels)), value_bytes(column), char_bytes(column.charset)
    most = max(lengths) if column.base_type == "enum" else sum(lengths) + len(lengths) - 1
    return None if most * width == size else size // width or None


def _length(
    old_name: str, name: str, length: int | None, state: TableVersion, change: Alteration, columns: list[ColumnSchema]
) -> int | None:
    """Return the prefix length of a key part. A text or geometry inherits the length of the dropped column that it replaces."""
    new = next(column for column in columns if column.name.lower() == name.lower())
    if old_name.lower() not in change.dropped:
        if length and new.base_type.endswith(("text", "blob")):
            return min(length, text_size(new.base_type))
        return length if length and takes_prefix(new, length) else None
    old = next(column for column in state.shown if column.name.lower() == old_name.lower())
    is_whole_text = length is None and old.base_type.endswith(("text", "blob"))
    takes_part = new.charset is not None or new.base_type.endswith(("char", "binary", "blob")) or new.base_type in GEOMETRIES
    if is_whole_text or not takes_part or (old.column_type, old.charset) == (new.column_type, new.charset):
        return length
    found = length or declared_length(old) or value_bytes(old) // char_bytes(old.charset)
    return None if found in (0, declared_length(new)) else found


def _successor(name: str, made: list[_Made]) -> str:
    """Return the column that replaces another in a key: the first that CHANGE made of it, or that has the same name."""
    wanted = name.lower()
    return next((m.column.name for m in made if (m.old or m.name) == wanted), "")


def _unknown_keys(
    state: TableVersion, change: Alteration, dialect: Dialect, columns: list[ColumnSchema], made: list[_Made]
) -> tuple[ColumnSchema, ...]:
    """Set key flags without known indexes, as far as possible."""
    flagged = {_successor(column.name, made).lower() for column in state.schema.keys}
    nullable = {_successor(column.name, made).lower() for column in state.schema.columns if column.nullable}
    if change.dropped_keys or change.dropped_constraints or "" in flagged:
        raise NotUnderstoodError("a key is dropped, and the others are unknown")
    if not flagged and (change.dropped or any(c.name.lower() in nullable and not c.nullable for c in columns)):
        raise NotUnderstoodError("a unique key may become the primary one")
    keys = [_with_period(key, change.body) for key in change.body.keys]
    if flagged and not any(key.is_primary for key in keys):
        keys.insert(0, Key(PRIMARY, True, tuple((named, None) for named in sorted(flagged))))
    return with_keys(columns, keys, "", dialect)[0]


def copied(state: TableVersion, schema: str, table: str, dialect: Dialect) -> TableVersion:
    """Return the table that CREATE TABLE … LIKE creates."""
    named = attrs.evolve(state, schema=TableSchema(schema, table, state.schema.columns))
    return altered(named, Alteration(remakes=True, copies=True), dialect, None)


def created(schema: str, table: str, body: Body, dialect: Dialect, charset: str | None, options: TableOptions) -> TableVersion:
    """Return the table that a CREATE TABLE with this body creates."""
    change = Alteration(placed=[Placed(column.name, column) for column in body.columns], body=body)
    change.versioned = options.versioned or body.versioned
    change.engine, change.partitioned = options.engine, options.partitioned
    return altered(TableVersion(TableSchema(schema, table, ()), charset, (), counted=""), change, dialect, charset)
