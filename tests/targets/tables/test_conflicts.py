"""Two queries on one table of a target, and what goes wrong at the target."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from canal.errors import TargetConflictError, TargetError, TargetLostError, TargetSchemaError
from canal.spark import apply_changes
from canal.spark.delta_spark import DeltaSparkTarget, _DeltaSparkWork
from canal.targets.protocol import Progress, TableProgress
from canal.targets.tables import DeltaTableTarget, IcebergTableTarget, MySQLTableTarget, ParquetTableTarget, understood
from tests.support.engine import PATIENCE
from tests.support.histories import KEYS, FaultyTarget, change, content, table
from tests.support.lakes import Iceberg, Lake, first_changes, in_server, more_changes


def test_a_writer_that_is_late_is_refused(lake: Lake) -> None:
    """Its commit was prepared before another's of the same stream."""
    target = lake.make()
    apply_changes(target, KEYS)(first_changes())
    late = FaultyTarget(target, "between")

    late.between = lambda: apply_changes(target, KEYS)(more_changes())
    with pytest.raises(TargetConflictError):
        apply_changes(late, KEYS)(more_changes())
    apply_changes(target, KEYS)(more_changes())

    assert {key[0]: row["a"] for key, row in content(lake.rows(target)).items()} == {0: 2, 1: 1, 2: 1, 9: 1}


def test_a_table_that_another_writer_makes_meanwhile_is_a_conflict(lake: Lake) -> None:
    target = lake.make()
    late = FaultyTarget(target, "between")

    late.between = lambda: apply_changes(target, KEYS)(first_changes())
    with pytest.raises(TargetConflictError):
        apply_changes(late, KEYS)(first_changes())

    assert len(content(lake.rows(target))) == 3


def test_a_writer_that_is_late_with_changes_that_change_nothing_is_refused(lake: Lake) -> None:
    """A delete of what is not there makes no commit by itself."""
    target = lake.make()
    apply_changes(target, KEYS)(first_changes())
    gone = table([change("D", 5, 0, {"id": 77, "k": "x", "a": 1, "b": None})])
    late = FaultyTarget(target, "between")

    late.between = lambda: apply_changes(target, KEYS)(gone)
    with pytest.raises(TargetConflictError):
        apply_changes(late, KEYS)(gone)

    progress = apply_changes(target, KEYS).progress()
    assert progress is not None
    assert progress.table.last_change == (5, 0)


def test_a_writer_that_is_late_at_a_server_waits_and_leaves_out_what_is_there(server: Any, in_mysql: MySQLTableTarget) -> None:
    target = in_mysql
    apply_changes(target, KEYS)(first_changes())
    done = []

    class Slow(FaultyTarget):
        def between(self) -> None:
            second.start()
            wait_until_blocked(server)

    def follow_up() -> None:
        apply_changes(target, KEYS)(more_changes())
        done.append(True)

    second = threading.Thread(target=follow_up)
    apply_changes(Slow(target, "between"), KEYS)(more_changes())
    second.join(PATIENCE)

    assert done
    assert len(in_server(server, target)) == 4


def test_table_that_is_dropped_between_batches_is_an_error_until_a_snapshot_begins(lake: Lake, tmp_path: Path) -> None:
    target = lake.make()
    fn = apply_changes(target, KEYS, snapshot="replace")
    fn(first_changes())
    lake.drop(target)

    with pytest.raises(TargetLostError, match=r"was dropped, replaced or restored.*take a snapshot"):
        fn(more_changes())
    fn(table([change("r", 9, -1, {"id": 1, "k": "x", "a": 5, "b": None})]))

    assert {key[0]: row["a"] for key, row in content(lake.rows(target)).items()} == {1: 5}


def wait_until_blocked(server: Any) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        rows = server.query("SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'")
        if rows[0][0]:
            return
        time.sleep(0.2)  # asked more often than each 0.1 s the server answers what it said last
    raise AssertionError("the second writer does not wait")


# -- what goes wrong at the target ---------------------------------------------------------------------------------------


def break_file(root: Path, pattern: str, content: bytes | None) -> None:
    """Change the last of these files, or remove it."""
    path = sorted(root.rglob(pattern))[-1]
    path.unlink() if content is None else path.write_bytes(content)


@pytest.mark.parametrize(("pattern", "content"), [("*.json", b"{"), ("*.parquet", None), ("*.parquet", b"PAR1")])
def test_a_damaged_delta_table_is_a_typed_error(tmp_path: Path, pattern: str, content: bytes | None) -> None:
    target = DeltaTableTarget(str(tmp_path))
    apply_changes(target, KEYS)(first_changes())
    break_file(tmp_path, pattern, content)

    for rows in (more_changes(), table([change("U", 2, 0, {"a": 6}, {"id": 1, "k": "x"})])):
        with pytest.raises(TargetError, match=r"cannot be read or written.*apply the batch again"):
            apply_changes(target, KEYS)(rows)


def test_an_iceberg_table_that_cannot_be_read_is_a_typed_error(tmp_path: Path) -> None:
    target = Iceberg(tmp_path).make()
    apply_changes(target, KEYS)(first_changes())
    break_file(tmp_path, "*.parquet", None)
    with pytest.raises(TargetError, match="cannot be read or written, FileNotFoundError"):
        apply_changes(target, KEYS)(more_changes())

    nowhere = {"type": "sql", "uri": f"sqlite:///{tmp_path}/none/catalog.db", "warehouse": f"file://{tmp_path}"}
    with pytest.raises(TargetError, match="cannot be read or written, OperationalError"):
        apply_changes(IcebergTableTarget("a.b", "nowhere", nowhere), KEYS)(first_changes())


def test_a_directory_of_parquet_files_that_cannot_be_read_or_written_is_a_typed_error(tmp_path: Path) -> None:
    target = ParquetTableTarget(str(tmp_path / "log"))
    apply_changes(target, None)(first_changes())
    break_file(tmp_path, "*.parquet", b"PAR1")
    (tmp_path / "file").touch()

    for one in (target, ParquetTableTarget(str(tmp_path / "file"))):
        with pytest.raises(TargetError, match="cannot be read or written"):
            apply_changes(one, None)(more_changes())


@pytest.mark.parametrize("method", ["create_write_transaction", "to_pyarrow_dataset"])
def test_what_a_store_of_objects_says_is_a_typed_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    """As ``deltalake`` tells of a store that is away: by an OSError."""
    from deltalake import DeltaTable

    def fails(*_: Any, **__: Any) -> None:
        raise OSError("Generic Azure error: timed out (https://store/t?sig=secret)")

    target, snapshot = DeltaTableTarget(str(tmp_path)), [change("T", 1, -1, {}, whole=True)]
    apply_changes(target, KEYS, stream="other")(first_changes())
    monkeypatch.setattr(DeltaTable, method, fails)

    with pytest.raises(TargetError, match=r"OSError: Generic Azure error: timed out \(https://store/t\?…\)"):
        apply_changes(target, KEYS)(table(snapshot) if method == "to_pyarrow_dataset" else more_changes())


def test_an_error_of_a_target_s_library_tells_no_value_of_a_row(tmp_path: Path) -> None:
    from deltalake import DeltaTable

    target = DeltaTableTarget(str(tmp_path))
    apply_changes(target, KEYS)(first_changes())
    DeltaTable(target.path).alter.add_constraint({"small": "a < 5"})

    with pytest.raises(TargetError, match=r"cannot be read or written, DeltaError: .*Invalid data found") as caught:
        apply_changes(target, KEYS)(table([change("I", 3, 0, {"id": 9, "k": "secret", "a": 777, "b": None})]))
    assert "777" not in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("error", "text", "is_lasting"),
    [
        (ValueError("value 'a b' of [1, 2] is not 5.5"), "ValueError: value … of … is not …", False),
        (OSError("Generic S3 error: 403 AccessDenied (https://s/t?sig=1)"), "OSError: Generic S3 error: 403 AccessDenied", True),
        (PermissionError(13, "Permission denied", "/lake"), "PermissionError: .*Permission denied: '/lake'", True),
        (OSError(28, "No space left on device"), "OSError: .*No space left", False),
        (KeyError(), "written, KeyError. Remove", False),
    ],
)
def test_error_of_a_library_has_its_text_and_is_tried_again_if_that_can_help(
    error: Exception, text: str, is_lasting: bool
) -> None:
    with pytest.raises(TargetError, match=f"shop.orders cannot be read or .*{text}") as caught, understood("shop.orders"):
        raise error

    assert caught.value.is_lasting == is_lasting
    assert "sig" not in str(caught.value)


@pytest.mark.parametrize(
    ("says", "error"), [("io.delta.exceptions.ConcurrentAppendException: …", TargetConflictError), ("Job aborted", TargetError)]
)
def test_what_spark_says_of_a_delta_table_is_a_typed_error(says: str, error: type[Exception]) -> None:
    """As it comes from Java, in the text of an exception of PySpark's."""

    class Session:
        def createDataFrame(self, rows: pa.Table) -> None:
            raise RuntimeError(says)

    work = _DeltaSparkWork.__new__(_DeltaSparkWork)
    work._target, work._spark, work._count = DeltaSparkTarget("there"), Session(), 0

    with pytest.raises(TargetError, match="there") as caught:
        work.write(pa.table({}), pa.table({}), Progress(table=TableProgress(1, 0)), added=[], replace=False)
    assert type(caught.value) is error


def test_a_value_that_is_twice_in_a_unique_key_of_the_target_says_what_to_do(server: Any, in_mysql: MySQLTableTarget) -> None:
    """Chunks of a snapshot have it so, when it goes from a row of one to a row of another between them."""
    server.query(f"ALTER TABLE {in_mysql.table} ADD UNIQUE (a)")
    rows = [change("r", 1, -1, {"id": number, "k": "x", "a": 7, "b": None}) for number in (1, 2)]
    fn = apply_changes(in_mysql, KEYS)
    fn(table(rows[:1]))

    with pytest.raises(TargetSchemaError, match=r"error 1062.*Drop the unique keys"):
        fn(table(rows[1:]))
    server.query(f"ALTER TABLE {in_mysql.table} DROP KEY a")
    fn(table(rows[1:]))
