"""Alarms: what an operator should know, told to one callback, and the same trouble not again and again.

Never waits and keeps no thread: a reminder comes with the first repetition that is due.
"""

from __future__ import annotations

import enum
import logging
import threading
import time
from collections.abc import Callable
from typing import Self

import attrs

from canal.errors import visible, without_passwords

log = logging.getLogger("canal.parse")

#: ``(destination, message)``: told of everything an operator should know; the message is an :class:`AlarmMessage`.
Alarm = Callable[[str, str], None]

#: Seconds until a trouble that goes on is reported again; the time doubles with each reminder, up to the second number.
REMINDERS = (60.0, 3600.0)
_REMEMBERED = 256


class AlarmKind(enum.Enum):
    """What an alarm is about: the closed set by which they can be routed."""

    CONNECTION = "connection"
    """The source was lost or cannot be reached. The parser goes on trying, and tells when this is over."""
    FAILOVER = "failover"
    """Another source was taken, or none can be."""
    COORDINATION = "coordination"
    """ZooKeeper refuses something, holds what cannot be right or does not answer, or the parts do not start in their turn."""
    POSITION = "position"
    """A part of the log is gone, and what was done about it."""
    SCHEMA = "schema"
    """The columns of a table are less than certain."""
    MISSING = "missing"
    """Changes that the source does not log will be missing."""
    SLOW = "slow"
    """A client holds the others back, or reads on by itself for that; a member of a group holds the others back."""
    CONFIGURATION = "configuration"
    """A configuration that is followed was changed and cannot be used: what runs goes on."""
    STOPPED = "stopped"
    """The parser has stopped: nothing more comes until somebody acts."""


class AlarmMessage(str):
    """The text of an alarm, and what it is about: a ``str`` for those who only show it."""

    kind: AlarmKind
    #: How often the trouble has come up, this time included.
    times: int
    #: The trouble has ended.
    is_over: bool

    def __new__(cls, text: str, kind: AlarmKind, times: int = 1, is_over: bool = False) -> Self:
        self = super().__new__(cls, visible(without_passwords(text)))
        self.kind, self.times, self.is_over = kind, times, is_over
        return self

    def __getnewargs__(self) -> tuple[str, AlarmKind, int, bool]:  # type: ignore[override]
        return str(self), self.kind, self.times, self.is_over


def log_alarm(destination: str, message: str) -> None:
    """The alarm used where none is given: an ERROR line in the log; a WARNING that a trouble is over."""
    is_over = isinstance(message, AlarmMessage) and message.is_over
    log.log(logging.WARNING if is_over else logging.ERROR, "[%s] %s", destination, message)


@attrs.define
class _Trouble:
    began: float
    due: float
    wait: float
    count: int = 1


class AlarmDesk:
    """Tells the callback of each trouble when it begins, then at growing intervals how often it came again.

    A trouble is its kind and its key (the text, where none is given): another text is another trouble and is reported at once.
    What is not told is in the log, as INFO.

    Args:
        alarm: the callback. What it raises is logged and ends nothing.
        reminders: seconds to the first reminder, and between two of them at most.
    """

    def __init__(
        self, alarm: Alarm = log_alarm, reminders: tuple[float, float] = REMINDERS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._alarm = alarm
        self._reminders = reminders
        self._clock = clock
        self._lock = threading.Lock()
        self._troubles: dict[tuple[AlarmKind, str], _Trouble] = {}
        self.destination = ""
        self.count = 0

    def reset(self, destination: str) -> None:
        """A new run begins: every trouble is new."""
        with self._lock:
            self._troubles.clear()
            self.destination, self.count = destination, 0

    def tell(self, kind: AlarmKind, text: str, key: str = "") -> None:
        """A trouble came up: ``key`` says which it is, where ``text`` differs each time."""
        name = (kind, key or text)
        now = self._clock()
        with self._lock:
            trouble = self._troubles.pop(name, None)
            if trouble is None:
                trouble = _Trouble(now, now, self._reminders[0])
                if len(self._troubles) >= _REMEMBERED:
                    del self._troubles[next(iter(self._troubles))]
            else:
                trouble.count += 1
            self._troubles[name] = trouble  # the one that came up last is forgotten last
            is_due = now >= trouble.due
            if is_due:
                trouble.due = now + trouble.wait
                trouble.wait = min(2 * trouble.wait, self._reminders[1])
                self.count += 1
            count, began = trouble.count, trouble.began
        if not is_due:
            log.info("[%s] %s", self.destination, text)
            return
        if count > 1:
            text = f"{text} ({count} times in {_duration(now - began)})"
        self._call(AlarmMessage(text, kind, count))

    def announce(self, kind: AlarmKind, text: str) -> None:
        """Something was done or has ended, which is reported each time."""
        with self._lock:
            self.count += 1
        self._call(AlarmMessage(text, kind))

    def over(self, kind: AlarmKind, text: str) -> None:
        """Every trouble of the kind has ended; reported once, and only where one was reported."""
        with self._lock:
            ended = [self._troubles.pop(name) for name in list(self._troubles) if name[0] is kind]
            self.count += bool(ended)
        if ended:
            count = sum(trouble.count for trouble in ended)
            passed = _duration(self._clock() - min(trouble.began for trouble in ended))
            text = f"over: {text}, after {passed} and {count} {'alarms' if count > 1 else 'alarm'}"
            self._call(AlarmMessage(text, kind, count, is_over=True))

    def _call(self, message: AlarmMessage) -> None:
        try:
            self._alarm(self.destination, message)
        except Exception:
            log.exception("[%s] the alarm callback failed on: %s", self.destination, message)


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
