"""Many destinations in one process: the map that canal calls ``CanalServerWithEmbedded``.

Never shares anything between instances but the process.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterable
from types import FrameType, TracebackType
from typing import Any, Self

from canal.config import InstanceConfig
from canal.errors import ConfigError, StateError, UnknownDestinationError
from canal.instance import Instance
from canal.status import InstanceStatus

log = logging.getLogger("canal")

#: Seconds that one wait takes at most: Python runs the handler of a signal between two steps of the main thread only, and
#: one that comes just before a wait, or to another thread, does not end it.
_SHORT = 1.0

#: Makes the instance (or its config) of a destination; None when there is no such destination.
Generator = Callable[[str], "Instance | InstanceConfig | None"]


class Server:
    """Instances by destination, made when first asked for.

    Args:
        configs: the known destinations.
        generator: makes the others: ``destination -> Instance | InstanceConfig | None``.

    Usable as a context manager, which stops every instance at the end.
    """

    def __init__(self, configs: Iterable[InstanceConfig] = (), generator: Generator | None = None) -> None:
        self._configs: dict[str, InstanceConfig] = {}
        for config in configs:
            if config.destination in self._configs:
                raise ConfigError("there are two configs of this destination", destination=config.destination)
            self._configs[config.destination] = config
        self._generator = generator
        self._instances: dict[str, Instance] = {}
        self._lock = threading.RLock()
        self._stopped = threading.Event()
        self._idle = threading.Event()
        self._ending = 0  # calls of stop() that are under way
        self._previous: dict[int, Any] = {}

    def instance(self, destination: str) -> Instance:
        """The destination's instance, started if it was not.

        Raises:
            UnknownDestinationError: neither the configs nor the generator know it.
        """
        with self._lock:
            if self._stopped.is_set():
                raise StateError("the server was stopped", destination=destination)
            instance = self._instances.get(destination)
            if instance is None:
                instance = self._make(destination)
                self._instances[destination] = instance
            if not instance.is_running:
                instance.start()
            return instance

    start = instance

    def stop(self, destination: str | None = None) -> None:
        """Stop one destination (it may be started again), or all of them and the server."""
        with self._lock:
            if destination is not None:
                instance = self._instances.pop(destination, None)
                if instance is None:
                    raise UnknownDestinationError(f"no instance of {destination!r} runs", destination=destination)
                instance.stop()
                return
            self._stopped.set()
            self._ending += 1
            instances, self._instances = self._instances, {}
        failures = []
        try:
            for instance in instances.values():
                try:
                    instance.stop()
                except Exception as error:  # the others must stop all the same
                    log.exception("[%s] did not stop cleanly", instance.destination)
                    failures.append(error)
        finally:
            with self._lock:
                self._ending -= 1
                if not self._ending:  # another call, such as that of a signal, may be about it still
                    self._idle.set()
        if threading.current_thread() is threading.main_thread():
            for number, handler in self._previous.items():
                signal.signal(number, handler)
            self._previous = {}
        if failures:
            raise failures[0]

    def destinations(self) -> list[str]:
        """The destinations that run."""
        with self._lock:
            return [name for name, instance in self._instances.items() if instance.is_running]

    def status(self, source_timeout: float | None = None) -> dict[str, InstanceStatus]:
        """The status of every destination that was started; see :meth:`Instance.status`. Sources are asked in turn."""
        return {name: instance.status(source_timeout) for name, instance in list(self._instances.items())}

    def stop_on_signals(self, *signals: int) -> None:
        """Stop everything on SIGTERM and SIGINT (or the given ones); call it from the main thread.

        Calls that wait then raise ``StateError``, so consumer loops end. ``stop()`` puts the earlier handlers back.
        """
        for number in signals or (signal.SIGTERM, signal.SIGINT):
            self._previous[number] = signal.signal(number, self._on_signal)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the server and all its instances have stopped; True when they have."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._idle.wait(_SHORT if deadline is None else min(_SHORT, max(deadline - time.monotonic(), 0.0))):
            if deadline is not None and time.monotonic() >= deadline:
                return False
        return True

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        log.info("%s: stopping %d instances", signal.Signals(number).name, len(self._instances))
        # Not in the handler itself: it may have interrupted a call that holds the locks that stop() needs.
        threading.Thread(target=self.stop, name="canal-stop").start()

    def _make(self, destination: str) -> Instance:
        made: Instance | InstanceConfig | None = self._configs.get(destination)
        if made is None and self._generator is not None:
            made = self._generator(destination)
        if made is None:
            raise UnknownDestinationError(f"no destination {destination!r}", destination=destination)
        return made if isinstance(made, Instance) else Instance(made)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.stop()
        finally:
            self.wait()
