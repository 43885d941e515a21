"""Alarms: reports of problems to one callback, without repetitions.

No timer or thread: a reminder is sent when the problem occurs again and the reminder is due.
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

#: ``(destination, message)``: called with each problem that an operator should know. The message is an :class:`AlarmMessage`.
Alarm = Callable[[str, str], None]

#: First and longest interval in seconds between reminders of a continuing problem. The interval doubles each time.
REMINDERS = (60.0, 3600.0)
_REMEMBERED = 256


class AlarmKind(enum.Enum):
    """Kind of an alarm: a closed set for routing."""

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
    """The text of an alarm with its kind: a ``str`` for callers that only display it."""

    kind: AlarmKind
    #: Number of occurrences, including this.
    times: int
    #: True if the problem is solved.
    is_over: bool

    def __new__(cls, text: str, kind: AlarmKind, times: int = 1, is_over: bool = False) -> Self:
        self = super().__new__(cls, visible(without_passwords(text)))
        self.kind, self.times, self.is_over = kind, times, is_over
        return self

    def __getnewargs__(self) -> tuple[str, AlarmKind, int, bool]:  # type: ignore[override]
        return str(self), self.kind, self.times, self.is_over


def log_alarm(destination: str, message: str) -> None:
    """Log an alarm. This is the default callback: ERROR for a problem, WARNING if it is solved."""
    is_over = isinstance(message, AlarmMessage) and message.is_over
    log.log(logging.WARNING if is_over else logging.ERROR, "[%s] %s", destination, message)


@attrs.define
class _Trouble:
    began: float
    due: float
    wait: float
    count: int = 1


class AlarmDesk:
    """Reports each problem when it starts, then repeats at growing intervals with a count.

    A problem is identified by kind and key. The default key is the text: a different text is a new problem and is reported
    immediately. Suppressed repetitions are logged as INFO.

    Args:
        alarm: the callback. Its exceptions are logged and otherwise ignored.
        reminders: first and longest interval between reminders, in seconds.
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
        """Forget all problems at the start of a run."""
        with self._lock:
            self._troubles.clear()
            self.destination, self.count = destination, 0

    def tell(self, kind: AlarmKind, text: str, key: str = "") -> None:
        """Report a problem. Pass ``key`` if the text varies for the same problem."""
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
            self._troubles[name] = trouble  # move to the end: the least recent problem is evicted first
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
        """Report an action or a completed event. Not deduplicated."""
        with self._lock:
            self.count += 1
        self._call(AlarmMessage(text, kind))

    def over(self, kind: AlarmKind, text: str) -> None:
        """Report that all problems of this kind are solved, if any was reported."""
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
