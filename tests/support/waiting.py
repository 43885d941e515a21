"""Waiting for a condition."""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from canal.parse.source._pymysql import _check_greeting


def until(found: Callable[[], Any], timeout: float = 120.0) -> Any:
    """What ``found`` gives once that is true; an assertion fails where it is not within ``timeout`` seconds."""
    deadline = time.monotonic() + timeout
    while not (what := found()):
        assert time.monotonic() < deadline, f"waited {timeout} s in vain"
        time.sleep(0.01)
    return what


def is_in(function: str, thread: str) -> bool:
    """Whether a thread whose name begins so is inside of a function."""
    return any(frame.f_code.co_name == function for frames in _stacks(thread) for frame in frames)


def waits_for_network(thread: str) -> bool:
    """Whether a thread whose name begins so connects, or waits for an answer."""
    innermost = (next(frames).f_code for frames in _stacks(thread))
    return any(code.co_filename == socket.__file__ or code is _check_greeting.__code__ for code in innermost)


def _stacks(thread: str) -> Iterator[Iterator[FrameType]]:
    """Of each such thread its functions, the innermost first."""
    frames = sys._current_frames()
    for one in threading.enumerate():
        if one.name.startswith(thread) and one.ident in frames:
            yield _outwards(frames[one.ident])


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back
