"""alibaba/canal 1.1.7 for tests that compare: one JVM for the whole run, driven by lines of JSON.

A test that asks for ``canal_java`` needs what ``tests/servers/setup.sh canal-java`` gets and a Java. Without them it is skipped,
in CI it fails.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.fix_spark import ROOT, java_home

_SOURCES = ROOT / "tests/canal_java"
_OPTIONS = (
    "-Xmx300m",
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:-UsePerfData",
    "-Duser.timezone=UTC",
    "-Dfile.encoding=UTF-8",
    f"-Dlogback.configurationFile={_SOURCES}/logback.xml",
)


class CanalJavaError(Exception):
    """What canal's server raised."""


class CanalJava:
    """canal's embedded server in a JVM of its own; one destination at a time."""

    def __init__(self, java: str, jars: Path, folder: Path) -> None:
        classes, path = folder / "classes", f"{jars}/*"
        compiler = [java, "-cp", path, "org.eclipse.jdt.internal.compiler.batch.Main", "-17", "-nowarn", "-d", str(classes)]
        subprocess.run([*compiler, str(_SOURCES / "Beside.java")], check=True, timeout=120)
        self.log = folder / "log"
        with self.log.open("w") as log:
            self._process = subprocess.Popen(
                [java, *_OPTIONS, "-cp", f"{classes}:{path}", "Beside"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=folder,
                text=True,
            )

    def call(self, do: str, **arguments: Any) -> Any:
        """What canal answers. Raises CanalJavaError."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        if "error" in answer:
            raise CanalJavaError(answer["error"])
        return answer["r"]

    def close(self) -> None:
        self._process.communicate(timeout=30)


@pytest.fixture(scope="session")
def canal_java_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CanalJava]:
    jars = ROOT / ".servers/canal-java/jars"
    home = java_home() if jars.is_dir() else None
    java = f"{home}/bin/java" if home else shutil.which("java")
    if java is None or not jars.is_dir():
        if os.environ.get("CI") and os.environ.get("CANAL_TEST_SERVERS") != "skip":
            pytest.fail("canal (Java) is missing: run tests/servers/setup.sh canal-java", pytrace=False)
        pytest.skip("NO CANAL (JAVA): run tests/servers/setup.sh canal-java")
    canal_java = CanalJava(java, jars, tmp_path_factory.mktemp("canal-java"))
    yield canal_java
    canal_java.close()


@pytest.fixture
def canal_java(canal_java_process: CanalJava) -> CanalJava:
    """canal's embedded server; what a test starts it stops."""
    return canal_java_process
