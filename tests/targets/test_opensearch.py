"""What is OpenSearch's own: versions against late writers, and that no item of a bulk request that failed is passed over."""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

import canal
from canal.changes import Change
from canal.errors import (
    CanalError,
    ConfigError,
    ConnectionLostError,
    TargetConflictError,
    TargetError,
    TargetSchemaError,
    UnfitChangeError,
)
from canal.targets import JSONLinesTarget, OpenSearchTarget
from canal.testing import FakeBinlog
from tests.support.target_servers import OpenSearchServer

_numbers = itertools.count(1)


class Shop:
    """A table of its own on the shared server, and who writes it."""

    def __init__(self, url: str, fake: FakeBinlog) -> None:
        self.url, self.fake = url, fake
        self.name = f"orders_{os.getpid()}_{next(_numbers)}"
        self.index = f"shop.{self.name}"
        self.table = fake.table("shop", self.name, "id INT PRIMARY KEY, n INT")

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        answer = httpx.request(method, f"{self.url}{path}", json=body, timeout=60)
        assert answer.status_code < 500, answer.text
        return answer.json()

    def rows(self) -> dict[str, Any]:
        self.ask("POST", f"/{self.index}/_refresh")
        found = self.ask("POST", f"/{self.index}/_search", {"size": 1000})
        return {hit["_id"]: hit["_source"]["n"] for hit in found["hits"]["hits"]}

    def send(self, target: OpenSearchTarget | None = None, **options: Any) -> canal.Pipe:
        self.fake.end()
        with canal.Instance(canal.InstanceConfig(destination="shop", source=self.fake, start="earliest")) as instance:
            instance.subscribe()
            options = {"on_error": "stop", "stream": self.name, **options}
            made = canal.pipe(instance, target or OpenSearchTarget(self.url), **options)
            made.run()
            return made

    def changes(self) -> tuple[list[Change], canal.targets.Progress]:
        with canal.Instance(canal.InstanceConfig(destination="changes", source=self.fake, start="earliest")) as instance:
            instance.subscribe()
            return list(self._read(instance)), canal.targets.Progress(self.fake.position)

    def _read(self, instance: canal.Instance) -> Any:
        reader = canal.changes.Reader()
        while (message := instance.get(1000, timeout=0.5)).entries:
            for entry in message.entries:
                yield from reader.changes(entry)


@pytest.fixture
def shop(opensearch_server: OpenSearchServer, fake_binlog: FakeBinlog) -> Shop:
    return Shop(opensearch_server.url, fake_binlog)


def answering(url: str, change: Callable[[httpx.Request, dict[str, Any]], Any]) -> OpenSearchTarget:
    """A target to whose requests the server answers, and something else than it says comes back."""

    def handle(request: httpx.Request) -> httpx.Response:
        with httpx.HTTPTransport() as real:
            answer = real.handle_request(request)
            changed = change(request, json.loads(answer.read()))
        return changed if isinstance(changed, httpx.Response) else httpx.Response(answer.status_code, json=changed)

    return OpenSearchTarget(url, options={"transport": httpx.MockTransport(handle)})


# -- two writers ----------------------------------------------------------------------------------------------------------


def test_a_writer_that_began_before_another_is_refused_and_changes_nothing(shop: Shop) -> None:
    shop.table.insert({"id": 1, "n": 1}, {"id": 2, "n": 2})
    shop.table.update({"id": 1, "n": 1}, {"id": 1, "n": 9})
    (one, two, later), progress = shop.changes()
    target = OpenSearchTarget(shop.url)
    with target.begin("s") as early, target.begin("s") as late:
        early.progress(shop.name)
        early.apply([one])
        early.commit(progress, shop.name)
        late.progress(shop.name)
        early.apply([two])
        with pytest.raises(TargetConflictError):
            early.commit(progress, shop.name)
        assert shop.rows() == {"1": 1}
        late.apply([later])
        late.commit(progress, shop.name)

    assert shop.rows() == {"1": 9}


def test_a_writer_that_is_paused_within_its_commit_overwrites_nothing(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.table.insert(*({"id": n, "n": n} for n in (1, 2, 3, 4)))
    shop.table.update({"id": 1, "n": 1}, {"id": 1, "n": 9})
    shop.table.delete({"id": 2, "n": 2})
    shop.fake.ddl(f"TRUNCATE TABLE shop.{shop.name}", "shop")
    shop.table.insert({"id": 4, "n": 8})
    changes, progress = shop.changes()
    target = OpenSearchTarget(shop.url)
    for rest, left in ((changes[:6], {"1": 9, "3": 3, "4": 4}), (changes, {"4": 8})):
        with target.begin("s") as early, target.begin("s") as late:
            early.progress(shop.name)
            early.apply(changes[:4])
            monkeypatch.setattr(early, "check_turn", lambda table: None)  # it has looked, and is paused then
            late.progress(shop.name)
            late.apply(changes[:4])  # there are documents
            late.commit(progress, shop.name)
            late.apply(rest)
            late.commit(progress, shop.name)
            for change in changes[:4]:
                with pytest.raises(TargetConflictError):
                    early.apply([change])
                    early.commit(progress, shop.name)
        assert shop.rows() == left


def test_a_late_writer_brings_back_no_row_of_before_a_truncate(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.table.insert({"id": 5, "n": 5}, {"id": 6, "n": 6})
    shop.table.update({"id": 6, "n": 6}, {"id": 7, "n": 7})
    shop.fake.ddl(f"TRUNCATE TABLE shop.{shop.name}", "shop")
    shop.table.insert({"id": 8, "n": 8})
    changes, progress = shop.changes()
    target = OpenSearchTarget(shop.url)
    with target.begin("s") as early, target.begin("s") as late:
        early.progress(shop.name)
        monkeypatch.setattr(early, "check_turn", lambda table: None)  # it has looked, and is paused then
        late.progress(shop.name)
        late.apply(changes)  # with all that the other one has in hand
        late.commit(progress, shop.name)
        for some in (changes[:1], changes[1:2], changes[1:3]):
            early.apply(some)
            with pytest.raises(TargetConflictError):
                early.commit(progress, shop.name)

    assert shop.rows() == {"8": 8}


@pytest.mark.parametrize("is_made_anew", [False, True])
def test_an_index_that_is_deleted_meanwhile_is_an_error_and_none_is_made_in_its_stead(is_made_anew: bool, shop: Shop) -> None:
    shop.table.insert({"id": 1, "n": 1}, {"id": 2, "n": 2})
    (one, two), progress = shop.changes()
    with OpenSearchTarget(shop.url).begin("s") as work:
        work.progress(shop.name)
        work.apply([one])
        work.commit(progress, shop.name)
        shop.ask("DELETE", f"/{shop.index}")
        if is_made_anew:
            shop.ask("PUT", f"/{shop.index}")
        work.apply([two])
        with pytest.raises(TargetSchemaError, match="is gone"):
            work.commit(progress, shop.name)

    found = httpx.get(f"{shop.url}/{shop.index}/_count")
    assert found.json()["count"] == 0 if is_made_anew else found.status_code == 404


def test_an_encode_that_raises_is_unfit_with_the_row(shop: Shop) -> None:
    shop.table.insert({"id": 1, "n": 1}, {"id": 2, "n": 0})

    with pytest.raises(UnfitChangeError, match="ZeroDivisionError") as caught:
        shop.send(OpenSearchTarget(shop.url, encode=lambda row: f'{{"id": {row["id"]}, "n": {1 // row["n"]}}}'))

    assert [change.row["id"] for change in caught.value.changes] == [2]


def test_a_progress_that_was_lost_is_no_silent_end(shop: Shop) -> None:
    shop.table.insert({"id": 1, "n": 1})
    shop.send(), shop.send(stream=f"{shop.name}-other")
    with pytest.raises(TargetConflictError, match="document"):
        shop.ask("PUT", f"/{shop.index}/_doc/1?version={1 << 50}&version_type=external", {"id": 1, "n": 7})
        shop.send(stream=f"{shop.name}-third")
    assert shop.rows() == {"1": 7}


# -- items that fail ------------------------------------------------------------------------------------------------------


def test_documents_that_are_refused_are_parked_and_the_others_written(shop: Shop, tmp_path: Path) -> None:
    shop.ask("PUT", f"/{shop.index}", {"mappings": {"properties": {"id": {"type": "long"}, "n": {"type": "byte"}}}})
    shop.table.insert(*({"id": n, "n": n * 30} for n in range(1, 7)))

    with pytest.raises(UnfitChangeError, match="mapper_parsing_exception, field n ") as caught:
        shop.send()
    made = shop.send(on_unfit=JSONLinesTarget(tmp_path / "parked"))

    assert [change.row["id"] for change in caught.value.changes] == [5, 6]
    assert "150" not in f"{caught.value}"
    assert shop.rows() == {f"{n}": n * 30 for n in range(1, 5)}
    assert made.status().parked == 2


@pytest.mark.parametrize("status", [403, 429, 503])
def test_an_item_that_fails_fails_the_commit_and_comes_again(status: int, shop: Shop) -> None:
    shop.table.insert({"id": 1, "n": 1}, {"id": 2, "n": 2})
    failed = []

    def change(request: httpx.Request, answer: dict[str, Any]) -> dict[str, Any]:
        if request.url.path == "/_bulk" and not failed:
            failed.append(1)
            answer["items"][1] = {"index": {"status": status, "error": {"type": "rejected", "reason": "secret"}}}
        return answer

    with pytest.raises(TargetError, match=f"answers {status} rejected to an item") as caught:
        shop.send(answering(shop.url, change))
    assert "secret" not in f"{caught.value}"
    shop.ask("POST", f"/{shop.index}/_delete_by_query?refresh=true", {"query": {"match_all": {}}})

    shop.send(answering(shop.url, change))

    assert shop.rows() == {"1": 1, "2": 2}


@pytest.mark.parametrize(
    ("answer", "error", "says"),
    [
        ({"items": []}, TargetError, "0 of 1 items"),
        (httpx.Response(200, text="ok"), TargetError, "no JSON"),
        (httpx.Response(401, json={"error": {"type": "security_exception"}}), TargetError, "401 security_exception"),
        (httpx.Response(502, text="<html>"), TargetError, "502"),
        (httpx.Response(413, text=""), UnfitChangeError, "too large"),
        (httpx.ReadTimeout(""), ConnectionLostError, "ReadTimeout"),
    ],
)
def test_an_answer_that_is_none_fails_the_commit(answer: Any, error: type[CanalError], says: str, shop: Shop) -> None:
    shop.table.insert({"id": 1, "n": 1})

    def change(request: httpx.Request, real: dict[str, Any]) -> Any:
        if request.url.path != "/_bulk":
            return real
        if isinstance(answer, Exception):
            raise answer
        return answer

    with pytest.raises(error, match=says):
        shop.send(answering(shop.url, change))
    made = shop.send()

    assert made.status().changes == 1
    assert shop.rows() == {"1": 1}


# -- limits ---------------------------------------------------------------------------------------------------------------


def test_requests_have_so_many_bytes_and_an_index_of_many_pages_is_emptied(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("canal.targets.opensearch._SCAN", 4)
    requests = []

    def count(request: httpx.Request, answer: dict[str, Any]) -> dict[str, Any]:
        if request.url.path == "/_bulk":
            requests.append(len(request.content))
        return answer

    shop.table.insert(*({"id": n, "n": n} for n in range(1, 11)))
    target = canal.targets.opensearch.attrs.evolve(answering(shop.url, count), bulk_bytes=400)
    changes, progress = shop.changes()
    with target.begin("s") as work:
        work.apply(changes)
        work.commit(progress, shop.name)
    assert len(shop.rows()) == 10
    assert len(requests) == 4
    assert max(requests) <= 400

    shop.fake.ddl(f"TRUNCATE TABLE shop.{shop.name}", "shop")
    shop.table.insert({"id": 3, "n": 33})
    shop.send(stream="s", target=OpenSearchTarget(shop.url))
    assert shop.rows() == {"3": 33}


@pytest.mark.parametrize("key", ["", "é" * 257])
def test_a_key_that_is_no_id_is_unfit(key: str, shop: Shop) -> None:
    shop.fake.table("shop", f"{shop.name}_t", "id VARCHAR(300) PRIMARY KEY").insert({"id": key})

    with pytest.raises(UnfitChangeError, match="1 to 512"):
        shop.send()


def test_keys_of_several_columns_are_never_one_id(shop: Shop) -> None:
    table = shop.fake.table("shop", f"{shop.name}_t", "a VARCHAR(9), b VARCHAR(9), n INT, PRIMARY KEY (a, b)")
    table.insert({"a": "x:", "b": "y", "n": 1}, {"a": "x", "b": ":y", "n": 2}, {"a": "x\\", "b": ":y", "n": 3})
    shop.index += "_t"

    shop.send()

    assert shop.rows() == {"x\\::y": 1, "x:\\:y": 2, "x\\\\:\\:y": 3}


def test_indices_are_made_and_fields_added_only_where_that_is_wanted(shop: Shop) -> None:
    shop.table.insert({"id": 1, "n": 1})
    with pytest.raises(TargetSchemaError, match="no index"):
        shop.send(OpenSearchTarget(shop.url, create=False))
    shop.ask("PUT", f"/{shop.index}", {"mappings": {"properties": {"id": {"type": "long"}}}})
    with pytest.raises(TargetSchemaError, match=f"{shop.index} lacks n"):
        shop.send(OpenSearchTarget(shop.url, schema="refuse"))
    with pytest.raises(TargetSchemaError, match="cannot be made"):
        shop.send(OpenSearchTarget(shop.url, prefix="x.", settings={"number_of_shards": -1}))

    shop.send()

    assert shop.ask("GET", f"/{shop.index}/_mapping")[shop.index]["mappings"]["properties"]["n"] == {"type": "long"}


@pytest.mark.parametrize(
    ("to", "says"), [("SHOP.{table}", "both"), ("a b", "no name"), ("_x", "no name"), ("x" * 256, "no name")]
)
def test_tables_that_would_be_one_index_and_names_that_are_none_are_refused(to: str, says: str, shop: Shop) -> None:
    shop.table.insert({"id": 1, "n": 1})
    other = shop.fake.table("shop", f"{shop.name}_t", "id INT PRIMARY KEY, n INT")
    other.insert({"id": 1, "n": 1})

    with pytest.raises(ConfigError, match=says):
        shop.send(rules=[canal.Rule(tables=rf"shop\.{other.name}", to=to.replace("{table}", shop.name))])


@pytest.mark.parametrize(
    "options", [{"url": "host:9200"}, {"url": "http://"}, {"refresh": "soon"}, {"schema": "x"}, {"bulk_bytes": 0}, {"timeout": 0}]
)
def test_options_that_cannot_be_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        OpenSearchTarget(**{"url": "http://host:9200", **options})


def test_nothing_secret_is_shown() -> None:
    target = OpenSearchTarget("https://me:pw@host:9200", options={"headers": {"Authorization": "pw"}})

    assert f"{target}" == "OpenSearch host:9200"
    assert "pw" not in repr(target)


def test_servers_of_one_machine_are_clusters_of_their_own(opensearch_server: OpenSearchServer) -> None:
    with OpenSearchServer() as other:
        urls = opensearch_server.url, other.url

        assert [len(httpx.get(f"{url}/_cat/nodes", timeout=60).text.splitlines()) for url in urls] == [1, 1]


@pytest.mark.parametrize("column", ["_id", "_version", "a..b"])
def test_a_column_that_no_document_has_is_refused_with_what_helps(
    column: str, opensearch_server: OpenSearchServer, fake_binlog: FakeBinlog
) -> None:
    fake_binlog.table("shop", "t", f"id INT PRIMARY KEY, `{column}` INT").insert({"id": 1, column: 7})
    fake_binlog.end()
    name = f"odd{len(column)}"
    config = canal.InstanceConfig(destination=name, source=fake_binlog, start="earliest", meta=canal.MemoryMeta())
    target = OpenSearchTarget(opensearch_server.url, prefix=f"{name}.")
    with canal.Instance(config) as instance:
        instance.subscribe()
        with pytest.raises(canal.ConfigError, match=rf"column '{re.escape(column)}' of shop\.t.*canal\.Rule\(rename="):
            canal.pipe(instance, target, on_error="stop").run()
        canal.pipe(instance, target, rules=[canal.Rule(rename={column: "other"})], on_error="stop").run()
