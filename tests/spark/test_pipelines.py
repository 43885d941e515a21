"""Declarative pipelines: examples/pipeline, run by what the command line runs, in a process of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from tests.support.fix_spark import ROOT, java_home

pytestmark = pytest.mark.nightly


def compile_catalog(home: str | None, directory: Path) -> None:
    """Spark brings no table that takes MERGE: one in memory, by the compiler that each Java 17 has."""
    java = f"{home or os.environ.get('JAVA_HOME')}/bin/java" if home or os.environ.get("JAVA_HOME") else shutil.which("java")
    jars = (Path(pyspark.__file__).parent / "jars").glob("*.jar")
    subprocess.run(
        [
            str(java),
            "-m",
            "jdk.compiler/com.sun.tools.javac.Main",
            "-cp",
            os.pathsep.join(map(str, jars)),
            "-d",
            str(directory),
            str(Path(__file__).with_name("MergeCatalog.java")),
        ],
        check=True,
        timeout=200,
    )


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_a_pipeline_has_every_change_and_auto_cdc_keeps_a_table_equal_where_it_takes_merge(tmp_path: Path) -> None:
    home = java_home()
    compile_catalog(home, tmp_path / "classes")
    environment = (
        os.environ
        | ({"JAVA_HOME": home} if home else {})
        | {
            "SPARK_DIST_CLASSPATH": str(tmp_path / "classes"),
            "SPARK_TESTING": "1",  # any free port
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
            "TMPDIR": str(tmp_path),
        }
    )
    child = subprocess.run(
        [sys.executable, "-m", "tests.programs.spark_pipeline_child", str(tmp_path)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=860,
    )

    assert child.returncode == 0, child.stdout + child.stderr
    found = json.loads(child.stdout.splitlines()[-1])
    assert (found["first"], found["second"], found["append"]) == ("done", "done", "done")
    assert found["table"] == [[1, "Ada"], [2, "Barbara"]]
    assert "AUTOCDC_TARGET_DOES_NOT_SUPPORT_MERGE" in found["parquet"]
    assert found["changes"] == [
        ["I", 1, "Ada"],
        ["I", 2, "Grace"],
        ["I", 3, "Edsger"],
        ["U", 11, "Ada"],
        ["D", 2, "Grace"],
        ["I", 2, "Grace"],
        ["U", 1, "Ada"],
        ["U", 2, "Barbara"],
        ["D", 3, "Edsger"],
    ]
