"""Prometheus metrics of instances, with canal's names and labels where canal has them.

Values are read from ``Instance.status()`` at scrape time, without cost between scrapes. Needs the extra ``canal-cdc[metrics]``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from canal.errors import ConfigError
from canal.instance.instance import Instance
from canal.server.server import Server
from canal.status import ClientStatus, InstanceStatus, State

#: Labels and value of a sample.
Sample = tuple[dict[str, str], float | None]

_PLAIN, _COUNT = "gauge", "count"


def register(
    instances: Server | Instance | Iterable[Instance], registry: Any = None, *, source_timeout: float | None = None
) -> Any:
    """Register a collector for some instances, or for all instances of a server. Return the collector.

    Args:
        instances: the instances. A server exports its instances at the time of the scrape.
        registry: a ``prometheus_client.CollectorRegistry``; None: the default registry.
        source_timeout: query each source for the end of the log at each scrape, for up to this many seconds. Without it,
            ``canal_instance_lag_bytes`` and ``canal_instance_lag_transactions`` are not exported.

    Raises:
        ConfigError: prometheus-client is not installed, or the registry already has these metrics.
    """
    try:
        from prometheus_client import REGISTRY
    except ImportError as error:
        raise ConfigError(
            "canal.metrics needs the package prometheus-client", remedy="pip install 'canal-cdc[metrics]'."
        ) from error
    collector = _Collector(statuses_of(instances, source_timeout))
    try:
        (REGISTRY if registry is None else registry).register(collector)
    except ValueError as error:
        raise ConfigError(
            f"the registry has canal's metrics already: {error}",
            remedy="Register a Server, or all instances in one call, or unregister the first collector.",
        ) from error
    return collector


def statuses_of(
    instances: Server | Instance | Iterable[Instance], source_timeout: float | None
) -> Callable[[], Iterator[InstanceStatus]]:
    """Return a function that returns the status of each instance at the time of the call.

    Raises:
        ConfigError: an argument is not an instance, or two have the same destination.
    """
    if isinstance(instances, Server):
        server = instances
        return lambda: iter(server.status(source_timeout).values())
    known = (instances,) if isinstance(instances, Instance) else tuple(instances)
    if not all(isinstance(instance, Instance) for instance in known):
        raise ConfigError("expected a canal.Server, a canal.Instance or several instances")
    if len({instance.destination for instance in known}) < len(known):
        raise ConfigError("two of the instances have the same destination: give each its own name")
    return lambda: (instance.status(source_timeout) for instance in known)


class _Collector:
    """A prometheus-client collector (duck-typed)."""

    def __init__(self, statuses: Callable[[], Iterator[InstanceStatus]]) -> None:
        self._statuses = statuses

    def describe(self) -> Iterator[Any]:
        """Return the metric names, so that the registry detects duplicates."""
        return self._families([])

    def collect(self) -> Iterator[Any]:
        return self._families(list(self._statuses()))

    @staticmethod
    def _families(statuses: list[InstanceStatus]) -> Iterator[Any]:
        from prometheus_client.core import GaugeMetricFamily, UnknownMetricFamily

        for name, kind, text, samples in METRICS:
            # Gauges, not counters: the client adds _total to counter names, and canal's dashboards expect names without it.
            family = (UnknownMetricFamily if kind is _COUNT else GaugeMetricFamily)(name, text)
            for status in statuses:
                for labels, value in samples(status):
                    if value is not None:
                        family.add_sample(name, {"destination": status.destination, **labels}, value)
            yield family


# -- samples of one status ----------------------------------------------------------------------------------------------


def _one(value: Callable[[InstanceStatus], float | None]) -> Callable[[InstanceStatus], list[Sample]]:
    return lambda status: [({}, value(status))]


def _parser(name: str) -> Callable[[InstanceStatus], list[Sample]]:
    return lambda status: [({}, getattr(status.parser, name, None))]


def _store(name: str) -> Callable[[InstanceStatus], list[Sample]]:
    return lambda status: [({}, getattr(status.store, name, None))]


def _client(value: Callable[[ClientStatus], float | None]) -> Callable[[InstanceStatus], list[Sample]]:
    return lambda status: [({"client": str(client.client_id)}, value(client)) for client in status.clients]


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else 1000 * seconds


def _consumed(put: str, held: str) -> Callable[[InstanceStatus], list[Sample]]:
    """Return the amount that has left the store, acknowledged by the slowest client."""
    return _one(lambda status: getattr(status.store, put) - getattr(status.store, held) if status.store else None)


def _slowest(delay: Callable[[ClientStatus], float | None]) -> Callable[[InstanceStatus], list[Sample]]:
    """Return the longest delay of the clients, or the delay of received events if all clients are up to date."""

    def samples(status: InstanceStatus) -> list[Sample]:
        delays = [delay(client) for client in status.clients]
        known = [delay for delay in (status.lag.seconds, *delays) if delay is not None]
        return [({}, _ms(max(known)) if known else None)]

    return samples


def _sum(name: str) -> Callable[[InstanceStatus], list[Sample]]:
    def samples(status: InstanceStatus) -> list[Sample]:
        counts = [getattr(client, name) for client in status.clients]
        return [({}, None if None in counts else sum(counts))]

    return samples


def _latencies(status: InstanceStatus) -> list[Sample]:
    return [
        ({"client": str(client.client_id), "quantile": quantile}, getattr(client.latency, name))
        for client in status.clients
        if client.latency is not None
        for quantile, name in (("0.5", "median"), ("0.95", "p95"), ("0.99", "p99"), ("1", "longest"))
    ]


def _states(status: InstanceStatus) -> list[Sample]:
    return [({"state": state.value}, float(status.state is state)) for state in State]


def _roles(status: InstanceStatus) -> list[Sample]:
    return [({"role": role}, float(role == status.role)) for role in status.role_changes]


def _role_changes(status: InstanceStatus) -> list[Sample]:
    return [({"role": role}, count) for role, count in status.role_changes.items()]


def _received(status: InstanceStatus) -> list[Sample]:
    parser = status.parser
    return [] if parser is None else [({"parser": parser.address or parser.identity}, parser.bytes)]


def _size(status: InstanceStatus) -> list[Sample]:
    return [] if status.store is None else [({"batchMode": "MEMSIZE", "size": str(status.store.max_entries)}, 1)]


METRICS: tuple[tuple[str, str, str, Callable[[InstanceStatus], list[Sample]]], ...] = (
    # canal's metrics, with canal's labels
    ("canal_instance", _PLAIN, "1 for each instance", lambda status: [({"mode": "embedded"}, 1)]),
    ("canal_instance_subscriptions", _PLAIN, "Clients that are subscribed", _one(lambda status: len(status.clients))),
    (
        "canal_instance_traffic_delay",
        _PLAIN,
        "Milliseconds that what is received lags behind the source; 0 while it is idle",
        _one(lambda status: _ms(status.lag.seconds)),
    ),
    ("canal_instance_transactions", _COUNT, "Transactions received", _parser("transactions")),
    ("canal_instance_parser_mode", _PLAIN, "1 for each instance", lambda status: [({"parallel": "false"}, 1)]),
    ("canal_instance_received_binlog_bytes", _COUNT, "Bytes of events received", _received),
    (
        "canal_instance_sink_blocking_time",
        _COUNT,
        "Milliseconds for which the parser has waited for room in the store",
        _one(lambda status: _ms(status.store.waited) if status.store else None),
    ),
    ("canal_instance_store", _PLAIN, "1 for each instance; size is in entries", _size),
    ("canal_instance_store_produce_seq", _COUNT, "Entries put into the store", _store("put_entries")),
    ("canal_instance_store_consume_seq", _COUNT, "Entries that every client has acked", _consumed("put_entries", "entries")),
    ("canal_instance_store_produce_mem", _COUNT, "Bytes put into the store", _store("put_bytes")),
    ("canal_instance_store_consume_mem", _COUNT, "Bytes that every client has acked", _consumed("put_bytes", "bytes")),
    (
        "canal_instance_put_delay",
        _PLAIN,
        "Milliseconds that what is received lags behind the source; 0 while it is idle",
        _one(lambda status: _ms(status.lag.seconds)),
    ),
    (
        "canal_instance_get_delay",
        _PLAIN,
        "Age of the oldest entry that a client has not got, in milliseconds",
        _slowest(lambda client: client.get_seconds),
    ),
    (
        "canal_instance_ack_delay",
        _PLAIN,
        "Age of the oldest entry that a client has not acked, in milliseconds",
        _slowest(lambda client: client.lag.seconds),
    ),
    ("canal_instance_put_rows", _COUNT, "Row changes put into the store", _store("put_rows")),
    ("canal_instance_get_rows", _COUNT, "Row changes that clients got, again after a rollback", _sum("rows_got")),
    ("canal_instance_ack_rows", _COUNT, "Row changes that clients acked", _sum("rows_acked")),
    # additional metrics
    ("canal_instance_state", _PLAIN, "1 for the state that the instance is in", _states),
    ("canal_instance_role", _PLAIN, "With ha: 1 for the role that this process has", _roles),
    ("canal_instance_role_changes", _COUNT, "With ha: how often this process has entered the role", _role_changes),
    ("canal_instance_uptime_seconds", _PLAIN, "Seconds since the start", _one(lambda status: status.uptime)),
    (
        "canal_instance_lag_bytes",
        _PLAIN,
        "Bytes of the source's log that are not received",
        _one(lambda status: status.lag.bytes),
    ),
    (
        "canal_instance_lag_transactions",
        _PLAIN,
        "Transactions of the source's log that are not received, by GTID",
        _one(lambda status: status.lag.transactions),
    ),
    (
        "canal_instance_memory_bytes",
        _PLAIN,
        "What entries and open transactions are accounted with",
        _one(lambda status: status.memory_bytes),
    ),
    ("canal_instance_received_events", _COUNT, "Events received", _parser("events")),
    ("canal_instance_statements", _COUNT, "Changes of rows that came as statements", _parser("statements")),
    ("canal_instance_reconnects", _COUNT, "Connections made after the first, also by a switch", _parser("reconnects")),
    ("canal_instance_alarms", _COUNT, "Messages given to the alarm callback", _one(lambda status: status.alarms)),
    ("canal_instance_errors", _COUNT, "Lost and refused connections, and what stopped the parser", _parser("errors")),
    ("canal_instance_store_entries", _PLAIN, "Entries in the store", _store("entries")),
    ("canal_instance_store_bytes", _PLAIN, "Bytes in the store", _store("bytes")),
    ("canal_instance_store_rows", _PLAIN, "Row changes in the store", _store("rows")),
    ("canal_instance_store_max_entries", _PLAIN, "Entries that the store keeps at most", _store("max_entries")),
    ("canal_instance_store_max_bytes", _PLAIN, "Bytes that the store keeps at most", _store("max_bytes")),
    (
        "canal_instance_client_ack_delay",
        _PLAIN,
        "Age of the oldest entry that the client has not acked, in milliseconds",
        _client(lambda client: _ms(client.lag.seconds)),
    ),
    (
        "canal_instance_client_unacked_transactions",
        _PLAIN,
        "Transactions received that the client has not acked",
        _client(lambda client: client.unacked_transactions),
    ),
    (
        "canal_instance_client_unacked_entries",
        _PLAIN,
        "Entries in the store that the client has not acked",
        _client(lambda client: client.unacked_entries),
    ),
    (
        "canal_instance_client_batches",
        _PLAIN,
        "Batches that the client got and has not acked",
        _client(lambda client: client.batches),
    ),
    ("canal_instance_client_latency_seconds", _PLAIN, "Seconds from a change to its ack, of 1000 batches", _latencies),
    (
        "canal_instance_client_complete_to",
        _PLAIN,
        "All that the source committed before it is acked: seconds since 1970",
        _client(lambda client: client.complete_to),
    ),
    ("canal_instance_client_rollbacks", _COUNT, "Rollbacks of the client", _client(lambda client: client.rollbacks)),
)
