"""The web page as an ASGI application: status as HTML, JSON and server-sent events, a health check and metrics.

Never opens a port and has no login: mount it behind yours. It only performs the actions in ``allow``.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from typing import Any, Final

import attrs

from canal import metrics
from canal.cli.web.look import Instances, Look, known
from canal.errors import CanalError, ConfigError, UnknownDestinationError
from canal.pipes.loop import Pipe
from canal.server.server import Server

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

#: A page of another site cannot send this header (protection against CSRF).
_HEADER: Final = b"x-canal-action"
#: Maximum number of concurrent event streams.
_MOST_STREAMS: Final = 100
#: Seconds after which a stream ends and the page reconnects, so that a server can shut down.
_STREAM: Final = 15.0
_THREADS: Final = 4
_PAGE: Final = files("canal.cli.web").joinpath("page.html").read_bytes()


def _hash(tag: str) -> str:
    """Return the CSP hash of the page's script or style."""
    inline = re.search(rf"<{tag}>(.*?)</{tag}>".encode(), _PAGE, re.DOTALL)
    assert inline is not None
    return f"'sha256-{base64.b64encode(hashlib.sha256(inline[1]).digest()).decode()}'"


_POLICY: Final = (
    f"default-src 'none'; script-src {_hash('script')}; style-src {_hash('style')}; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = [
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", _POLICY.encode()),
]


def app(
    instances: Instances,
    *,
    pipes: Iterable[Pipe] = (),
    allow: Collection[str] = (),
    max_lag: float | None = None,
    source_timeout: float | None = None,
    interval: float = 1.0,
    hosts: Collection[str] = ("localhost", "127.0.0.1", "[::1]"),
    idle: Collection[str] = (),
) -> Application:
    """Return an ASGI application for a Server or Instances, for an asyncio server such as uvicorn.

    * ``GET /``: the live page. It can be mounted at any path that ends with a slash.
    * ``GET /status.json``: ``InstanceStatus.as_dict()`` of each destination, each pipe, and each running
      ``canal.spark.copy_table``.
    * ``GET /events``: the same as server-sent events.
    * ``GET /healthz``: 200, or 503 with the reasons: a destination that does not run (except standbys and lazy ones), a
      pipe with an error, a lag over ``max_lag`` seconds.
    * ``GET /metrics``: the metrics of :mod:`canal.metrics` (``canal-cdc[metrics]``).
    * ``POST /DESTINATION/ACTION`` with the header ``X-Canal-Action: 1``: an action in ``allow``.

    Args:
        instances: a Server, whose destinations are read at each request, an Instance, or several.
        pipes: pipes to show.
        allow: permitted actions: "start", "stop", "reload" (of a Server), "switch" (to the standby), "release" (with ``ha``, to
            another process).
        max_lag: a larger lag in seconds, received or acked, makes a destination unhealthy.
        source_timeout: query the end of each source's log at each request, for at most so many seconds.
        interval: seconds between events.
        hosts: permitted host names, without ports, for actions (protection against DNS rebinding).
        idle: destinations of a Server that may be stopped.

    Raises:
        ConfigError: an argument is invalid.
    """
    if not interval > 0:
        raise ConfigError(f"interval must be above 0, not {interval!r}")
    if not isinstance(instances, Server):
        instances = known(instances)
    look = Look(instances, tuple(pipes), allow, max_lag, source_timeout, idle)
    if isinstance(hosts, str):
        raise ConfigError(f"hosts is a collection of names, not {hosts!r}")
    return _App(look, _exposition(instances, source_timeout), interval, frozenset(one.lower() for one in hosts))


def _exposition(instances: Instances, source_timeout: float | None) -> Callable[[], bytes] | None:
    """Return a function that renders the metrics, or None if prometheus-client is not installed."""
    try:
        from prometheus_client import CollectorRegistry, generate_latest
    except ImportError:
        return None
    registry = CollectorRegistry()
    metrics.register(instances, registry, source_timeout=source_timeout)
    return lambda: bytes(generate_latest(registry))


@attrs.frozen
class _Answer:
    status: int
    body: bytes
    kind: str = "text/plain; charset=utf-8"

    @classmethod
    def of(cls, status: int, document: Any) -> _Answer:
        return cls(status, json.dumps(document).encode(), "application/json")


class _App:
    """See :func:`app`."""

    def __init__(self, look: Look, exposition: Callable[[], bytes] | None, interval: float, hosts: frozenset[str]) -> None:
        self._look = look
        self._hosts = hosts
        # Own threads: waiting for a source blocks none of the surrounding application.
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="canal-web")
        self._exposition = exposition
        self._interval = interval
        self._streams = 0
        self._looking = asyncio.Lock()
        self._next = 0.0  # when the cached event expires
        self._last = b""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _live(receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close"})
        elif scope["type"] == "http":
            await self._http(scope, receive, send)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = _path(scope)
        is_read = scope["method"] in ("GET", "HEAD")
        if path == "/events" and scope["method"] == "GET" and self._streams < _MOST_STREAMS:
            self._streams += 1
            try:
                await self._events(receive, send)
            finally:
                self._streams -= 1
            return
        try:
            answer = await self._in_thread(self._read, path) if is_read else await self._act(scope, path)
        except CanalError as error:
            answer = _Answer.of(404 if isinstance(error, UnknownDestinationError) else 409, {"error": str(error)})
        await _begin(send, answer.status, answer.kind, [(b"content-length", str(len(answer.body)).encode())])
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else answer.body})

    def _read(self, path: str) -> _Answer:
        if path == "/":
            return _Answer(200, _PAGE, "text/html; charset=utf-8")
        if path == "/status.json":
            return _Answer.of(200, self._look.document())
        if path == "/healthz":
            problems = self._look.problems()
            return _Answer(503 if problems else 200, "\n".join([*problems, ""] if problems else ["ok", ""]).encode())
        if path == "/metrics":
            if self._exposition is None:
                return _Answer(501, b"metrics need the package prometheus-client: pip install 'canal-cdc[metrics]'\n")
            return _Answer(200, self._exposition(), "text/plain; version=0.0.4; charset=utf-8")
        if path == "/events":
            return _Answer(503, b"too many streams of events\n")
        return _Answer(404, b"no such page\n")

    async def _act(self, scope: Scope, path: str) -> _Answer:
        destination, _, action = path.strip("/").rpartition("/")
        if scope["method"] != "POST" or not destination:
            return _Answer(405, b"only GET and HEAD are supported here\n")
        if action not in self._look.allow:
            return _Answer.of(403, {"error": f"{action} is not allowed here"})
        if not any(name.lower() == _HEADER for name, _ in scope["headers"]):
            return _Answer.of(403, {"error": "the header X-Canal-Action is missing"})
        if _host(scope) not in self._hosts:
            return _Answer.of(421, {"error": "actions need a host name that hosts= lists"})
        await self._in_thread(self._look.act, destination, action)
        return _Answer.of(200, {"done": action})

    async def _in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)

    async def _event(self) -> bytes:
        """Return the current event. All streams share it."""
        async with self._looking:
            if time.monotonic() >= self._next:
                self._last = b"data: " + json.dumps(await self._in_thread(self._look.document)).encode() + b"\n\n"
                self._next = time.monotonic() + self._interval / 2
        return self._last

    async def _events(self, receive: Receive, send: Send) -> None:
        """Send events until the client disconnects or the time is up."""
        await _begin(send, 200, "text/event-stream", [(b"x-accel-buffering", b"no")])
        body, end = b"retry: 200\n", time.monotonic() + _STREAM
        gone = asyncio.ensure_future(_disconnected(receive))
        try:
            while not gone.done() and time.monotonic() < end:
                body += await self._event()
                await send({"type": "http.response.body", "body": body, "more_body": True})
                await asyncio.wait([gone], timeout=self._interval)
                body = b""
            await send({"type": "http.response.body", "body": b""})
        finally:
            gone.cancel()


def _host(scope: Scope) -> str:
    """Return the requested host name without a port."""
    found = next((value for name, value in scope["headers"] if name.lower() == b"host"), b"")
    return re.sub(r":\d+$", "", found.decode("latin-1")).lower()


def _path(scope: Scope) -> str:
    """Return the path relative to the mount point."""
    path, root = str(scope["path"]), str(scope.get("root_path", "")).rstrip("/")
    return path[len(root) :] or "/" if root and path.startswith(root) else path


async def _begin(send: Send, status: int, kind: str, more: list[tuple[bytes, bytes]]) -> None:
    headers = [(b"content-type", kind.encode()), *_HEADERS, *more]
    await send({"type": "http.response.start", "status": status, "headers": headers})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _live(receive: Receive, send: Send) -> None:
    """Answer the lifespan protocol."""
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
