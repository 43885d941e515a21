"""What ends a run, interrupted anywhere."""

from __future__ import annotations

import sys
from functools import partial
from types import FrameType
from typing import Any

import pytest

from canal._util.lifecycle import Steps


class Interrupt:
    """Raises KeyboardInterrupt before one operation of a function."""

    def __init__(self, function: Any, at: int) -> None:
        self.code, self.left = function.__code__, at

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code is not self.code:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt
        return self

    def during(self, call: Any) -> bool:
        """Whether the call was interrupted."""
        before = sys.gettrace()
        sys.settrace(self)
        try:
            call()
        except KeyboardInterrupt:
            return True
        finally:
            sys.settrace(before)
        return False


def test_a_step_is_done_wherever_the_one_who_does_it_is_interrupted() -> None:
    at = 0
    while True:
        at += 1
        done: set[str] = set()
        steps = Steps()
        steps.add(*(partial(done.add, one) for one in "abc"))

        was_interrupted = Interrupt(Steps.carry_out, at).during(steps.carry_out)
        steps.carry_out()

        assert done == {"a", "b", "c"}, at
        if not was_interrupted:
            break
    assert at > 20  # it did try them


def test_a_step_that_fails_is_not_done_again_and_keeps_no_other_from_it() -> None:
    steps, done = Steps(), list[str]()

    def fail() -> None:
        done.append("fails")
        raise ValueError("no")

    steps.add(fail, lambda: done.append("next"))
    with pytest.raises(ValueError, match="no"):
        steps.carry_out()
    steps.carry_out()

    assert done == ["fails", "next"]
