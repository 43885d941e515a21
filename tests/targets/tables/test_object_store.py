"""Delta and Iceberg tables in an object store, which is a local server that speaks S3."""

from __future__ import annotations

import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from canal.errors import TargetConflictError, TargetError
from canal.spark import apply_changes
from canal.targets.tables import DeltaTableTarget, IcebergTableTarget, Upkeep
from tests.support.engine import PATIENCE
from tests.support.histories import KEYS, FaultyTarget, change, content, table
from tests.support.lakes import Iceberg, Lake, first_changes, more_changes

_KEY = "canal"  # this server takes any


class DeltaInS3(Lake):
    def __init__(self, root: Path, url: str) -> None:
        super().__init__(root)
        self.options = {
            "AWS_ENDPOINT_URL": url,
            "AWS_ACCESS_KEY_ID": _KEY,
            "AWS_SECRET_ACCESS_KEY": _KEY,
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
        }

    def make(self) -> DeltaTableTarget:
        return DeltaTableTarget(f"s3://lake/{self.root.name}", self.options)

    def rows(self, target: DeltaTableTarget) -> pa.Table | None:
        try:
            return DeltaTable(target.path, storage_options=self.options).to_pyarrow_table()
        except TableNotFoundError:
            return None


class IcebergInS3(Iceberg):
    def __init__(self, root: Path, url: str) -> None:
        super().__init__(root)
        self.options = {
            "warehouse": f"s3://lake/{root.name}",
            "s3.endpoint": url,
            "s3.access-key-id": _KEY,
            "s3.secret-access-key": _KEY,
            "s3.region": "us-east-1",
            "s3.request-timeout": "120",
            "s3.connect-timeout": "120",
        }

    def make(self) -> IcebergTableTarget:
        made = super().make()
        return attrs.evolve(made, properties={**made.properties, **self.options})


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server with a bucket ``lake``."""
    log = tmp_path_factory.mktemp("s3") / "log"
    program = (
        "import time\nimport boto3\nfrom moto.server import ThreadedMotoServer\n"
        "server = ThreadedMotoServer('127.0.0.1', 0)\nserver.start()\n"
        "url = 'http://%s:%d' % server.get_host_and_port()\n"
        f"boto3.client('s3', endpoint_url=url, aws_access_key_id='{_KEY}', aws_secret_access_key='{_KEY}', "
        "region_name='us-east-1').create_bucket(Bucket='lake')\nprint('at', url, flush=True)\ntime.sleep(1e6)"
    )
    with log.open("wb") as output, subprocess.Popen([sys.executable, "-c", program], stdout=output, stderr=output) as child:
        try:
            deadline = time.monotonic() + PATIENCE
            while (found := re.search(r"at (http://\S+)", log.read_text())) is None:
                assert child.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.05)
            yield found[1]
        finally:
            child.kill()


@pytest.fixture(params=[DeltaInS3, IcebergInS3])
def lake(request: pytest.FixtureRequest, tmp_path: Path, store: str) -> Lake:
    made: Lake = request.param(tmp_path, store)
    return made


@pytest.mark.timeout(900)
def test_a_table_is_equal_through_deaths_before_and_after_commits_and_upkeep(lake: Lake) -> None:
    chance = random.Random(3)
    target = attrs.evolve(lake.make(), upkeep=Upkeep(every=3, keep=0))
    rows: dict[int, dict[str, Any]] = {}
    for number in range(8):
        before = rows.get(key := chance.randrange(5))
        row = {"id": key, "k": "x", "a": number, "b": "é" * chance.randrange(3)}
        if before is None:
            batch = change("I", number + 1, 0, row)
        elif chance.random() < 0.3:
            batch, row = change("D", number + 1, 0, before), {}
        else:
            batch = change("U", number + 1, 0, row, before)
        rows = {**rows, key: row} if row else {one: rows[one] for one in rows if one != key}
        sink = apply_changes(faulty := FaultyTarget(target, chance.choice(["", "before", "after"])), KEYS)
        if faulty.when:
            with pytest.raises(OSError, match=f"{faulty.when} the commit"):
                sink(table([batch]))
        sink(table([batch]))
        assert content(lake.rows(target)) == {(one, "x"): each for one, each in rows.items()}


def test_a_writer_that_is_late_is_refused(lake: Lake) -> None:
    """By the store, which makes no object that is there already, or by the catalogue."""
    target = lake.make()
    apply_changes(target, KEYS)(first_changes())
    late = FaultyTarget(target, "between")
    late.between = lambda: apply_changes(target, KEYS)(more_changes())
    with pytest.raises(TargetConflictError):
        apply_changes(late, KEYS)(more_changes())
    apply_changes(target, KEYS)(more_changes())
    assert {key[0]: row["a"] for key, row in content(lake.rows(target)).items()} == {0: 2, 1: 1, 2: 1, 9: 1}


def test_a_store_that_cannot_be_reached_is_a_target_error_without_its_keys(tmp_path: Path) -> None:
    lake = DeltaInS3(tmp_path, "http://127.0.0.1:9")
    options = {**lake.options, "AWS_SECRET_ACCESS_KEY": "sEcReT7", "max_retries": "0", "retry_timeout": "1s"}
    target = DeltaTableTarget("s3://lake/t", options)
    with pytest.raises(TargetError) as caught:
        apply_changes(target, KEYS)(first_changes())
    assert "sEcReT7" not in f"{caught.value} {target!r}"
