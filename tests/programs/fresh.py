"""Runs README's commands where nothing is installed: in Debian's packages, unpacked beside this system, in a new clone.

    python -m tests.programs.fresh                        # all of CASES, as root or where a user may make namespaces
    python -m tests.programs.fresh trixie-gcc             # one
    python -m tests.programs.fresh trixie --demo          # ``make demo`` only
    python -m tests.programs.fresh trixie-gcc --suite     # the whole suite without servers in place of the quick tests

It clones what is committed. Of this machine a root has the network, its certificates and pip's settings. The packages are not
configured, only unpacked, by ``tests/servers/fetch-tree.sh`` into ``CANAL_SERVER_CACHE``; what pip downloads is kept there too.
"""

from __future__ import annotations

import argparse
import os
import resource
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[2]
CACHE: Final = Path(os.environ.get("CANAL_SERVER_CACHE") or Path.home() / ".cache" / "canal-servers")

#: What README names, and of what every Debian has what its programs call.
BASE: Final = [
    *("git", "make", "python3-venv"),
    *("base-files", "bash", "ca-certificates", "coreutils", "dash", "diffutils", "findutils", "grep", "gzip", "hostname"),
    *("libc-bin", "libstdc++6", "mawk", "procps", "sed", "tar", "util-linux"),
]
COMPILER: Final = ["gcc", "libc6-dev", "python3-dev"]
#: What an installation links or writes, and unpacking does not.
LINKS: Final = {
    **{name: f"usr/{name}" for name in ("bin", "sbin", "lib", "lib64")},
    "usr/bin/awk": "mawk",
    "usr/bin/cc": "gcc",
    "usr/bin/which": "which.debianutils",
}
ACCOUNTS: Final = {"etc/passwd": "root:x:0:0:root:/root:/bin/bash\n", "etc/group": "root:x:0:\n"}
#: Files and folders of this machine that a root is given, where they are.
SHARED: Final = ("/etc/resolv.conf", "/etc/hosts", "/etc/ssl/certs", "/etc/pip.conf")


#: Of each suite the commands of its Pythons: what ``python3`` is, and the newest that unstable has.
PYTHONS: Final = {"bookworm": ["python3"], "trixie": ["python3"], "sid": ["python3", "python3.15"]}


class Case(NamedTuple):
    suite: str
    python: str
    has_compiler: bool

    @property
    def name(self) -> str:
        return self.tree.replace(self.suite, self.suite + self.python.removeprefix("python3").replace(".", "-3."))

    @property
    def tree(self) -> str:
        return self.suite + ("-gcc" if self.has_compiler else "")

    @property
    def packages(self) -> list[str]:
        others = [python for python in PYTHONS[self.suite] if python != "python3"]
        packages = BASE + [f"{python}-venv" for python in others]
        return packages + COMPILER + [f"{python}-dev" for python in others] if self.has_compiler else packages


CASES: Final = [
    Case(suite, python, has_compiler) for suite in PYTHONS for python in PYTHONS[suite] for has_compiler in (False, True)
]


def unpack(case: Case) -> Path:
    """The tree of its packages, with what an installation would add to make their programs run."""
    tree = CACHE / f"root-{case.tree}"
    noted = tree.with_name(f"{tree.name}.packages")
    if not noted.exists() or noted.read_text().split() != case.packages:
        shutil.rmtree(tree, ignore_errors=True)
    subprocess.run([ROOT / "tests/servers/fetch-tree.sh", tree, case.suite, *case.packages], check=True)
    noted.write_text("\n".join(case.packages))
    for name, target in LINKS.items():
        if not os.path.lexists(tree / name) and (tree / name).parent.joinpath(target).exists():
            (tree / name).symlink_to(target)
    for name, text in ACCOUNTS.items():
        (tree / name).write_text(text)
    for folder in ("dev", "proc", "tmp", "root", "home", "etc/ssl/certs"):
        (tree / folder).mkdir(parents=True, exist_ok=True)
    for name in SHARED:
        if Path(name).is_file():
            (tree / name[1:]).touch()
    return tree


def environment() -> dict[str, str]:
    """What a login sets, and how this machine's pip gets packages."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name.startswith("PIP_") or name.lower().endswith("_proxy") or name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
    }
    if kept.get("PIP_FIND_LINKS", "").startswith("/"):
        del kept["PIP_FIND_LINKS"]  # the root has no such folder
    return {**kept, "PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "HOME": "/root", "LANG": "C.UTF-8", "TERM": "dumb"}


def enter(tree: Path, home: Path, command: str) -> list[str]:
    """The arguments that run a command of the shell in a tree that it cannot change, with /root and /tmp of its own."""
    mounts = [f"mount --bind {tree} {tree}", f"mount -o remount,bind,ro {tree}"]
    mounts += [f"mount --rbind {name} {tree}{name}" for name in ("/dev", *SHARED) if Path(name).exists()]
    mounts += [f"mount --bind {home / name} {tree}/{name}" for name in ("root", "tmp")]
    mounts += [f"mount --bind {CACHE / 'pip'} {tree}/root/.cache/pip", f"mount -t proc proc {tree}/proc"]
    script = " && ".join([*mounts, f"exec chroot {tree} /bin/sh -c {shlex.quote(command)}"])
    user = [] if os.geteuid() == 0 else ["--map-root-user"]
    return ["unshare", *user, "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", script]


def timed(tree: Path, home: Path, command: str) -> bool:
    print(f"--- {command}", flush=True)
    began, used = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    status = subprocess.run(enter(tree, home, f"cd /root/canal && {command}"), env=environment()).returncode
    now = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = now.ru_utime - used.ru_utime + now.ru_stime - used.ru_stime
    ended = "passed" if status == 0 else f"FAILED with {status}"
    print(f"--- {command}: {ended}; {time.monotonic() - began:.0f} s, {cpu:.0f} s of a core", flush=True)
    return status == 0


def run(case: Case, commands: list[str]) -> bool:
    print(f"=== {case.name}", flush=True)
    tree = unpack(case)
    home = Path(tempfile.mkdtemp(prefix=f"fresh-{case.name}-"))
    try:
        for folder in (home / "root/.cache/pip", home / "tmp", CACHE / "pip"):
            folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["git", "clone", "-q", "--no-local", "--depth", "1", f"file://{ROOT}", home / "root/canal"], check=True)
        python = "" if case.python == "python3" else f" PYTHON={case.python}"
        compiler = "cc --version | head -1" if case.has_compiler else "! command -v cc gcc"
        if not timed(tree, home, f"{case.python} --version && {compiler}"):
            return False
        return all(timed(tree, home, f"{command}{python}") for command in commands)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.programs.fresh", description=__doc__.splitlines()[0])
    parser.add_argument("case", nargs="*", help=", ".join(case.name for case in CASES))
    parser.add_argument("--demo", action="store_true", help="make demo only")
    parser.add_argument("--suite", action="store_true", help="make test without servers, in place of make check")
    options = parser.parse_args()
    by_name = {case.name: case for case in CASES}
    if unknown := set(options.case) - set(by_name):
        parser.error(f"no such case: {', '.join(sorted(unknown))}; there are {', '.join(by_name)}")
    commands = ["make demo"]
    if options.suite:
        commands.append("CANAL_TEST_SERVERS=skip make test")
    elif not options.demo:
        commands.append("make check")
    ended = {name: run(by_name[name], commands) for name in options.case or by_name}
    print(*(f"{name}: {'passed' if passed else 'FAILED'}" for name, passed in ended.items()), sep="\n")
    return not all(ended.values())


if __name__ == "__main__":
    sys.exit(main())
