"""A standalone cluster whose executors have file systems of their own: no executor sees the driver's spool."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyspark
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from canal.testing.servers import ThrowawayServer
from tests.support.fix_spark import JAVA_OPTIONS, ROOT, java_home

pytestmark = pytest.mark.nightly

HOME = Path(pyspark.__file__).parent
#: Runs what follows in a mount namespace of its own, where another, empty file system lies over a directory.
APART = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"']


@contextlib.contextmanager
def running(command: list[str], log: Path, environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    pipe = subprocess.PIPE
    with (
        log.open("ab") as output,
        subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=pipe, stdout=output, stderr=output, start_new_session=True
        ) as child,
    ):
        try:
            yield child
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """That of the cluster's processes; skips, in CI fails, where nothing may have mounts of its own."""
    (tmp_path / "spool").mkdir()
    if shutil.which("unshare") is None or subprocess.run([*APART, tmp_path / "spool", "true"], check=False).returncode:
        text = "no process may have mounts of its own here (unshare -m): executors without the spool are not tested"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(text)
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    home = java_home() or os.environ.get("JAVA_HOME")
    return (
        os.environ
        | ({"JAVA_HOME": home} if home else {})
        | {
            "SPARK_HOME": str(HOME),
            "PYTHONPATH": path,
            "PYSPARK_PYTHON": sys.executable,
            "TMPDIR": str(tmp_path),
            "TZ": "UTC",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": f"{JAVA_OPTIONS} -Dspark.master.rest.enabled=false",
        }
    )


@pytest.fixture
def master(tmp_path: Path, environment: dict[str, str], wait: Callable[..., None]) -> Iterator[str]:
    """A master and one worker of Spark's, whose executors have an empty directory where the spool is."""
    program = str(HOME / "bin/spark-class")
    log, listen = tmp_path / "master.log", ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
    with running([program, "org.apache.spark.deploy.master.Master", *listen], log, environment):
        wait(lambda: re.search(r"Starting Spark master at (spark://\S+)", log.read_text()))
        [url] = re.findall(r"Starting Spark master at (spark://\S+)", log.read_text())
        worker = [program, "org.apache.spark.deploy.worker.Worker", *listen, "--cores", "2", "--memory", "1g"]
        apart = [*APART, str(tmp_path / "spool"), *worker, "--work-dir", str(tmp_path / "work"), url]
        with running(apart, tmp_path / "worker.log", environment):
            yield url


@pytest.mark.spark
@pytest.mark.lines("mariadb")
@pytest.mark.timeout(900)
def test_executors_that_see_no_spool_have_all_rows_of_a_snapshot_live_and_behind_a_kill_of_the_driver(
    server: ThrowawayServer, database: str, tmp_path: Path, master: str, environment: dict[str, str], wait: Callable[..., None]
) -> None:
    table = f"{database}.t"
    server.query(f"CREATE TABLE {table} (id INT PRIMARY KEY, v VARCHAR(200))")
    server.query(f"INSERT INTO {table} VALUES {','.join(f'({number}, {number})' for number in range(500))}")
    (tmp_path / "spec.json").write_text(
        json.dumps(
            {
                "master": master,
                "settings": {
                    "spark.driver.host": "127.0.0.1",
                    "spark.driver.bindAddress": "127.0.0.1",
                    "spark.executor.memory": "512m",
                    "spark.executor.extraJavaOptions": JAVA_OPTIONS,
                    "spark.driver.extraJavaOptions": JAVA_OPTIONS,
                    "spark.sql.warehouse.dir": str(tmp_path / "warehouse"),
                    "spark.sql.shuffle.partitions": "2",
                },
                "options": {
                    "host": server.host,
                    "port": str(server.port),
                    "user": server.user,
                    "password": server.password,
                    "table": table,
                    "snapshot": "initial",
                    "chunkRows": "200",
                    "spoolDir": str(tmp_path / "spool"),
                    "snapshotDir": str(tmp_path / "snapshot"),
                },
            }
        )
    )
    command = [sys.executable, "-m", "tests.programs.spark_cluster_child", str(tmp_path)]

    def is_equal() -> bool:
        try:
            found = DeltaTable(str(tmp_path / "table")).to_pyarrow_table()
        except TableNotFoundError:
            return False
        expected = server.query(f"SELECT id, v FROM {table} ORDER BY id")
        return sorted(zip(found["id"].to_pylist(), found["v"].to_pylist())) == [tuple(row) for row in expected]

    for life in range(2):  # each ends by SIGKILL
        log = tmp_path / f"driver-{life}.log"
        with running(command, log, environment) as driver:
            for step in range(3):
                wait(lambda: is_equal() or driver.poll() is not None, seconds=400)  # noqa: B023
                assert driver.poll() is None, log.read_text()[-4000:]
                server.query(f"UPDATE {table} SET v = CONCAT(v, '{step}') WHERE id % 3 = {step}")
                server.query(f"REPLACE INTO {table} VALUES ({1000 + 10 * life + step}, REPEAT('x', 150))")
                server.query(f"DELETE FROM {table} WHERE id = {100 * life + step}")
            wait(is_equal, seconds=400)
        server.query(f"UPDATE {table} SET v = 'meanwhile {life}' WHERE id BETWEEN 300 AND 320")
    with running(command, tmp_path / "driver-2.log", environment):
        wait(is_equal, seconds=400)

    seen = [json.loads(line) for line in (tmp_path / "seen").read_text().splitlines()]
    assert {kind for one in seen for kind in one["kinds"]} == {"r", "I", "U", "D"}
    assert any(one["here"] for one in seen)
    assert [one["there"] for one in seen if one["there"]] == []
