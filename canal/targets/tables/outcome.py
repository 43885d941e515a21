"""Folds a batch of changes to the last row of each key, in Arrow, with partial row images.

Never reads or writes a table, and makes Python objects of key values only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from canal.changes.change import Table
from canal.changes.fold import INSERT, ArrowChanges, fold
from canal.errors import TargetSchemaError, UnfitChangeError
from canal.formats.spark_types import exact_cast
from canal.targets.tables import matching

#: Digits of the largest integer by its bits.
_DIGITS = {8: 3, 16: 5, 32: 10, 64: 19}
_ANEW: Final = "if that is impossible, drop the table, which has its progress, and take a snapshot"
#: Returns the rows with some keys.
Read = Callable[[pa.Table], pa.Table]


def outcome(
    rows: pa.Table, payload: pa.Table, keys: Sequence[str], schema: pa.Schema, read: Read | None, null_for_absent: bool
) -> tuple[pa.Table, pa.Table]:
    """Return the rows to put (all columns of ``schema``) and the keys to remove. No key is in both, or twice.

    Args:
        rows: changes in their order.
        payload: the columns of the same rows that the target has or gets.
        schema: the target's columns.
        read: returns the target's rows that partial images change. None: the target has no rows.
        null_for_absent: whether columns that an inserted image lacks become NULL. Otherwise they are an error.

    Raises:
        UnfitChangeError: the resulting row is unknown.
        TargetSchemaError: a value does not fit the target's column.
    """
    is_partial = pc.fill_null(pc.greater(pc.list_value_length(rows["_absent"]), 0), False)
    is_update = pc.equal(rows["_op"], "U")
    is_patch = pc.and_(is_partial, is_update)
    if not null_for_absent:
        inserts = rows.filter(pc.and_(is_partial, pc.is_in(rows["_op"], pa.array(["I", "r"]))))
        if inserts.num_rows:
            raise UnfitChangeError(
                f"{inserts.num_rows} inserts lack columns, whose defaults are not logged (first at {where(inserts)})",
                remedy="Set binlog_row_image=FULL at the source. absent='null' writes NULL for these columns, and for columns "
                "that were added to the table after these inserts.",
            )
    before, after = _keys(rows, keys, is_update, is_patch)
    key_schema = pa.schema([schema.field(key) for key in keys])
    if pc.any(is_patch).as_py():
        upserts, deletes = _fold(rows, payload, before, after, schema, key_schema, read)
    else:
        upserts, deletes = _latest(rows, payload, before, after)
    return fit(upserts, schema), fit(deletes, key_schema)


def where(rows: pa.Table) -> str:
    """Return the GTID and number of the first row, for a message."""
    return f"{rows['_gtid'][0].as_py()}, row {rows['_ord'][0].as_py()}"


# -- keys ----------------------------------------------------------------------------------------------------------------


def _keys(
    rows: pa.Table, keys: Sequence[str], is_update: pa.ChunkedArray, is_patch: pa.ChunkedArray
) -> tuple[pa.Table, pa.Table]:
    """Return the key before each update (null for other changes), and the key after each change (before it for deletes)."""
    befores, afters = {}, {}
    for key in keys:
        before = pc.struct_field(rows["_before"], [rows["_before"].type.get_field_index(key)])
        after = rows[key]
        if pc.any(is_patch).as_py():
            after = pc.if_else(pc.and_(is_patch, _names(rows["_absent"], key)), before, after)
        lacking = rows.filter(pc.or_(pc.is_null(after), pc.and_(is_update, pc.is_null(before))))
        if lacking.num_rows:
            raise UnfitChangeError(
                f"the key column {key} is NULL, or not in the row image (first at {where(lacking)})",
                remedy="Use the primary key of the table as keys, with values that its types can hold.",
            )
        befores[key], afters[key] = before, after
    return pa.table(befores), pa.table(afters)


def _names(lists: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    """Return whether each list of names has this name."""
    array = lists.combine_chunks()
    parents = pc.list_parent_indices(array).filter(pc.equal(pc.list_flatten(array), name))
    return pa.chunked_array([pc.is_in(pa.array(range(len(array)), pa.int64()), parents.cast(pa.int64()))])


# -- whole row images ----------------------------------------------------------------------------------------------------


def _latest(rows: pa.Table, payload: pa.Table, before: pa.Table, after: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return the last row of each key, and the keys without a row."""
    keys = after.column_names
    op = pc.index_in(rows["_op"], pa.array(["I", "U", "D"])).combine_chunks()  # in the order of their codes
    op = pc.fill_null(op, INSERT).cast(pa.uint8())
    number = pa.nulls(len(op), pa.int64())
    state = fold(ArrowChanges(Table("", "", (), tuple(keys)), op, number, number, payload, before))
    return state.upserts, matching(state.deletes, state.upserts.select(keys), others=True)


# -- partial row images --------------------------------------------------------------------------------------------------


@attrs.define
class _Row:
    """A row, as the numbers of the changes that have its columns."""

    base: tuple[Any, ...] | None  # key of the target's row with the other columns
    whole: int = -1  # or the change with the other columns
    columns: dict[str, int] = attrs.field(factory=dict)

    def patched(self, number: int, names: Sequence[str]) -> _Row:
        return _Row(self.base, self.whole, {**self.columns, **dict.fromkeys(names, number)})


def _fold(
    rows: pa.Table,
    payload: pa.Table,
    before: pa.Table,
    after: pa.Table,
    schema: pa.Schema,
    key_schema: pa.Schema,
    read: Read | None,
) -> tuple[pa.Table, pa.Table]:
    """Merge each row of the target's row and the columns in the images of its changes."""
    final = _states(rows, payload, _tuples(before), _tuples(after))
    deletes = _key_table([key for key, row in final.items() if row is None], after.schema)
    bases = dict.fromkeys(row.base for row in final.values() if row is not None and row.base is not None)
    wanted = fit(_key_table(list(bases), after.schema), key_schema)
    base = read(wanted) if bases and read is not None else pa.Table.from_batches([], key_schema)
    base_rows = {key: payload.num_rows + number for number, key in enumerate(_tuples(base.select(after.column_names)))}
    # Compare keys in the types of the target.
    own = dict(zip(bases, _tuples(wanted)))
    if missing := [key for key in bases if own[key] not in base_rows]:
        raise UnfitChangeError(
            f"partial row images change {len(missing)} rows that the target lacks",
            remedy="Begin with a snapshot, or set binlog_row_image=FULL at the source.",
        )
    found = [row for row in final.values() if row is not None]
    default = [row.whole if row.base is None else base_rows[own[row.base]] for row in found]
    both = pa.concat_tables([fit(payload, schema), fit(base, schema)]).combine_chunks()
    arrays = []
    for field in schema:
        numbers = [row.columns.get(field.name, number) for row, number in zip(found, default)]
        if field.name == "_exact" and "_exact" in payload.column_names:
            arrays.append(_exact(both["_exact"], found, default, field.type))
        else:
            arrays.append(both[field.name].take(pa.array(numbers, pa.int64())))
    return pa.table(arrays, schema=schema), deletes


def _states(
    rows: pa.Table, payload: pa.Table, before: list[tuple[Any, ...]], after: list[tuple[Any, ...]]
) -> dict[tuple[Any, ...], _Row | None]:
    """Return the row of each changed key, or None if it was deleted."""
    names = [name for name in payload.column_names if name != "_exact"]
    final: dict[tuple[Any, ...], _Row | None] = {}
    for number, (op, absent) in enumerate(zip(rows["_op"].to_pylist(), rows["_absent"].to_pylist())):
        if op == "D":
            final[after[number]] = None
            continue
        row: _Row | None = _Row(None, number)
        if op == "U":
            old = before[number]
            if absent:
                row = final.get(old, _Row(old))
                if row is None:
                    raise UnfitChangeError(
                        f"a partial row image changes a row that was deleted before (at {where(rows.slice(number, 1))})",
                        remedy="Use the primary key of the table as keys.",
                    )
                row = row.patched(number, [name for name in names if name not in absent])
            if old != after[number]:
                final[old] = None
        final[after[number]] = row
    return final


def _exact(texts: pa.ChunkedArray, found: list[_Row], default: list[int], kind: pa.DataType) -> pa.Array:
    """Return the ``_exact`` map of each row, with each column's text from the image that has the column."""
    maps = [dict(pairs or ()) for pairs in texts.to_pylist()]
    result = []
    for row, number in zip(found, default):
        kept = {name: text for name, text in maps[number].items() if name not in row.columns}
        kept |= {name: maps[patch][name] for name, patch in row.columns.items() if name in maps[patch]}
        result.append(list(kept.items()) or None)
    return pa.array(result, kind)


def _tuples(table: pa.Table) -> list[tuple[Any, ...]]:
    return list(zip(*(column.to_pylist() for column in table.columns)))


def _key_table(keys: list[tuple[Any, ...]], schema: pa.Schema) -> pa.Table:
    columns = list(zip(*keys)) or [()] * len(schema)
    return pa.table([pa.array(values, field.type) for values, field in zip(columns, schema)], schema=schema)


# -- types ---------------------------------------------------------------------------------------------------------------


def fit(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the table with the columns of ``schema``. Missing columns are null.

    Raises:
        TargetSchemaError: a column has another type, or a value that does not fit.
    """
    arrays = []
    for field in schema:
        if field.name not in table.column_names:
            arrays.append(pa.chunked_array([pa.nulls(table.num_rows, field.type)]))
            continue
        column = table[field.name]
        try:
            if not _goes_into(column.type, field.type):
                raise TargetSchemaError(
                    f"the column {field.name} is {column.type} in the changes and {field.type} in the target",
                    remedy=f"Cast it in the DataFrame, or alter the target's column; {_ANEW}.",
                )
            arrays.append(column if column.type == field.type else exact_cast(column, field.type))
        except pa.ArrowInvalid as error:
            raise TargetSchemaError(
                f"a value of the column {field.name} does not fit into the target's {field.type}",
                remedy=f"Alter the target's column; {_ANEW}.",
            ) from error
    return pa.table(arrays, schema=pa.schema([pa.field(field.name, field.type) for field in schema]))


def extended(schema: pa.Schema, own: Iterable[pa.Field], wider: Mapping[str, pa.DataType]) -> tuple[pa.Schema, list[pa.Field]]:
    """Return the columns that a target is to have, and those of them that it lacks or has with another type.

    Args:
        schema: the target's columns.
        own: the columns of the changes.
        wider: the new types of columns of the target.

    Raises:
        TargetSchemaError: the target has a column in another case.
    """
    lacking = [pa.field(field.name, field.type) for field in own if field.name not in schema.names]
    folded = {name.lower(): name for name in schema.names}
    if renamed := [f"{field.name} ({folded[name]})" for field in lacking if (name := field.name.lower()) in folded]:
        raise TargetSchemaError(
            f"the target (in brackets) writes the names of columns in another case: {', '.join(renamed)}",
            remedy="Rename the target's columns.",
        )
    made = pa.schema([*(pa.field(one.name, wider.get(one.name, one.type)) for one in schema), *lacking])
    return made, [*(made.field(name) for name in wider), *lacking]


def wider(column: pa.ChunkedArray, kind: pa.DataType) -> pa.DataType | None:
    """Return ``kind`` if all values fit, else a type that holds both, or None if there is none."""
    try:
        if _goes_into(column.type, kind):
            exact_cast(column, kind)
            return kind
    except pa.ArrowInvalid:
        pass
    return common(column.type, kind)


def common(ours: pa.DataType, kind: pa.DataType) -> pa.DataType | None:
    """Return a type that holds all values of both types, ``kind`` if possible. Return None if there is none."""
    is_ = pa.types
    if is_.is_struct(ours) and is_.is_struct(kind) and [field.name for field in ours] == [field.name for field in kind]:
        inner = [common(one.type, other.type) for one, other in zip(ours, kind)]
        return None if None in inner else pa.struct([field.with_type(one) for field, one in zip(kind, inner)])
    if is_.is_integer(ours) and is_.is_integer(kind) or is_.is_floating(ours) and is_.is_floating(kind):
        return max(kind, ours, key=lambda one: one.bit_width)
    if is_.is_decimal(ours) and is_.is_integer(kind) or is_.is_decimal(kind) and (is_.is_integer(ours) or is_.is_decimal(ours)):
        (digits, scale), (others, behind) = _digits(ours), _digits(kind)
        most, whole = max(scale, behind), max(digits - scale, others - behind)
        return pa.decimal128(whole + most, most) if whole + most <= 38 else None
    return kind if _goes_into(ours, kind) else None


def _digits(kind: pa.DataType) -> tuple[int, int]:
    """Return the precision and scale of a number."""
    return (kind.precision, kind.scale) if pa.types.is_decimal(kind) else (_DIGITS[kind.bit_width], 0)


def _goes_into(ours: pa.DataType, theirs: pa.DataType) -> bool:
    """Return whether a cast keeps every value, or fails."""
    is_ = pa.types
    if ours == theirs or is_.is_null(ours):
        return True
    if is_.is_integer(ours):
        return bool(is_.is_integer(theirs) or is_.is_decimal(theirs))
    if is_.is_decimal(ours):
        return bool(is_.is_decimal(theirs))
    if is_.is_floating(ours):
        return bool(is_.is_floating(theirs) and theirs.bit_width >= ours.bit_width)
    if is_.is_timestamp(ours):
        return bool(is_.is_timestamp(theirs) and (ours.tz is None) == (theirs.tz is None))
    if is_.is_nested(ours):
        alike = ours.id == theirs.id or _is_list(ours) and _is_list(theirs)
        if not alike or ours.num_fields != theirs.num_fields:
            return False
        if is_.is_struct(ours) and [field.name for field in ours] != [field.name for field in theirs]:
            return False
        return all(_goes_into(ours.field(n).type, theirs.field(n).type) for n in range(ours.num_fields))
    texts = (is_.is_string, is_.is_large_string, is_.is_string_view)
    binaries = (is_.is_binary, is_.is_large_binary, is_.is_binary_view)
    return any(any(one(ours) for one in kinds) and any(one(theirs) for one in kinds) for kinds in (texts, binaries))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))
