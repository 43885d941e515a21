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
from canal._util.workers import Stepper, _count_by

_ROOT: Final = Path(canal.__file__).parent
_FILES: Final = {
    str(_ROOT / name)
    for name in (
        "instance/instance.py",
        "instance/clients.py",
        "instance/delivery.py",
        "instance/ha_turns.py",
        "instance/calls.py",
        "instance/context.py",
        "zookeeper/session.py",
        "ha/running.py",
        "ha/gate.py",
        "meta/memory.py",
        "meta/stored.py",
        "meta/zookeeper.py",
    )
}
#: What is left to do when the clock has been looked at for the last time. Nobody can take a batch back that is held here:
#: the epoch of the message fences what its consumer writes.
_BEHIND_THE_LOOK: Final = {"message.epoch = fence.epoch", "return message"}


class Steps:
    """Calls ``held`` with the name of a step, in the thread that is about to take it, once each time it is armed."""

    def __init__(self, held: Callable[[str], None]) -> None:
        self._held = held
        self._left: dict[threading.Thread, int] = {}
        self.passed: list[str] = []
        """What threads that were armed were about to do, since the last of them was."""

    def follow(self) -> None:
        """Count from now on in this thread, and in those of elections that start later."""
        sys.settrace(self._enter)
        threading.settrace(self._enter_thread)

    def arm(self, thread: threading.Thread, count: int) -> None:
        """Stop this thread at the step that is the ``count``-th from now."""
        self.passed.clear()
        self._left[thread] = count

    def disarm(self) -> None:
        self._left.clear()

    def _enter_thread(self, frame: FrameType, event: str, argument: Any) -> Any:
        sys.settrace(self._enter if is_monitor(threading.current_thread()) else None)

    def _enter(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self._step if frame.f_code.co_filename in _FILES else None

    def _step(self, frame: FrameType, event: str, argument: Any) -> Any:
        thread = threading.current_thread()
        if event == "line" and self._left.get(thread, 0) > 0:
            text = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
            if frame.f_code.co_qualname != "Turns.get" or text not in _BEHIND_THE_LOOK:
                self._left[thread] -= 1
                self.passed.append(f"{frame.f_code.co_qualname}: {text}")
                if not self._left[thread]:
                    self._held(self.passed[-1])
        return self._step


def is_monitor(thread: threading.Thread) -> bool:
    """Whether it takes part in an election."""
    return thread.name.endswith("-ha")


class ThreadStepper(Stepper):
    """A monitor with a thread of its own, by which a test knows what it is about to do."""

    def __init__(self, step: Callable[[], float | None], name: str) -> None:
        super().__init__(step, name)
        self._awake = threading.Event()
        threading.Thread(target=self._steps, name=name, daemon=True).start()

    def wake(self) -> None:
        self._awake.set()

    def _steps(self) -> None:
        self._awake.wait()
        self.thread, pause = threading.current_thread(), self._step()
        while pause is not None:
            if self._awake.wait(pause):
                self._awake.clear()
            pause = self._step()
        self._is_over = True
        _count_by(-1)
        self._ended.set()
