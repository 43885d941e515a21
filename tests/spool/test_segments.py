"""Entries as bytes and back: the same rows, and an error for any byte that is cut off or changed."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest

import canal
from canal import Instance, InstanceConfig
from canal.errors import ChecksumError, DecodeError, SourceError, TruncatedError, UnsupportedError
from canal.model import Entry, EntryType, TableMap
from canal.rows.decoder import RowDecoder
from canal.schema import ColumnSchema, TableSchema
from canal.spool import segments
from canal.spool.segments import HEADER, SegmentWriter, check_header, read_entries, table_record, tables_of
from canal.spool.spool import Piece, Spool, _parts, piece_source
from canal.testing import FakeBinlog


def entries_of(fake: FakeBinlog) -> list[Entry]:
    fake.end()
    with Instance(InstanceConfig(destination="test", source=fake, start="earliest")) as instance:
        instance.subscribe()
        return [entry for message in instance.stream() for entry in message if entry.entry_type == EntryType.ROWDATA]


def written(entries: list[Entry]) -> tuple[io.BytesIO, list[int]]:
    """A segment of entries, and where each of them ends."""
    file = io.BytesIO()
    writer = SegmentWriter(file)
    ends = []
    for entry in entries:
        writer.add(entry, 3)
        ends.append(writer.size)
    return file, ends


def read(file: io.BytesIO, start: int, end: int) -> Iterator[tuple[int, Entry]]:
    return read_entries(file.getvalue()[start:end], lambda at: table_record(file, at))


@pytest.fixture(params=["mysql", "mariadb"])
def entries(request: pytest.FixtureRequest) -> list[Entry]:
    fake = FakeBinlog(request.param, row_event_max_size=256)
    one = fake.table("shop", "orders", "id INT PRIMARY KEY, price DECIMAL(10,2), kind ENUM('a','b'), note VARCHAR(300)")
    two = fake.table("shöp", "naïve", "id BIGINT UNSIGNED PRIMARY KEY, `when` TIMESTAMP(3) NULL, doc BLOB")
    with fake.transaction():
        one.insert(*({"id": n, "price": "9.99", "kind": "b", "note": "é" * n} for n in range(40)))
        two.insert({"id": 2**64 - 1, "doc": b"\xff\0"})
        one.update({"id": 1, "price": "9.99", "kind": "b", "note": "é"}, {"note": None})
    fake.ddl("ALTER TABLE orders ADD x INT", "shop")
    one.delete({"id": 2})
    return entries_of(fake)


def as_seen(entry: Entry) -> tuple[object, ...]:
    header = entry.header
    rows = [(row.before and row.before.as_dict(), row.after and row.after.as_dict()) for row in entry.rows]
    return (
        header.journal,
        header.offset,
        header.ordinal,
        header.gtid,
        header.execute_time,
        header.schema,
        header.table,
        header.event_type,
        header.row_count,
        header.server_id,
        entry.sql,
        entry.transaction.offset,
        entry.transaction.timestamp,
        entry.first_row,
        rows,
    )


def test_entries_come_back_as_they_were(entries: list[Entry]) -> None:
    file, _ = written(entries)

    found = list(read(file, len(HEADER), file.tell()))

    assert [epoch for epoch, _ in found] == [3] * len(entries)
    assert [as_seen(entry) for _, entry in found] == [as_seen(entry) for entry in entries]
    assert len(entries) > 5


def test_a_part_of_a_row_event_stays_a_part(entries: list[Entry]) -> None:
    entry = entries[0]
    rows = entry.rows
    entry.skip_rows, entry.row_count = 1, entry.row_count - 1
    entry.select((0, 2))
    file, _ = written([entry])

    (found,) = (entry for _, entry in read(file, len(HEADER), file.tell()))

    assert [row.after["id"] for row in found.rows] == [rows[1].after["id"], rows[3].after["id"]]  # type: ignore[index]
    assert (found.first_row + found.skip_rows, found.header.row_count) == (1, 2)


def test_any_range_of_records_reads_by_itself(entries: list[Entry]) -> None:
    file, ends = written(entries)
    for begin in range(len(ends) - 1):
        data = file.getvalue()[ends[begin] : ends[-1]]
        tables = {at: table_record(file, at) for at in tables_of(data)}
        found = [entry for _, entry in read_entries(data, tables.__getitem__)]
        assert [as_seen(entry) for entry in found] == [as_seen(entry) for entry in entries[begin + 1 :]]


@pytest.mark.parametrize("is_shared", [False, True])
def test_segments_that_are_done_with_are_written_over(
    entries: list[Entry], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_shared: bool
) -> None:
    """Each round is read as it was written, its files are no more than were in use at once, and a range that is gone is told.

    In a directory that other machines may see, files are new: a cache there could show what they held before.
    """
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    spool = Spool(None, is_shared)
    address, seen, gone = (0, 0), set(), list[Piece]()
    for number in range(6):
        some = entries[number % 3 :] * (1 + number % 2)
        first = address
        for entry in some:
            address, _ = spool.add(entry, number, 2000)
        spool.flush()
        pieces = spool.pieces(first, address, carried=False)
        found = [pair for piece in pieces for pair in read_entries(*piece_source(piece))]
        assert [epoch for epoch, _ in found] == [number] * len(some)
        assert [as_seen(entry) for _, entry in found] == [as_seen(entry) for entry in some]
        for piece in gone:
            with pytest.raises(SourceError, match="removed after the commit"):
                piece_source(piece)
        seen |= {path.stat().st_ino for path in spool.directory.iterdir()}
        most = len(list(spool.directory.iterdir()))
        spool.release(address[0])
        assert len(list(spool.directory.iterdir())) == (1 if is_shared else most)
        gone += [piece for piece in pieces if Path(piece.path).name != f"{address[0]:08d}"]
    assert gone
    assert is_shared or address[0] > 2 * len(seen)
    spool.close()
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_spares_that_somebody_removed_cost_nothing(entries: list[Entry], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    spool = Spool(None)
    for removed in ("spare-*", "0*1"):
        for entry in entries:
            address, _ = spool.add(entry, 0, 1)  # a segment for each
        spool.flush()
        for path in spool.directory.glob(removed):
            path.unlink()
        spool.release(address[0])
    spool.close()


@pytest.mark.parametrize(("total", "size"), [(57, 14), (63, 15), (17, 5), (20, 5), (1, 4), (1000, 16), (33, 8)])
def test_pieces_of_several_segments_are_few_and_alike(total: int, size: int) -> None:
    """No crumb is left at the end of a segment: each piece is at least half of what is wanted, and no more than twice."""
    sizes = []
    for start in range(0, total, 16):
        end = min(16, total - start)
        parts = list(_parts(list(range(1, 17)), 0, end, size))
        assert [0, *(part[1] for part in parts)] == [*(part[0] for part in parts), end]
        sizes += [stop - begin for begin, stop in parts]
        assert all(stop - begin >= min(end, size // 2) for begin, stop in parts)
    assert max(sizes) <= 2 * size
    assert len(sizes) <= total / size + total / 16 + 2


def test_every_cut_inside_a_record_is_an_error(entries: list[Entry]) -> None:
    file, ends = written(entries[-2:])
    for end in set(range(len(HEADER) + 1, ends[-1])) - set(_record_ends(file)):
        with pytest.raises(TruncatedError):
            list(read(file, len(HEADER), end))


def test_a_file_that_lacks_whole_records_is_an_error(entries: list[Entry], tmp_path: Path) -> None:
    file, ends = written(entries)
    path = tmp_path / "segment"
    path.write_bytes(file.getvalue()[: ends[-2]])
    with pytest.raises(TruncatedError, match="ends before"):
        piece_source(Piece(str(path), len(HEADER), ends[-1]))
    with pytest.raises(SourceError, match="transport=bytes"):
        piece_source(Piece(str(path) + "x", len(HEADER), ends[-1]))


def _record_ends(file: io.BytesIO) -> list[int]:
    data, at, ends = file.getvalue(), len(HEADER), []
    while at < len(data):
        at += 9 + int.from_bytes(data[at : at + 4], "little")
        ends.append(at)
    return ends


def test_every_changed_byte_is_an_error(entries: list[Entry]) -> None:
    file, ends = written(entries[-2:])
    good = file.getvalue()
    for at in range(len(HEADER), ends[-1]):
        bad = bytearray(good)
        bad[at] ^= 0x10
        changed = io.BytesIO(bytes(bad))
        with pytest.raises((ChecksumError, TruncatedError)):
            list(read(changed, len(HEADER), ends[-1]))


def test_another_version_is_refused() -> None:
    file = io.BytesIO(HEADER[:8] + b"\x09\0\0\0")
    with pytest.raises(UnsupportedError, match="is not a segment of this version"):
        check_header(file)


def test_a_table_that_is_none_is_refused(entries: list[Entry]) -> None:
    file, ends = written(entries[:2])
    with pytest.raises(DecodeError, match="where none is"):
        list(read_entries(file.getvalue()[len(HEADER) :], lambda at: table_record(file, ends[0])))


def test_a_masked_table_is_refused_before_an_event_of_it_is_written() -> None:
    fake = FakeBinlog()
    fake.table("shop", "users", "id INT PRIMARY KEY, email VARCHAR(40)").insert({"id": 1, "email": "secret"})
    fake.end()
    mask = {r"shop\.users": {"email": canal.Mask.last(1)}}
    with canal.Instance(canal.InstanceConfig(destination="d", source=fake, start="earliest", mask=mask)) as instance:
        instance.subscribe()
        entries = [entry for message in instance.stream() for entry in message]
        file = io.BytesIO()

        with pytest.raises(canal.ConfigError, match=r"users is masked.*Mask it in Spark"):
            SegmentWriter(file).add(next(entry for entry in entries if entry.rows), 0)

    assert b"secret" not in file.getvalue()


def test_a_segment_keeps_which_columns_a_table_delivers_and_which_values_its_log_has() -> None:
    columns = (
        ColumnSchema("id", 3, column_type="int"),
        ColumnSchema("made for a key", 3, hidden=True),
        ColumnSchema("v", 3, column_type="int", virtual=True, logged=False),
    )
    decoder = RowDecoder(b"\3\3\3", (0, 0, 0), columns, (0, 2))
    shown = (columns[0], columns[2])
    table = TableMap(TableSchema("shop", "t", shown), shown, decoder, True)
    row = bytes((3, 0b101, 0)) + bytes((7, 0, 0, 0)) + bytes(4)

    found = segments.read_table(segments.made_record(segments.TABLE, segments._table_body(table)))

    assert (found.schema, found.columns) == (table.schema, table.columns)
    assert found.decoder.decode(row, 0, len(row), 0) == decoder.decode(row, 0, len(row), 0) == [(None, (7, canal.ABSENT))]
