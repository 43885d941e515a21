"""Who reads the log: one table. Each runs in a process of its own, by the same job and with the same answer (see ``meter``)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PEERS = Path(__file__).resolve().parent / "peers"
#: What is built or fetched for peers; ``make clean`` removes it.
BUILT = ROOT / ".venv" / "bench"


class Absent(Exception):
    """A contestant cannot be had on this machine: why."""


@dataclass(frozen=True)
class Contestant:
    """``command()`` builds what it needs, once, and gives the program that takes the file of a job as its last word."""

    name: str
    command: Callable[[], list[str]]
    loads: str = "ABCDEFHI"
    #: Of the load's rows, so that a slow one ends in some seconds.
    share: float = 1.0
    cores: int = 1
    #: Where it is warm only after half of the run.
    warms_up: bool = False
    #: Whether it reckons rows from bytes, for which it has to read the whole log.
    reckons: bool = False
    #: What its job says other than a plain one: from_file, durable, lag, decode_threads.
    job: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


def need(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        raise Absent(f"there is no {program} on this machine")
    return found


@cache
def made(name: str, *command: str, of: str = "") -> Path:
    """The path ``BUILT/name``, made by a command unless it is there and later than the sources in ``PEERS/of``."""
    path = BUILT / name
    sources = PEERS.glob(f"{of}/*") if of else ()
    if not path.exists() or any(source.stat().st_mtime > path.stat().st_mtime for source in sources):
        need(command[0])
        BUILT.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(command, capture_output=True, text=True, cwd=PEERS, timeout=1800)
        if done.returncode:
            raise Absent(f"{' '.join(command[:3])} failed: {(done.stderr or done.stdout).strip()[-300:]}")
        os.utime(path)
    return path


def python(module: str, name: str) -> Callable[[], list[str]]:
    return lambda: [sys.executable, "-m", f"benchmarks.{module}", name]


def go(name: str) -> Callable[[], list[str]]:
    return lambda: [str(made("go-peers", "go", "build", "-C", "go", "-o", str(BUILT / "go-peers"), ".", of="go")), name]


def java(main: str) -> Callable[[], list[str]]:
    def command() -> list[str]:
        jars = made(
            "java-jars",
            "mvn",
            "-B",
            "-q",
            "-f",
            "java/pom.xml",
            "dependency:copy-dependencies",
            f"-DoutputDirectory={BUILT / 'java-jars'}",
        )
        sources = sorted(map(str, (PEERS / "java").glob("*.java")))
        compile = ["javac", "-nowarn", "-cp", f"{jars}/*", "-d", str(BUILT / "java-classes"), *sources]
        classes = made("java-classes", *compile, of="java")
        options = ["-Xmx2g", "-XX:-UsePerfData", "-Dfile.encoding=UTF-8", f"-Dlogback.configurationFile={PEERS}/java/logback.xml"]
        return [need("java"), *options, "-cp", f"{classes}:{jars}/*", main, main]

    return command


def debezium() -> list[str]:
    """Debezium's embedded engine, of the jars that the other benchmarks with it fetch too."""
    from benchmarks import spark_debezium

    for program in ("java", "javac", "mvn"):
        need(program)
    jars = spark_debezium.classpath(ROOT / ".venv" / "debezium")
    if jars is None:
        raise Absent("Maven does not have it")
    sources = [str(spark_debezium.HERE / "Engine.java"), str(PEERS / "java" / "Meter.java")]
    compile = ["javac", "-nowarn", "-cp", jars, "-d", str(BUILT / "debezium-classes"), *sources]
    classes = made("debezium-classes", *compile, of=str(Path("..", "debezium")))
    options = ["-Xmx2g", "-XX:-UsePerfData", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
    return [need("java"), *options, "-cp", f"{classes}:{jars}", "Engine", "Engine"]


def node(package: str, oldest: int = 0) -> Callable[[], list[str]]:
    def command() -> list[str]:
        program = need("node")
        version = subprocess.check_output([program, "--version"], text=True).strip()
        if int(version[1:].split(".")[0]) < oldest:
            raise Absent(f"{package} needs Node.js {oldest}, and this is {version}")
        modules = made(
            "node/node_modules",
            "npm",
            "install",
            "--no-audit",
            "--no-fund",
            "--ignore-scripts",
            "--prefix",
            str(BUILT / "node"),
            *_packages(),
        )
        return ["env", f"BENCH_MODULES={modules.parent}", program, str(PEERS / "node" / "zongji.mjs"), package]

    return command


def _packages() -> list[str]:
    wanted = json.loads((PEERS / "node" / "package.json").read_text())["dependencies"]
    return [f"{name}@{version}" for name, version in wanted.items()]


def ours(name: str, stage: str, loads: str, share: float = 1.0, cores: int = 1, pure: bool = False, **job: Any) -> Contestant:
    return Contestant(
        f"canal {name}",
        python("ours", stage),
        loads,
        share,
        cores,
        reckons=stage == "framing",
        job=job,
        environment={"CANAL_PURE": "1" if pure else "0"},
    )


def unlocked(name: str, stage: str, threads: int) -> Contestant:
    """The library on a Python without the interpreter's lock, from a file."""

    def command() -> list[str]:
        program = ROOT / ".venv" / "free-threaded" / "bin" / "python"
        if not program.exists():
            raise Absent("`make free-threaded` builds its Python")
        return [str(program), "-m", "benchmarks.ours", stage]

    job = {"from_file": True, "decode_threads": threads}
    return Contestant(f"canal {name}", command, "A", cores=max(1, threads), job=job, environment={"CANAL_PURE": "0"})


CONTESTANTS = (
    Contestant("drain", python("python_peers", "drain"), "ABCDEFGHI", reckons=True),
    ours("framing", "framing", "ABCDEFGHI"),
    ours("framing, file", "framing", "AB", from_file=True),
    ours("undecoded", "undecoded", "ABCDEFGHI"),
    ours("undecoded, FileMeta", "undecoded", "A", durable=True),
    ours("undecoded, lagging", "undecoded", "B", lag=True),
    ours("undecoded, file", "undecoded", "AB", from_file=True),
    ours("rows", "rows", "ABCDEFGHI"),
    ours("rows, file", "rows", "ABC", from_file=True),
    ours("rows, interpreted", "rows", "ABC", share=0.05, pure=True),
    ours("tuples", "tuples", "ABC"),
    ours("columns", "columns", "ABC", share=0.2),
    ours("Arrow", "arrow", "ABCDEHI"),
    ours("Arrow, file", "arrow", "A", from_file=True),
    ours("pipe, changes", "pipe", "ABC"),
    ours("pipe, tables", "pipe_tables", "ABC"),
    ours("Arrow, file, 2 threads", "arrow", "A", cores=2, from_file=True, decode_threads=2),
    *(
        unlocked(f"{name}, free-threaded{', 2 threads' * (threads > 0)}", stage, threads)
        for name, stage in (("rows", "rows"), ("tuples", "tuples"), ("Arrow", "arrow"))
        for threads in (0, 2)
    ),
    Contestant("mysqlbinlog", python("python_peers", "mysqlbinlog"), "ABC", reckons=True),
    Contestant("mysql-replication", python("python_peers", "mysql_replication"), "ABCDEFHI", share=0.02),
    Contestant("mysql-event-stream", python("python_peers", "mysql_event_stream"), "ABCDEFHI", share=0.05),
    Contestant("go-mysql syncer", go("syncer"), "ABC", share=0.4),
    Contestant("go-mysql sync handler", go("sync_handler"), share=0.4),
    Contestant("go-mysql canal", go("canal"), "ABC", share=0.4),
    Contestant("connector-java", java("Connector"), warms_up=True),
    Contestant("Debezium", debezium, "ABC", share=0.4, warms_up=True),
    Contestant("canal (Java)", java("Otter"), "ABC", share=0.4, warms_up=True),
    Contestant("@vlasky/zongji", node("@vlasky/zongji"), "ABC", share=0.1, warms_up=True),
    Contestant("@powersync/mysql-zongji", node("@powersync/mysql-zongji", 24), "ABC", share=0.1, warms_up=True),
)
#: Whose latency is taken.
PROMPT = ("canal rows", "mysql-replication", "go-mysql sync handler", "connector-java", "canal (Java)")
