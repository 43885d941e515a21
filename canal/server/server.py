"""Many destinations in one process: the map that canal calls ``CanalServerWithEmbedded``.

Never shares anything between instances but the process.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from types import FrameType, TracebackType
from typing import Any, Self

from canal._util.threads import is_own
from canal.alarm import Alarm, log_alarm
from canal.config import InstanceConfig
from canal.errors import CanalError, ConfigError, StateError, UnknownDestinationError
from canal.instance.instance import Instance
from canal.server.configuration.following import Follower
from canal.server.configuration.sources import ConfigSource, DirectorySource
from canal.status import InstanceStatus

log = logging.getLogger("canal")

#: Seconds that one wait takes at most: Python runs the handler of a signal between two steps of the main thread only, and
#: one that comes just before a wait, or to another thread, does not end it.
_SHORT = 1.0

#: Seconds between two looks whether all have stopped; an interrupt ends the wait between them and nothing else.
_LOOK = 0.005

#: Makes the instance (or its config) of a destination; None when there is no such destination.
Generator = Callable[[str], "Instance | InstanceConfig | None"]


class Server:
    """Instances by destination, made when first asked for.

    A configuration in files is ``canal.load(path)``, or followed by ``follow``.

    Args:
        configs: the known destinations.
        generator: makes the others: ``destination -> Instance | InstanceConfig | None``. Of two threads that ask for the same
            one at once each calls it, and one result is used.

    Usable as a context manager, which stops every instance at the end.
    """

    def __init__(self, configs: Iterable[InstanceConfig] = (), generator: Generator | None = None) -> None:
        self._configs: dict[str, InstanceConfig] = {}
        if not isinstance(configs, Iterable):
            raise ConfigError(f"configs of a Server are several, in a list, not a {type(configs).__name__}")
        for config in configs:
            if not isinstance(config, InstanceConfig):
                raise ConfigError(f"a Server is made of canal.InstanceConfig, not of {type(config).__name__}")
            if config.destination in self._configs:
                raise ConfigError("there are two configs of this destination", destination=config.destination)
            self._configs[config.destination] = config
        self._generator = generator
        self._instances: dict[str, Instance] = {}
        self._lock = threading.Lock()  # never held while something else is called
        self._stopped = threading.Event()
        self._idle = threading.Event()
        self._busy = 0  # calls that start or stop something
        self._previous: dict[int, Any] = {}
        self._process = 0  # that uses it
        self._follower: Follower | None = None
        self._lazy: set[str] = set()  # destinations that wait for their first use
        self._changing: dict[str, int] = {}  # destinations that are started anew, by which thread

    def instance(self, destination: str) -> Instance:
        """The destination's instance, started if it was not.

        Raises:
            UnknownDestinationError: neither the configs nor the generator know it.
            StateError: the server was stopped, or the destination was while it started.
        """
        if self._is_elsewhere:
            raise StateError(
                f"the server runs in process {self._process}, of which this one, {os.getpid()}, is a fork",
                destination=destination,
                remedy="Make a new Server after the fork.",
            )
        self._process = os.getpid()
        with self._at_work():
            with self._lock:
                self._check_open(destination)
                self._check_settled(destination)
                self._lazy.discard(destination)
                instance = self._instances.get(destination)
            if instance is None:
                made = self._make(destination)
                with self._lock:
                    self._check_open(destination)
                    self._check_settled(destination, made)
                    instance = self._instances.setdefault(destination, made)
            instance.__enter__()
            with self._lock:
                if self._instances.get(destination) is instance:
                    return instance
            instance.stop()
            raise StateError("it was stopped while it started", destination=destination)

    start = instance

    @property
    def _is_elsewhere(self) -> bool:
        return self._process not in (0, os.getpid())

    def _check_open(self, destination: str) -> None:
        if self._stopped.is_set():
            raise StateError("the server was stopped", destination=destination)

    def _check_settled(self, destination: str, made: Instance | None = None) -> None:
        """Raise StateError while another thread starts it anew, or where it has another config than the one made since."""
        is_changing = self._changing.get(destination, threading.get_ident()) != threading.get_ident()
        if is_changing or made is not None and made.config is not self._configs.get(destination, made.config):
            raise StateError("its configuration is being changed", destination=destination, remedy="Ask again.")

    @contextlib.contextmanager
    def _at_work(self) -> Iterator[None]:
        """``wait`` waits for the end of this."""
        with self._lock:
            self._busy += 1
        try:
            yield
        finally:
            with self._lock:
                self._busy -= 1
                if not self._busy and self._stopped.is_set() and not self._instances:
                    self._idle.set()

    def configured(self) -> list[str]:
        """The destinations of which it has a config, whether they run or not."""
        with self._lock:
            return sorted(self._configs)

    def missing(self) -> dict[str, str]:
        """Destinations that should run and do not, with the reason: of which it has a config, or follows one that cannot be used.
        One that waits for its first use, as with ``lazy``, is none of them."""
        failed = [] if self._follower is None else self._follower.failed()
        with self._lock:
            found = dict.fromkeys(self._configs.keys() - self._lazy, "it has a configuration and is not started")
            found |= dict.fromkeys(failed, "its configuration cannot be used")
            return {name: reason for name, reason in sorted(found.items()) if name not in self._instances}

    def reload(self, destination: str) -> None:
        """Stop a destination and start it again from its config. What was not acked comes again, with new ids."""
        with contextlib.suppress(UnknownDestinationError):
            self.stop(destination)
        self.instance(destination)

    def follow(self, source: ConfigSource, interval: float = 5.0, *, lazy: bool | None = None, alarm: Alarm = log_alarm) -> None:
        """Start the destinations of a configuration now, and follow its changes until the server is stopped.

        Every ``interval`` seconds it is looked at: a destination that is new is started (with ``lazy`` at its first use; None: as
        the source says), one that is gone is stopped, one whose digest has changed is stopped and started again: its
        clients' calls raise ``StateError``, and ``instance(destination)`` gives the new one, which goes on at the cursor.
        A change that cannot be used changes nothing: ``alarm(destination, message)`` tells of it, with the destination ""
        where nothing can be read.

        Raises:
            StateError: it follows one already.
            CanalError, OSError: the source cannot be read at all now.
        """
        with self._lock:
            if self._follower is not None:
                raise StateError("the server follows a configuration already")
            follower = self._follower = Follower(self, source, interval, lazy, alarm)
        try:
            follower.start()
        except BaseException:
            self._follower = None
            raise

    def configure(self, config: InstanceConfig, *, lazy: bool = False) -> None:
        """Take a new config of a destination: start it, unless ``lazy``; one that runs is stopped and started again.

        Raises:
            CanalError: it cannot be started so. What ran before runs again.
        """
        name = config.destination
        Instance(config)  # raises whatever is wrong with it before anything is stopped
        with self._lock:
            self._check_open(name)
            before, runs = self._configs.get(name), name in self._instances
            self._configs[name] = config
            (self._lazy.add if lazy and not runs else self._lazy.discard)(name)
            if not runs and lazy:
                return
            if runs:
                self._changing[name] = threading.get_ident()
        try:
            self._start_anew(name, config)
        except Exception:
            self._put_back(name, before, runs)
            raise
        finally:
            self._changing.pop(name, None)

    def _start_anew(self, name: str, config: InstanceConfig) -> None:
        """Stop what runs, and start it of this config. A call that was under way may start again what was stopped."""
        stopped: list[Instance] = []
        for last in (False, False, True):
            stopped += [instance] if (instance := self._instances.get(name)) is not None else []
            try:
                for instance in stopped:
                    instance.stop()
                    self._forget(name, instance)
                if self.instance(name).config is config:
                    return
            except CanalError:
                if last:
                    raise

    def _put_back(self, name: str, before: InstanceConfig | None, runs: bool) -> None:
        with contextlib.suppress(CanalError):
            self.stop(name)
        if before is None:
            self._configs.pop(name, None)
            return
        self._configs[name] = before
        if runs:
            self.instance(name)

    def forget(self, destination: str) -> None:
        """Stop a destination and forget its config. Its cursors stay where they are kept."""
        with self._lock:
            self._configs.pop(destination, None)
            instance = self._instances.get(destination)
            self._changing[destination] = threading.get_ident()  # so that nobody starts it again meanwhile
        try:
            if instance is not None:
                instance.stop()
                self._forget(destination, instance)
        finally:
            self._changing.pop(destination, None)

    def stop(self, destination: str | None = None) -> None:
        """Stop one destination (it may be started again), or all of them and the server.

        Where canal calls your code, as in an alarm or a hook, it returns at once, and in a fork of the process it does nothing,
        as ``Instance.stop`` does.
        """
        if self._is_elsewhere:
            return
        if destination is None:
            self._stopped.set()
            stop = self._stop_all
            follower = self._follower
            if follower is not None:
                follower.end()
        else:
            with self._lock:
                if destination not in self._instances:
                    raise UnknownDestinationError(f"no instance of {destination!r} runs", destination=destination)
            stop = partial(self._stop_one, destination)
        work = contextlib.ExitStack()
        work.enter_context(self._at_work())
        if not is_own():
            with work:
                stop()
            return

        def stop_behind() -> None:
            with work:
                stop()

        threading.Thread(target=stop_behind, name="canal-stop", daemon=True).start()

    def _stop_one(self, destination: str) -> None:
        with self._lock:
            instance = self._instances.get(destination)
        if instance is None:
            return
        try:
            instance.stop()
        except Exception:  # and not where it was interrupted: then it is to be stopped again
            self._forget(destination, instance)
            raise
        self._forget(destination, instance)

    def _forget(self, destination: str, instance: Instance) -> None:
        with self._lock:  # it may have been started again
            if self._instances.get(destination) is instance and not instance.is_running:
                del self._instances[destination]

    def _stop_all(self) -> None:
        failures: list[BaseException] = []
        while True:
            with self._lock:
                if not self._instances:
                    break
                stopping, self._instances = self._instances, {}
            try:
                for destination in list(stopping):  # each on a thread: what one waits for, all wait for at once
                    work = partial(_stop_one_of, stopping, destination, failures)
                    threading.Thread(target=work, name="canal-stop", daemon=True).start()
                while stopping:
                    time.sleep(_LOOK)
            except BaseException:  # to be stopped by the next call
                with self._lock:
                    self._instances = {**stopping, **self._instances}
                raise
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
        self._process = os.getpid()
        for number in signals or (signal.SIGTERM, signal.SIGINT):
            self._previous[number] = signal.signal(number, self._on_signal)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the server and all its instances have stopped; True when they have."""
        if self._is_elsewhere:
            return True
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._idle.wait(_SHORT if deadline is None else min(_SHORT, max(deadline - time.monotonic(), 0.0))):
            if deadline is not None and time.monotonic() >= deadline:
                return False
        return True

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._is_elsewhere:  # a fork has inherited the handler, and is to do what it would do without it
            for known, handler in self._previous.items():
                signal.signal(known, handler)
            signal.raise_signal(number)
            return
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

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self.stop()
        except Exception:
            self.wait()
            raise
        self.wait()


def _stop_one_of(left: dict[str, Instance], destination: str, failures: list[BaseException]) -> None:
    try:
        left[destination].stop()
    except BaseException as error:  # the others must stop all the same
        log.exception("[%s] did not stop cleanly", destination)
        failures.append(error)
    finally:
        del left[destination]


def load(path: str | os.PathLike[str]) -> Server:
    """A :class:`Server` of the destinations that a configuration has, none of which is started.

    ``path`` is canal's conf directory (or its canal.properties), a directory of TOML files, or one such file;
    docs/configuration.md has both forms. Each of canal's own keys that is set and has no meaning here is logged with the reason.

    Raises:
        ConfigError: a key that there is not, or a value that cannot be; the message has the file and the key, and no password.
    """
    files = DirectorySource(path).files
    configs = [files.config(name) for name in files.destinations()]
    for name in files.destinations():
        for key, reason in files.notes(name).items():
            log.info("[%s] %s has no meaning here: %s", name, key, reason)
    return Server(configs)
