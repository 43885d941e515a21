"""What tests of Spark's parts leave as they found it."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def sigterm() -> Iterator[None]:
    """A reader of a stream has SIGTERM end its process, which here is that of all tests."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)
