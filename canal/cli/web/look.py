"""The status document, health and actions of the web page.

Never knows HTTP.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

import attrs

from canal.errors import ConfigError, UnknownDestinationError
from canal.instance.instance import Instance
from canal.metrics import statuses_of
from canal.pipes.loop import Pipe
from canal.server.server import Server
from canal.snapshot.copies import copies
from canal.status import InstanceStatus, State, plain

Instances = Server | Instance | Iterable[Instance]

#: Possible actions in ``allow``, each for one destination.
ACTIONS: Final = ("start", "stop", "reload", "switch", "release")
_OF_A_SERVER: Final = frozenset(("start", "stop", "reload"))
_RUNS: Final = frozenset((State.CONNECTING, State.SEEKING, State.STREAMING, State.WAITING, State.RUNNING))


def known(instances: Instance | Iterable[Instance]) -> tuple[Instance, ...]:
    """Return one or several instances as a tuple."""
    return (instances,) if isinstance(instances, Instance) else tuple(instances)


class Look:
    """The status of instances and pipes; see :func:`canal.cli.web.app` for the arguments."""

    def __init__(
        self,
        instances: Instances,
        pipes: Sequence[Pipe],
        allow: Collection[str],
        max_lag: float | None,
        source_timeout: float | None,
        idle: Collection[str] = (),
    ) -> None:
        if isinstance(allow, str) or not set(allow) <= set(ACTIONS):
            raise ConfigError(f"allow is a collection of {', '.join(ACTIONS)}, not {allow!r}")
        self._server = instances if isinstance(instances, Server) else None
        if self._server is None and _OF_A_SERVER & set(allow):
            raise ConfigError("start, stop and reload are for a Server", remedy="Pass a canal.Server to the page.")
        self._known = () if isinstance(instances, Server) else known(instances)
        self._statuses = statuses_of(self._server or self._known, source_timeout)
        self._pipes = pipes
        self.allow = tuple(one for one in ACTIONS if one in allow)
        self._max_lag = max_lag
        self._idle = frozenset((idle,) if isinstance(idle, str) else idle)

    def document(self) -> dict[str, Any]:
        """Return everything in types of JSON."""
        statuses = list(self._statuses())
        names = {status.destination for status in statuses}
        server = self._server
        configured = {*server.configured(), *server.missing()} if server is not None else ()
        return {
            "at": time.time(),
            "allow": self.allow,
            "problems": self._problems(statuses),
            "instances": [{**status.as_dict(), "problem": self._problem(status)} for status in statuses],
            "copies": [attrs.asdict(one) for one in copies() if one.destination in names],
            "not_started": sorted(name for name in configured if name not in names),
            "pipes": [attrs.asdict(pipe.status(), value_serializer=plain) for pipe in self._pipes],
        }

    def problems(self) -> list[str]:
        """Return a sentence for each unhealthy destination and pipe."""
        return self._problems(list(self._statuses()))

    def _problems(self, statuses: list[InstanceStatus]) -> list[str]:
        found = [f"{status.destination}: {problem}" for status in statuses if (problem := self._problem(status))]
        missing = self._server.missing() if self._server is not None else {}
        found += [f"{name}: {reason}" for name, reason in missing.items() if name not in self._idle]
        for pipe in self._pipes:
            status = pipe.status()
            if status.error is not None:
                found.append(f"pipe to {status.target}: {status.error}")
        return found

    def _problem(self, status: InstanceStatus) -> str:
        """Return why a destination is unhealthy, or "". Standbys and ended logs are healthy."""
        if status.state is State.FAILED or status.error is not None:
            return str(status.error or "it has failed")
        if status.state not in _RUNS and status.state is not State.ENDED and status.role != "standby":
            return f"it is {status.state.value}"
        lags = [status.lag.seconds, *(client.lag.seconds for client in status.clients)]
        lag = max((seconds for seconds in lags if seconds is not None), default=0.0)
        if self._max_lag is not None and lag > self._max_lag:
            return f"it is {lag:.0f} s behind, which is more than {self._max_lag:g} s"
        return ""

    def act(self, destination: str, action: str) -> None:
        """Perform an action.

        Raises:
            CanalError: the action is impossible.
        """
        if self._server is not None and action in _OF_A_SERVER:
            # Other names would reach the user's generator.
            running = self._server.destinations()
            known = running if action == "reload" else (*self._server.configured(), *running)
            if destination not in known:
                raise UnknownDestinationError(f"there is no destination {destination!r} to {action}", destination=destination)
            getattr(self._server, action)(destination)
            return
        instance = self._instance(destination)
        if action == "release":
            instance.release()
        elif not instance.switch("asked for by the page"):
            raise ConfigError(f"the standby of {destination} does not answer", remedy="The instance continues with its source.")

    def _instance(self, destination: str) -> Instance:
        if self._server is not None:
            if destination in self._server.destinations():
                return self._server.instance(destination)
        else:
            for instance in self._known:
                if instance.destination == destination:
                    return instance
        raise UnknownDestinationError(f"no instance of {destination!r} runs", destination=destination)
