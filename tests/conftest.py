"""Fixtures and settings that every test sees; the servers are in tests/support/fix_servers.py."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import hypothesis
import pytest

pytest.register_assert_rewrite("tests.support")
pytest_plugins = ["tests.support.fix_servers", "tests.support.fix_spark", "tests.support.fix_canal_java"]

#: `make test-all` sets it: tests take the sizes that are too large for each change.
THOROUGH = os.environ.get("CANAL_TESTS") == "all" or os.environ.get("CANAL_SOAK") == "full"

# "ci" draws the same examples in each run, so that a change lands or not by what it changes; the others draw new ones.
hypothesis.settings.register_profile("dev", max_examples=40, deadline=None)
hypothesis.settings.register_profile("ci", max_examples=200 if THOROUGH else 40, deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.register_profile("deep", max_examples=5000, deadline=None, print_blob=True)
hypothesis.settings.load_profile(os.environ.get("CANAL_HYPOTHESIS", "ci" if os.environ.get("CI") else "dev"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs a package that has no wheel for so new a Python; its word is in the names of its tests."""
    for word, module in (("iceberg", "pyiceberg"), ("kafka", "confluent_kafka")):
        if sys.version_info >= (3, 15) and find_spec(module) is None:
            for item in items:
                if word in item.nodeid.lower():
                    item.add_marker(pytest.mark.skip(f"there is no {module} for this Python"))


def pytest_collection_finish() -> None:
    """Hide what collecting has made from the garbage collector: tests that collect garbage would wait for it each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def thorough() -> bool:
    """Whether this is `make test-all` or `make soak`: sizes that are too large for each change."""
    return THOROUGH


@pytest.fixture(scope="session")
def full_size() -> bool:
    """Whether this is `make soak`: soak tests run at full size."""
    return os.environ.get("CANAL_SOAK") == "full"


@pytest.fixture
def record() -> Callable[..., None]:
    """Adds what a run found to the file that CANAL_RECORD names, of which docs/reliability.md is made."""
    from tests.programs.reliability import write_result

    path = os.environ.get("CANAL_RECORD")
    return lambda **figures: write_result(Path(path), figures) if path else None


def _loggers() -> dict[str, tuple[int, bool, bool]]:
    known = logging.Logger.manager.loggerDict
    ours = {name: logger for name, logger in list(known.items()) if name.split(".")[0] in ("canal", "kazoo")}
    return {
        name: (logger.level, logger.propagate, logger.disabled)
        for name, logger in ours.items()
        if isinstance(logger, logging.Logger) and (logger.level, logger.propagate, logger.disabled) != (0, True, False)
    }


@pytest.fixture(autouse=True)
def unchanged_loggers() -> Iterator[None]:
    """A test that leaves a logger of the library quieter than it was would blind the tests behind it."""
    before = _loggers()
    yield
    assert _loggers() == before, "the test, or the code it runs, leaves a logger changed"


@pytest.fixture(autouse=True)
def sigterm() -> Iterator[None]:
    """A reader of Spark has SIGTERM end its process, which here is that of all tests."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)
