"""What is installed: the wheel of this machine, and the one for every platform."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

import canal
from canal._util.build import COMPILED_MODULES

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = """
import importlib.metadata
import canal
from canal.testing import FakeBinlog

fake = FakeBinlog()
fake.table("shop", "orders", "id INT PRIMARY KEY").insert({"id": 1})
fake.end()
with canal.Instance(canal.InstanceConfig(destination="x", source=fake, start="earliest")) as instance:
    instance.subscribe()
    print([change.key for change in instance.changes()])
print(canal.compiled, canal.__version__ == importlib.metadata.version("canal-cdc"))
"""


def source(folder: Path, *, extensions: bool) -> Path:
    """What a wheel is made of, in a folder of its own."""
    left = shutil.ignore_patterns("__pycache__", *(() if extensions else ("*.so",)))
    shutil.copytree(ROOT / "canal", folder / "canal", ignore=left)
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE", "pyspark_canal.py"):
        shutil.copy(ROOT / name, folder)
    return folder


def wheel(folder: Path, **environ: str) -> Path:
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", "dist", "."]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CANAL_")}
    done = subprocess.run(pip, cwd=folder, env=kept | environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (made,) = (folder / "dist").glob("*.whl")
    return made


def extensions_of(made: Path) -> list[bytes]:
    with zipfile.ZipFile(made) as archive:
        return [archive.read(name) for name in archive.namelist() if name.endswith(".so")]


@pytest.mark.skipif(not canal.compiled, reason="there are no extensions to put into it")
def test_the_wheel_of_this_machine_is_stripped_portable_and_whole(tmp_path: Path) -> None:
    made = wheel(source(tmp_path, extensions=True), CANAL_PURE="0", CANAL_REUSE="1")
    assert re.search(r"-cp3\d+-cp3\d+-linux_\w+\.whl$", made.name)
    extensions = extensions_of(made)
    assert len(extensions) == len(COMPILED_MODULES)
    assert [one for one in extensions if b".symtab" in one or b".debug_info" in one] == []
    shown = subprocess.run([sys.executable, "-m", "auditwheel", "show", str(made)], capture_output=True, text=True, check=True)
    told = " ".join(shown.stdout.split())
    assert re.search(r'consistent with the following platform tag: "manylinux_2_\d+_', told), told

    venv.create(tmp_path / "clean", with_pip=False)
    python = tmp_path / "clean/bin/python"
    pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", "--python", str(python)]
    subprocess.run([*pip, "install", str(made)], check=True)
    done = subprocess.run([python, "-I", "-c", PROGRAM], cwd="/", capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[(1,)]\nTrue True\n", "")
    version = subprocess.run([tmp_path / "clean/bin/canal", "--version"], cwd="/", capture_output=True, text=True)
    assert version.stdout == f"canal {canal.__version__} (compiled)\n"
    listed = subprocess.run([*pip, "list", "--format=freeze"], capture_output=True, text=True, check=True).stdout
    assert "mysql-replication" not in listed.lower()


def test_a_pure_wheel_is_one_for_every_platform(tmp_path: Path) -> None:
    made = wheel(source(tmp_path, extensions=False), CANAL_PURE="1")
    assert made.name == f"canal_cdc-{canal.__version__}-py3-none-any.whl"
    assert extensions_of(made) == []
    with zipfile.ZipFile(made) as archive:
        names = archive.namelist()
        archive.extractall(tmp_path / "there")
    assert {"canal/py.typed", "canal/model/entry.pxd", "pyspark_canal.py"} <= set(names)
    assert [name for name in names if name.startswith(("tests", "benchmarks", "examples"))] == []
    environ = {"PYTHONPATH": str(tmp_path / "there")}
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd="/", env=environ, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[(1,)]\nFalse True\n", "")


def test_a_wheel_whose_extensions_do_not_compile_is_a_pure_one(tmp_path: Path) -> None:
    folder = source(tmp_path, extensions=False)
    (folder / "canal/_util/build.py").write_text('COMPILED_MODULES = ("canal.store.ring",)\n')
    made = wheel(folder, CC="/bin/false")
    assert made.name == f"canal_cdc-{canal.__version__}-py3-none-any.whl"
    assert extensions_of(made) == []
