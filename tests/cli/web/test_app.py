"""The page as an ASGI application, called as a server calls it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import pytest

import canal
from canal.cli import web
from canal.snapshot.copies import copying
from tests.support.waiting import until
from tests.support.web import NASTY, Refuse, config


@attrs.frozen
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body)


async def call(
    app: Any, path: str, method: str = "GET", *, headers: Any = (), enough: Callable[[bytes], bool] | None = None, **scope: Any
) -> Answer:
    """One request; where ``enough`` of an answer without end has come the client goes."""
    sent: list[Any] = []
    gone = asyncio.Event()

    async def receive() -> Any:
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)
        if enough is not None and enough(b"".join(one.get("body", b"") for one in sent)):
            gone.set()

    full = {"type": "http", "method": method, "path": path, "headers": list(headers), **scope}
    await asyncio.wait_for(app(full, receive, send), 60)
    names = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return Answer(sent[0]["status"], names, b"".join(one.get("body", b"") for one in sent[1:]))


def get(app: Any, path: str, method: str = "GET", **options: Any) -> Answer:
    return asyncio.run(call(app, path, method, **options))


@pytest.fixture
def server() -> Any:
    with canal.Server([config("orders"), config("idle")]) as server:
        server.instance("orders").subscribe()
        until(lambda: server.status()["orders"].state is canal.State.STREAMING)
        yield server


def test_the_page_and_its_status(server: canal.Server) -> None:
    app = web.app(server)

    page, status = get(app, "/"), get(app, "/status.json")

    assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "'unsafe-inline'" not in page.headers["content-security-policy"]
    assert int(page.headers["content-length"]) == len(page.body)
    (one,) = status.document["instances"]
    assert one.keys() == server.status()["orders"].as_dict().keys() | {"problem"}
    assert (one["destination"], one["state"], one["problem"]) == ("orders", "streaming", "")
    assert (status.document["not_started"], status.document["pipes"]) == (["idle"], [])
    assert status.document["problems"] == ["idle: it has a configuration and is not started"]


def test_it_may_be_mounted_at_any_path_and_is_for_reading_only(server: canal.Server) -> None:
    app = web.app(server, idle=["idle"])

    assert get(app, "/ops/canal/healthz", root_path="/ops/canal").body == b"ok\n"
    assert get(app, "/healthz", root_path="/ops/canal").body == b"ok\n"
    head = get(app, "/", "HEAD")
    assert (head.status, head.body) == (200, b"")
    assert get(app, "/nothing").status == 404
    assert [get(app, "/", "POST").status, get(app, "/status.json", "DELETE").status] == [405, 405]
    for action in web.look.ACTIONS:
        assert get(app, f"/orders/{action}", "POST", headers=[(b"X-Canal-Action", b"1")]).status == 403
    assert server.destinations() == ["orders"]


def test_what_is_allowed_is_done_and_nothing_else(server: canal.Server) -> None:
    app = web.app(server, allow=["stop", "start", "switch"])
    header = [(b"x-canal-action", b"1"), (b"host", b"localhost:8000")]

    assert get(app, "/orders/stop", "POST").status == 403  # as a form of another site would send it
    assert get(app, "/orders/stop", headers=header).status == 404
    assert get(app, "/orders/reload", "POST", headers=header).status == 403
    assert server.destinations() == ["orders"]
    assert get(app, "/orders/stop", "POST", headers=header).document == {"done": "stop"}
    assert server.destinations() == []
    assert get(app, "/idle/start", "POST", headers=header).status == 200
    assert server.destinations() == ["idle"]
    unknown = get(app, "/<b>/stop", "POST", headers=header)
    assert (unknown.status, "<b>" in unknown.document["error"]) == (404, True)
    refused = get(app, "/idle/switch", "POST", headers=header)
    assert refused.status == 409, "there is no standby"


def test_healthz_tells_what_is_not_well(server: canal.Server) -> None:
    instance = canal.Instance(config("broken", hooks=[Refuse()]))
    with instance:
        instance.subscribe()
        until(lambda: instance.status().state is canal.State.FAILED)
        found = get(web.app([instance]), "/healthz")
        assert found.status == 503
        assert found.body.startswith(b"broken: ")
        assert NASTY.encode() in found.body

    assert get(web.app([instance]), "/healthz").status == 503, "it was stopped"
    assert get(web.app(server, max_lag=0.0), "/healthz").status == 503, "a row is not acked"
    assert get(web.app(server, max_lag=1e12, idle=["idle"]), "/healthz").status == 200


def test_healthz_tells_what_should_run_and_was_never_started(server: canal.Server) -> None:
    class Files:
        """A configuration of which one destination can never be used."""

        def names(self) -> dict[str, str]:
            return {"good": "1", "bad": "1", "lazy": "1"}

        def load(self, name: str) -> canal.InstanceConfig:
            if name == "bad":
                raise canal.ConfigError("half written")
            return config(name)

        def is_lazy(self, name: str) -> bool:
            return name == "lazy"

    app = web.app(server)
    server.follow(Files(), interval=600, alarm=lambda destination, message: None)
    server.instance("good").subscribe()

    found = get(app, "/healthz")

    missing = b"bad: its configuration cannot be used\nidle: it has a configuration and is not started\n"
    assert (found.status, found.body) == (503, missing)
    assert get(app, "/status.json").document["not_started"] == ["bad", "idle", "lazy"]
    server.start("idle")
    assert get(web.app(server, idle=["bad"]), "/healthz").status == 200
    server.start("lazy")
    server.stop("lazy")
    assert get(web.app(server, idle=["bad"]), "/healthz").body == b"lazy: it has a configuration and is not started\n"


def test_events_come_until_the_client_goes(server: canal.Server) -> None:
    app = web.app(server, interval=0.01)

    found = get(app, "/events", enough=lambda body: body.count(b"\n\n") == 3)

    assert found.headers["content-type"] == "text/event-stream"
    documents = [json.loads(line[6:]) for line in found.body.decode().splitlines() if line[:5] == "data:"]
    assert [one["instances"][0]["destination"] for one in documents[:3]] == ["orders"] * 3
    assert app._streams == 0  # type: ignore[attr-defined]


def test_one_stream_of_events_too_many_is_refused(server: canal.Server) -> None:
    app = web.app(server, interval=0.01)

    async def many() -> int:
        going = True
        streams = [asyncio.create_task(call(app, "/events", enough=lambda body: not going)) for _ in range(100)]
        while app._streams < 100:  # type: ignore[attr-defined]
            await asyncio.sleep(0.01)
        refused = (await call(app, "/events")).status
        going = False
        await asyncio.gather(*streams)
        return refused

    assert asyncio.run(many()) == 503


def test_metrics_are_those_of_the_registry(server: canal.Server) -> None:
    pytest.importorskip("prometheus_client")

    found = get(web.app(server), "/metrics")

    assert found.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert b'canal_instance_state{destination="orders",state="streaming"} 1.0' in found.body


def test_a_server_asks_whether_it_lives(server: canal.Server) -> None:
    messages = iter(({"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}))
    sent: list[Any] = []

    async def receive() -> Any:
        return next(messages)

    async def send(message: Any) -> None:
        sent.append(message["type"])

    asyncio.run(_run(web.app(server)({"type": "lifespan"}, receive, send)))

    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


async def _run(awaitable: Awaitable[None]) -> None:
    await awaitable


@pytest.mark.parametrize(
    "options",
    [{"allow": "stop"}, {"allow": ["delete"]}, {"interval": 0}, {"instances": [1]}, {"instances": [], "allow": ["stop"]}],
)
def test_arguments_that_cannot_be_are_refused(server: canal.Server, options: dict[str, Any]) -> None:
    with pytest.raises(canal.ConfigError):
        web.app(options.pop("instances", server), **options)


def test_an_action_is_taken_under_the_names_of_the_page_alone(server: canal.Server) -> None:
    """A site whose own name points to this machine is no other site to the browser."""
    action = (b"x-canal-action", b"1")
    for hosts, host, status in (((), b"evil.example", 421), ((), b"", 421), (("db.example",), b"DB.example:80", 200)):
        app = web.app(server, allow=["stop"], **({"hosts": hosts} if hosts else {}))
        assert get(app, "/orders/stop", "POST", headers=[action, (b"host", host)]).status == status
    with pytest.raises(canal.ConfigError, match="hosts"):
        web.app(server, hosts="localhost")


def test_no_action_asks_for_a_destination_that_nobody_has_named() -> None:
    asked: list[str] = []
    with canal.Server([config("orders")], generator=asked.append) as server:  # type: ignore[arg-type]
        app = web.app(server, allow=["start", "stop", "reload"])
        header = [(b"x-canal-action", b"1"), (b"host", b"localhost")]
        for action in ("start", "stop", "reload"):
            assert get(app, f"/../../tmp/other/{action}", "POST", headers=header).status == 404
        assert get(app, "/orders/reload", "POST", headers=header).status == 404  # it does not run
        assert asked == []


def test_tables_that_are_being_copied_are_shown(server: Any) -> None:
    page = web.app(server)
    with copying("orders", "shop.orders", 400) as tell, copying("other", "shop.t", 1):
        tell(150)
        (found,) = get(page, "/status.json").document["copies"]
    assert (found["destination"], found["table"], found["rows"], found["of"]) == ("orders", "shop.orders", 150, 400)
    assert get(page, "/status.json").document["copies"] == []
