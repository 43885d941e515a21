"""What a new user of Spark runs first."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from tests.support.fix_spark import ROOT, java_home


@pytest.mark.spark
@pytest.mark.every_spark
@pytest.mark.timeout(1800)
def test_the_demo_comes_to_its_end() -> None:
    """Spark gives a Python process of its own 10 s to start, which on a busy machine may be too few: then it is run again."""
    home, path = java_home(), os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(ROOT))))
    environment = os.environ | ({"JAVA_HOME": home} if home else {}) | {"PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable}
    deadline = time.monotonic() + 600
    while True:
        demo = subprocess.run(
            [sys.executable, "examples/spark_demo.py"], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900
        )
        if "failed to connect back" not in demo.stderr or time.monotonic() > deadline:
            break
    assert demo.returncode == 0, demo.stdout + demo.stderr
    assert "The Delta table was equal to the source's 4 times." in demo.stdout
