"""Many destinations in one process: made when asked for, stopped together, also on SIGTERM."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import pytest

import canal
from canal.testing import FakeBinlog


def config(destination: str) -> canal.InstanceConfig:
    fake = FakeBinlog()
    fake.table("shop", "orders", "id INT").insert({"id": len(destination)})
    return canal.InstanceConfig(destination=destination, source=fake, start="earliest")


def test_known_destinations_are_started_when_first_asked_for() -> None:
    with canal.Server([config("a"), config("bb")]) as server:
        assert server.destinations() == []
        instance = server.instance("bb")
        instance.subscribe()
        (row,) = [row for entry in instance.get_without_ack(10, timeout=60).entries for row in entry.rows]

        assert row.after["id"] == 2
        assert server.destinations() == ["bb"]
        assert server.instance("bb") is instance
    assert not instance.is_running


def test_a_generator_makes_the_others() -> None:
    made: list[str] = []

    def generate(destination: str) -> canal.InstanceConfig | None:
        made.append(destination)
        return config(destination) if destination.startswith("shop-") else None

    with canal.Server(generator=generate) as server:
        assert server.instance("shop-1").destination == "shop-1"
        with pytest.raises(canal.errors.UnknownDestinationError, match="other"):
            server.instance("other")
        server.instance("shop-1")

    assert made == ["shop-1", "other"]


def test_one_destination_can_be_stopped_and_started_again() -> None:
    with canal.Server([config("a")]) as server:
        first = server.instance("a")
        server.stop("a")
        with pytest.raises(canal.errors.UnknownDestinationError):
            server.stop("a")

        assert not first.is_running
        assert server.instance("a").is_running


def test_two_configs_of_one_destination_are_refused() -> None:
    with pytest.raises(canal.ConfigError, match="two configs"):
        canal.Server([config("a"), config("a")])


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"time_zone": "UTC"}, "time_zone must be a tzinfo"),
        ({"meta": "/var/lib/app"}, "meta must be"),
        ({"hooks": canal.Hook()}, "hooks must be a list"),
        ({"hooks": [canal.Hook]}, "hooks must be a list"),
        ({"source": "host"}, "source must be"),
        ({"start": canal.Position(timestamp=1_700_000_000)}, "milliseconds"),
        ({"start": "now"}, "milliseconds since 1970"),
        ({"destination": "a/b"}, "letters"),
        ({"filter": "("}, "filter|pattern"),
    ],
)
def test_bad_options_are_found_before_anything_starts(options: dict[str, Any], text: str) -> None:
    with pytest.raises(canal.ConfigError, match=text):
        canal.InstanceConfig(**{"destination": "a", "source": FakeBinlog()} | options)


def test_a_stopped_server_starts_nothing() -> None:
    server = canal.Server([config("a")])
    server.stop()
    with pytest.raises(canal.StateError):
        server.instance("a")


def test_sigterm_stops_everything_and_wakes_consumers() -> None:
    ended: list[str] = []

    def consume(instance: canal.Instance) -> None:
        try:
            instance.consume(lambda message: None)
        except canal.StateError:
            ended.append(instance.destination)

    with canal.Server([config("a"), config("b")]) as server:
        server.stop_on_signals(signal.SIGTERM)
        consumers = []
        for name in ("a", "b"):
            instance = server.instance(name)
            instance.subscribe()
            consumers.append(threading.Thread(target=consume, args=(instance,)))
            consumers[-1].start()
        os.kill(os.getpid(), signal.SIGTERM)

        assert server.wait(60)
        assert not instance.is_running
        for consumer in consumers:
            consumer.join(60)
    assert sorted(ended) == ["a", "b"]
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def raise_in_another_thread(number: int) -> threading.Thread:
    """As a signal that comes just before the main thread waits: its handler is due, and nothing ends the wait."""
    raising = threading.Timer(0.2, signal.raise_signal, (number,))
    raising.start()
    return raising


def test_a_signal_that_does_not_end_the_main_threads_wait_stops_the_server_all_the_same() -> None:
    with canal.Server([config("a")]) as server:
        server.stop_on_signals(signal.SIGTERM)
        instance = server.instance("a")
        raising = raise_in_another_thread(signal.SIGTERM)

        assert server.wait()
        assert not instance.is_running
        raising.join()


def test_a_signal_that_does_not_end_the_main_threads_wait_for_a_change_stops_the_server_all_the_same() -> None:
    with canal.Server([config("a")]) as server:
        server.stop_on_signals(signal.SIGTERM)
        instance = server.instance("a")
        instance.subscribe()
        assert instance.get(10, timeout=60)
        raising = raise_in_another_thread(signal.SIGTERM)

        with pytest.raises(canal.StateError):
            instance.get(10, timeout=None)
        raising.join()


def test_a_wait_for_a_server_that_runs_on_ends_in_time() -> None:
    with canal.Server([config("a")]) as server:
        assert not server.wait(0.05)
        server.stop()
        assert server.wait(0.0)


class SlowToStop(canal.MemoryMeta):
    def __init__(self) -> None:
        super().__init__()
        self.stopping, self.go, self.stopped = threading.Event(), threading.Event(), False

    def stop(self) -> None:
        self.stopping.set()
        self.stopped = self.go.wait(60)
        super().stop()


def test_a_second_stop_does_not_tell_that_the_first_is_done() -> None:
    meta = SlowToStop()
    server = canal.Server([canal.InstanceConfig(destination="a", source=FakeBinlog(), meta=meta)])
    server.instance("a")
    first = threading.Thread(target=server.stop)
    first.start()
    assert meta.stopping.wait(60)
    server.stop()

    assert not server.wait(0.05)
    meta.go.set()
    assert server.wait(60)
    first.join(60)


def test_a_server_that_is_left_while_it_is_stopped_waits_for_the_end() -> None:
    meta = SlowToStop()
    with canal.Server([canal.InstanceConfig(destination="a", source=FakeBinlog(), meta=meta)]) as server:
        server.instance("a")
        first = threading.Thread(target=server.stop)
        first.start()
        assert meta.stopping.wait(60)
        release = threading.Timer(0.2, meta.go.set)
        release.start()

    assert meta.stopped
    first.join(60)
    release.join(60)


def test_all_instances_are_stopped_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one waits for, such as a ZooKeeper that says nothing, all wait for together; whatever one of them raises."""
    names = ["a", "b", "c"]
    server = canal.Server(canal.InstanceConfig(destination=name, source=FakeBinlog()) for name in names)
    for name in names:
        server.instance(name)
    together, stop = threading.Barrier(len(names)), canal.Instance.stop

    def stop_with_others(instance: canal.Instance) -> None:
        together.wait(60)
        stop(instance)
        if instance.destination == "b":
            raise canal.CursorError("a full disk")

    monkeypatch.setattr(canal.Instance, "stop", stop_with_others)
    with pytest.raises(canal.CursorError, match="a full disk"):
        server.stop()
    assert server.destinations() == []
    assert server.wait(0.0)
