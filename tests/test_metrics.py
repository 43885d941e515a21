"""Prometheus metrics: canal's names and labels, taken from the status at the scrape, and no need of the client otherwise."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

import canal
from canal import metrics
from canal.testing import FakeBinlog

prometheus = pytest.importorskip("prometheus_client")

#: What canal exports of an instance that is embedded: names, and labels beside ``destination``.
CANALS = {
    "canal_instance": {"mode"},
    "canal_instance_subscriptions": set(),
    "canal_instance_traffic_delay": set(),
    "canal_instance_transactions": set(),
    "canal_instance_parser_mode": {"parallel"},
    "canal_instance_received_binlog_bytes": {"parser"},
    "canal_instance_sink_blocking_time": set(),
    "canal_instance_store": {"batchMode", "size"},
    "canal_instance_store_produce_seq": set(),
    "canal_instance_store_consume_seq": set(),
    "canal_instance_store_produce_mem": set(),
    "canal_instance_store_consume_mem": set(),
    "canal_instance_put_delay": set(),
    "canal_instance_get_delay": set(),
    "canal_instance_ack_delay": set(),
    "canal_instance_put_rows": set(),
    "canal_instance_get_rows": set(),
    "canal_instance_ack_rows": set(),
}


def config(fake: FakeBinlog, destination: str = "orders") -> canal.InstanceConfig:
    return canal.InstanceConfig(destination=destination, source=fake, start="earliest")


def is_settled(status: canal.InstanceStatus) -> bool:
    """Whether all that the source has, four transactions, has been received and stored."""
    assert status.store is not None
    stored = (status.state, status.store.put_rows) == (canal.State.STREAMING, 4)
    return stored and (status.lag.bytes, status.lag.transactions) == (0, 0)


def scraped(registry: object) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Samples by name, as a Prometheus reads them."""
    from prometheus_client.parser import text_string_to_metric_families

    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(prometheus.generate_latest(registry).decode()):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def test_every_metric_of_canal_is_there_by_its_name_and_labels() -> None:
    fake = FakeBinlog()
    orders = fake.table("s", "orders", "id INT PRIMARY KEY")
    registry = prometheus.CollectorRegistry()
    with canal.Instance(config(fake)) as instance:
        metrics.register(instance, registry, source_timeout=60.0)
        instance.subscribe()
        for number in range(4):
            orders.insert({"id": number})
        rows = 0
        while rows < 3:
            message = instance.get_without_ack(1, timeout=60)
            rows += sum(entry.row_count for entry in message.entries)
            if rows < 3:
                instance.ack(message.id)
        deadline = time.monotonic() + 60
        while not is_settled(status := instance.status(60.0)):  # the last row may not have come when the third is handed out
            assert time.monotonic() < deadline, status
            time.sleep(0.01)
        found = scraped(registry)

    assert {name: set(found[name][0][0]) - {"destination"} for name in CANALS} == CANALS
    assert all(labels["destination"] == "orders" for samples in found.values() for labels, _ in samples)

    def value(name: str) -> float:
        ((_, number),) = found["canal_instance_" + name]
        return number

    assert [value(name) for name in ("put_rows", "get_rows", "ack_rows")] == [4, 3, 2]
    assert [value(name) for name in ("transactions", "subscriptions", "client_batches")] == [4, 1, 1]
    assert value("store_produce_seq") == 12
    assert value("store_produce_seq") - value("store_consume_seq") == value("store_entries")
    assert value("store_produce_mem") - value("store_consume_mem") == value("store_bytes") > 0
    assert value("put_delay") <= value("get_delay") <= value("ack_delay")
    assert value("lag_bytes") == value("lag_transactions") == 0
    states = {labels["state"]: number for labels, number in found["canal_instance_state"]}
    assert states.pop("streaming") == 1
    assert set(states.values()) == {0}


def test_a_server_exports_what_it_has_at_the_scrape() -> None:
    fake = FakeBinlog()
    registry = prometheus.CollectorRegistry()
    with canal.Server([config(fake, name) for name in ("a", "b")]) as server:
        collector = metrics.register(server, registry)
        assert "canal_instance" not in scraped(registry)
        server.start("a")
        server.start("b")
        assert [labels["destination"] for labels, _ in scraped(registry)["canal_instance"]] == ["a", "b"]
        server.stop("a")
        assert [labels["destination"] for labels, _ in scraped(registry)["canal_instance"]] == ["b"]
        registry.unregister(collector)
        assert scraped(registry) == {}


def test_in_the_newer_text_format_they_are_valid_too() -> None:
    from prometheus_client.openmetrics import exposition, parser

    registry = prometheus.CollectorRegistry()
    metrics.register(canal.Instance(config(FakeBinlog())), registry)
    families = list(parser.text_string_to_metric_families(exposition.generate_latest(registry).decode()))

    assert {family.name for family in families} >= set(CANALS)


def test_roles_and_how_often_they_were_entered_are_exported() -> None:
    """Of an instance with ha; one without it has no role to tell."""
    ha = canal.ZooKeeper(hosts="127.0.0.1:1")
    alone = canal.Instance(config(FakeBinlog(), "alone"))
    shared = canal.Instance(canal.InstanceConfig(destination="shared", source=FakeBinlog(), ha=ha))
    registry = prometheus.CollectorRegistry()
    metrics.register([alone, shared], registry)
    assert shared._ha is not None
    for role in (canal.Role.CONNECTING, canal.Role.STANDBY, canal.Role.ACTIVE, canal.Role.STANDBY):
        shared._ha._set_role(role)
    found = scraped(registry)

    assert {labels["destination"] for labels, _ in found["canal_instance_role"]} == {"shared"}
    roles = {labels["role"]: number for labels, number in found["canal_instance_role"]}
    assert roles == {role.value: float(role is canal.Role.STANDBY) for role in canal.Role}
    changes = {labels["role"]: number for labels, number in found["canal_instance_role_changes"]}
    assert {role: number for role, number in changes.items() if number} == {"connecting": 1, "standby": 2, "active": 1}
    assert "role         standby, active 1 times so far" in str(shared.status())


def test_what_is_not_known_is_not_exported() -> None:
    registry = prometheus.CollectorRegistry()
    metrics.register([canal.Instance(config(FakeBinlog()))], registry)
    found = scraped(registry)

    assert not {"canal_instance_traffic_delay", "canal_instance_uptime_seconds", "canal_instance_lag_bytes"} & set(found)
    assert found["canal_instance_transactions"] == [({"destination": "orders"}, 0.0)]


def test_a_second_collector_and_what_is_no_instance_are_refused() -> None:
    one, other = canal.Instance(config(FakeBinlog())), canal.Instance(config(FakeBinlog()))
    registry = prometheus.CollectorRegistry()
    metrics.register(one, registry)

    with pytest.raises(canal.ConfigError, match="one call"):
        metrics.register(other, registry)
    with pytest.raises(canal.ConfigError, match="same destination"):
        metrics.register([one, other], prometheus.CollectorRegistry())
    with pytest.raises(canal.ConfigError, match="or several instances"):
        metrics.register(["orders"], registry)  # type: ignore[list-item]


def test_without_the_client_the_library_works_and_metrics_say_what_to_install() -> None:
    code = """
import sys
sys.modules["prometheus_client"] = None
import canal, canal.metrics
from canal.testing import FakeBinlog
instance = canal.Instance(canal.InstanceConfig(destination="d", source=FakeBinlog()))
try:
    canal.metrics.register(instance)
except canal.ConfigError as error:
    print(error)
"""
    root = Path(canal.__file__).parent.parent
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root)

    assert done.stdout.strip() == "canal.metrics needs the package prometheus-client. pip install 'canal-cdc[metrics]'."


def test_every_metric_of_the_dashboard_exists_with_its_labels() -> None:
    dashboard = json.loads((Path(__file__).parent.parent / "docs/grafana.json").read_text())
    fake = FakeBinlog()
    fake.table("s", "orders", "id INT PRIMARY KEY").insert({"id": 1})
    registry = prometheus.CollectorRegistry()
    with canal.Instance(config(fake)) as instance:
        metrics.register(instance, registry)
        instance.subscribe()
        instance.ack(instance.get_without_ack(timeout=60).id)
        labels = {name: set().union(*(one for one, _ in samples)) for name, samples in scraped(registry).items()}
    labels |= {f"canal_instance_{name}": {"destination", "role"} for name in ("role", "role_changes")}  # only with ha

    texts = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    texts += [one["query"]["query"] for one in dashboard["templating"]["list"] if one["type"] == "query"]
    legends = [target["legendFormat"] for panel in dashboard["panels"] for target in panel["targets"]]

    assert len(texts) > 10
    for text, legend in zip(texts, [*legends, ""]):
        named = re.findall(r"canal_\w+", text)
        assert named
        assert set(named) <= labels.keys(), text
        wanted = set(re.findall(r"[{,](\w+)=", text)) | set(re.findall(r"{{(\w+)}}", legend))
        assert all(wanted <= labels[name] for name in named), text
