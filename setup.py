"""Builds the hot modules with Cython where a C compiler is there; never fails because there is none.

CANAL_PURE=1     compile nothing
CANAL_PURE=0     a module that does not compile is an error (for developers and CI)
CANAL_FAST=1     compile for a first look: in a third of the time, for code that is about as fast
CANAL_REUSE=1    put the extensions that were built in place into a wheel
CANAL_SANITIZE=1 address and undefined-behaviour sanitizers in the extensions
"""

import multiprocessing
import os
import runpy
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
DIRECTIVES = {
    "language_level": 3,
    "boundscheck": True,  # of Python containers; raw pointers are checked by hand against their end
    "wraparound": False,
    "embedsignature": True,
    "always_allow_keywords": True,
    "freethreading_compatible": True,  # what threads share is immutable, under a lock, or made in a critical section
    "annotation_typing": False,  # annotations are for people and mypy; the C types stand in the .pxd
}


def required() -> bool:
    return os.environ.get("CANAL_PURE") == "0"


def is_fast() -> bool:
    return os.environ.get("CANAL_FAST") == "1"


def is_reused() -> bool:
    return os.environ.get("CANAL_REUSE") == "1"


def warn(what: str, error: BaseException) -> None:
    print(f"warning: canal runs interpreted: {what}: {type(error).__name__}: {error}", file=sys.stderr)


class OptionalBuild(build_ext):
    """Goes on without an extension that cannot be built, whatever the reason; setuptools lets some of them through."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count()

    def run(self) -> None:
        super().run()
        if not self.inplace and len(self.extensions or ()) < len(self.distribution.ext_modules or ()):  # never a mixture
            for path in self.get_outputs():
                Path(path).unlink(missing_ok=True)
            self.extensions = self.distribution.ext_modules = []

    def build_extension(self, ext: Extension) -> None:
        made, wanted = Path(self.get_ext_filename(ext.name)), Path(self.get_ext_fullpath(ext.name))
        if is_reused():
            wanted.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(made, wanted)
            return
        print(f"compiling {ext.name}", flush=True)
        try:
            super().build_extension(ext)
        except Exception as error:
            if required():
                raise
            warn(ext.name, error)
            # An editable install would look for its file.
            self.extensions = [one for one in self.extensions if one is not ext]


class Wheel(bdist_wheel):
    """A wheel without extensions is one for every platform, also where they were meant to be built."""

    def finalize_options(self) -> None:
        self.run_command("build_ext")
        super().finalize_options()


def flags() -> tuple[list[str], list[str]]:
    if os.name == "nt":
        return [], []
    # Without what only a debugger needs, which is nine tenths of a file.
    compile_args = ["-O1" if is_fast() else "-O3", "-g0", "-fwrapv", "-Wno-unreachable-code"]
    link_args = ["-s"]
    if os.environ.get("CANAL_SANITIZE") == "1":
        sanitize = ["-fsanitize=address,undefined", "-fno-omit-frame-pointer"]
        compile_args = ["-O1", "-g", *sanitize]
        link_args = sanitize
    return compile_args, link_args


def forget_stale(sources: Iterable[str]) -> None:
    """Remove generated C that is older than a .pxd: Cython does not look at those that a module's own .pxd names."""
    newest = max(path.stat().st_mtime for path in (ROOT / "canal").rglob("*.pxd"))
    for source in sources:
        generated = ROOT / "build" / "cython" / Path(source).with_suffix(".c")
        if generated.exists() and generated.stat().st_mtime < newest:
            generated.unlink()


def write_constants() -> None:
    """Write the numbers of canal/binlog as C enums: to compiled modules they are constants."""
    for name in ("event_layout", "event_types", "type_codes"):
        source = ROOT / "canal" / "binlog" / f"{name}.py"
        numbers = {key: value for key, value in runpy.run_path(str(source)).items() if key.isupper() and isinstance(value, int)}
        lines = [f"# Made of {name}.py by setup.py.", "cdef enum:", *(f"    {key} = {value}" for key, value in numbers.items())]
        made, text = source.with_suffix(".pxd"), "\n".join(lines) + "\n"
        if not made.exists() or made.read_text() != text:  # else what was compiled would be stale
            made.write_text(text)


def extensions() -> list[Extension]:
    if os.environ.get("CANAL_PURE") == "1":
        return []
    compile_args, link_args = flags()
    modules: tuple[str, ...] = runpy.run_path(str(ROOT / "canal" / "_util" / "build.py"))["COMPILED_MODULES"]
    sources = {name: name.replace(".", "/") + ".py" for name in modules}
    found = [
        Extension(name, [path], extra_compile_args=compile_args, extra_link_args=link_args, optional=not required())
        for name, path in sources.items()
        if (ROOT / path).exists()
    ]
    if is_reused():
        return found
    try:
        write_constants()
        forget_stale(sources.values())
        from Cython.Build import cythonize

        # From Python 3.14 on the default is to run this file again in each process.
        multiprocessing.set_start_method("fork", force=True)
        return list(
            cythonize(
                found,
                compiler_directives=DIRECTIVES,
                build_dir="build/cython",
                nthreads=os.cpu_count() or 1,
                quiet=True,
                force=os.environ.get("CANAL_SANITIZE") == "1",
            )
        )
    except (Exception, SystemExit) as error:
        if required():
            raise
        warn("Cython", error)
        return []


setup(ext_modules=extensions(), cmdclass={"build_ext": OptionalBuild, "bdist_wheel": Wheel})
