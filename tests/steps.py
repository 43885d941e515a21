"""Stops at a chosen step of the library: a line of its code that hands out, acks, claims or takes over.

What a thread is about to do is counted line by line, by a trace function; at the line that was asked for it calls back,
say to stop the whole process there while another one takes over.
"""

from __future__ import annotations

import linecache
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Final

import canal

_ROOT: Final = Path(canal.__file__).parent
_FILES: Final = {
    str(_ROOT / name)
    for name in ("instance.py", "delivery.py", "zookeeper.py", "ha/running.py", "meta/memory.py", "meta/zookeeper.py")
}
#: What is left to do when the clock has been looked at for the last time. Nobody can take a batch back that is held here:
#: the epoch of the message fences what its consumer writes.
_BEHIND_THE_LOOK: Final = {"message.epoch = fence.epoch", "return message"}
#: Whose steps: of the thread that gets and acks, and of the one that takes part in the election.
CONSUMER, MONITOR = "consumer", "monitor"


class Steps:
    """Calls ``held`` with the name of a step, in the thread that is about to take it, once each time it is armed."""

    def __init__(self, held: Callable[[str], None]) -> None:
        self._held = held
        self._left = {CONSUMER: 0, MONITOR: 0}

    def follow(self) -> None:
        """Count from now on in this thread, the consumer's, and in those of elections that start later."""
        sys.settrace(lambda frame, event, argument: self._enter(CONSUMER, frame))
        threading.settrace(self._enter_thread)

    def arm(self, whose: str, count: int) -> None:
        """Stop at the step that is the ``count``-th from now."""
        self._left[whose] = count

    def disarm(self) -> None:
        self._left = dict.fromkeys(self._left, 0)

    def _enter_thread(self, frame: FrameType, event: str, argument: Any) -> Any:
        if not threading.current_thread().name.endswith("-ha"):
            sys.settrace(None)
            return None
        sys.settrace(lambda frame, event, argument: self._enter(MONITOR, frame))
        return None

    def _enter(self, whose: str, frame: FrameType) -> Any:
        if frame.f_code.co_filename not in _FILES:
            return None

        def step(frame: FrameType, event: str, argument: Any) -> Any:
            if event == "line" and self._left[whose] > 0:
                text = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
                if frame.f_code.co_name == "_get_in_turn" and text in _BEHIND_THE_LOOK:
                    return step
                self._left[whose] -= 1
                if not self._left[whose]:
                    self._held(f"{whose}: {frame.f_code.co_qualname}: {text}")
            return step

        return step
