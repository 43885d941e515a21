"""OpenSearch and Elasticsearch: rows as documents, each with the number of its writer's turn as its version.

Never passes over an item of a bulk request that failed, and never lets a late writer overwrite what a later one has written.
"""

from __future__ import annotations

import base64
import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, ClassVar, Final, Literal
from urllib.parse import quote, urlsplit

import attrs

from canal._util.option_checks import text
from canal.changes import Table, TableState
from canal.changes.latest import Key
from canal.errors import CanalError, ConfigError, ConnectionLostError, TargetError, TargetSchemaError, UnfitChangeError
from canal.formats.change_json import row_json
from canal.formats.texts import TEXTS
from canal.model import Row
from canal.schema import ColumnSchema
from canal.targets.names import Names, Naming
from canal.targets.protocol import Guarantee, Scope
from canal.targets.tables import need
from canal.targets.values import NO_TYPE
from canal.targets.work import StateWork, closed, conflict, is_http

log = logging.getLogger("canal.pipe")

#: Documents that are asked for at once where an index is emptied.
_SCAN: Final = 1000
#: Bytes of a document's id, at most.
_ID: Final = 512
_TIMES: Final = ("HH:mm:ss", "HH:mm:ss.SSSSSS", "HH:mm:ssXXX", "HH:mm:ss.SSSSSSXXX")
_DATES: Final = "||".join(("yyyy-MM-dd", *(f"yyyy-MM-dd {time}" for time in _TIMES)))
_TEXT: Final = {"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": 256}}}
_FIELDS: Final[Mapping[str, Mapping[str, Any]]] = {
    **dict.fromkeys(("tinyint", "smallint", "mediumint", "int", "bigint", "year"), {"type": "long"}),
    "bigint unsigned": {"type": "unsigned_long"},
    "bit": {"type": "unsigned_long"},
    "float": {"type": "float"},
    **dict.fromkeys(("double", "decimal"), {"type": "double"}),
    **dict.fromkeys(("date", "datetime", "timestamp"), {"type": "date", "format": _DATES}),
    **dict.fromkeys(("char", "varchar", "tinytext", "text", "mediumtext", "longtext"), _TEXT),
    "json": {"type": "object", "enabled": False},
    **dict.fromkeys(("tinyblob", "blob", "mediumblob", "longblob", "geometry"), {"type": "binary"}),
}


@attrs.frozen
class OpenSearchTarget:
    """A cluster of OpenSearch 2 or later, or of Elasticsearch 7.11 or later; a table is an index, a row a document.

    The index of ``shop.Orders`` is ``<prefix>shop.orders``. The id of a document is its key: the values of several columns with
    colons between them (a colon or backslash in a value has a backslash before it). ``_source`` has the row exactly: DECIMAL,
    dates and times as text, bytes as base64. What is searched may be less exact: DECIMAL is indexed as double, moments to
    milliseconds.

    The version of a document is the number of its writer's turn: whoever begins to write a table has the next one, and who began
    before is refused. So nothing else may write these documents.

    Args:
        url: of a node or of what stands before the cluster: ``https://user:password@host:9200``.
        prefix: of the names of all indices.
        create: make indices that are not there, with the fields of the table's columns and ``index.gc_deletes`` of an hour.
        schema: what to do with columns that an index has no field for: "add" it, or "refuse".
        settings: of indices that are made, such as ``{"number_of_replicas": 2}``.
        progress_index: its name; it is made where it is not there.
        refresh: whether a commit is found by searches when it ends: False, True, or "wait_for" their next refresh.
        bulk_bytes: of a request, about.
        encode: makes the JSON object of a row, in one line.
        timeout: seconds to wait to connect, and for each part of an answer.
        options: more arguments of ``httpx.Client``, such as ``auth``, ``headers``, ``verify``, ``cert``, ``proxy``.
    """

    url: str = attrs.field(repr=False, validator=text)
    prefix: str = attrs.field(default="", kw_only=True)
    create: bool = attrs.field(default=True, kw_only=True)
    schema: Literal["add", "refuse"] = attrs.field(default="add", kw_only=True)
    settings: Mapping[str, Any] = attrs.field(factory=dict, kw_only=True)
    progress_index: str = attrs.field(default="canal_progress", kw_only=True)
    refresh: Literal[False, True, "wait_for"] = attrs.field(default=False, kw_only=True)
    bulk_bytes: int = attrs.field(default=5 << 20, kw_only=True)
    encode: Callable[[Row], str] = attrs.field(default=row_json, kw_only=True)
    timeout: float = attrs.field(default=60.0, kw_only=True)
    options: Mapping[str, Any] = attrs.field(factory=dict, kw_only=True, repr=False)

    guarantee = Guarantee.VERSIONED
    scope: ClassVar[Scope] = "table"
    is_log = False

    def __attrs_post_init__(self) -> None:
        if not is_http(self.url):
            raise ConfigError("the url of an OpenSearchTarget is http://host:9200 or https://host:9200")
        if self.schema not in ("add", "refuse") or self.refresh not in (False, True, "wait_for"):
            raise ConfigError('schema is "add" or "refuse", refresh False, True or "wait_for"')
        if self.bulk_bytes < 1 or not self.timeout > 0:
            raise ConfigError("bulk_bytes is 1 or more, and timeout more than 0 seconds")

    def __str__(self) -> str:
        return f"OpenSearch {urlsplit(self.url).netloc.rpartition('@')[2]}"

    @contextmanager
    def begin(self, stream: str) -> Iterator[OpenSearchWork]:
        httpx = need("httpx", "opensearch")
        try:
            client = httpx.Client(base_url=self.url, **{"timeout": self.timeout, **self.options})
        except (TypeError, ValueError, OSError, httpx.InvalidURL) as error:
            raise ConfigError(f"httpx.Client does not take the options of {self}: {type(error).__name__}") from error
        with closed(client):
            yield OpenSearchWork(self, _Cluster(client, f"{self}"), stream)


@attrs.frozen
class _Cluster:
    """Requests, and what their failures mean."""

    client: Any
    what: str

    def ask(self, method: str, path: str, body: Any = None, *, expected: tuple[int, ...] = ()) -> tuple[int, Any]:
        """The status and the JSON of an answer of 2xx; or a status that is expected, and the kind of its error.

        Raises:
            TargetError, ConnectionLostError: any other one, or none.
        """
        import httpx

        content = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        kind = "application/x-ndjson" if isinstance(body, bytes) else "application/json"
        try:
            answer = self.client.request(method, path, content=content, headers={"Content-Type": kind} if content else None)
            status = int(answer.status_code)
            if status in expected:
                return status, _error(answer)
            if 200 <= status < 300:
                return status, answer.json()
        except httpx.TransportError as error:
            raise ConnectionLostError(f"the request to {self.what} failed: {type(error).__name__}") from error
        except ValueError as error:
            raise TargetError(f"{self.what} answers {status} with what is no JSON", remedy="See what listens there.") from error
        raise TargetError(
            f"{self.what} answers {status} {_error(answer)} to {method} {path.partition('?')[0]}",
            remedy="See that the user may do that, and that the cluster is well. Nothing is lost.",
        )


def _error(answer: Any) -> str:
    """The kind of the error that an answer tells of; its reason may quote values."""
    try:
        return str(answer.json()["error"]["type"])
    except (ValueError, TypeError, KeyError):
        return ""


@attrs.frozen
class _Turn:
    """Who writes a table: the number is the version of all that it writes, the others tell its progress from a later one."""

    number: int
    seq_no: int
    term: int


@attrs.frozen
class _Item:
    """A document that is put or deleted."""

    key: Key | None
    """None: of a row from before the table was emptied."""
    lines: bytes


class OpenSearchWork(StateWork):
    def __init__(self, target: OpenSearchTarget, cluster: _Cluster, stream: str) -> None:
        super().__init__()
        self._target, self._cluster, self._stream = target, cluster, stream
        self._turns: dict[str, _Turn] = {}
        self._known: dict[str, tuple[Table, Mapping[str, Any]]] = {}  # with the identity of its index
        self.names = Names(Naming(is_flat=True, fold=str.lower, takes_column=_is_field))
        if self._cluster.ask("GET", f"/{target.progress_index}", expected=(404,))[0] == 404:
            self._make(target.progress_index, {"mappings": {"dynamic": False}, "settings": dict(target.settings)})

    # -- progress ---------------------------------------------------------------------------------------------------------

    def load(self, table: str) -> str | None:
        """Begins a turn: all documents of the table have lower versions, and who wrote them is refused from now on."""
        found = self._stored(table)
        source: dict[str, Any] = {"turn": 0, "progress": None} if found is None else found["_source"]
        number, text = int(source["turn"]) + 1, source["progress"]
        self._turns[table] = _Turn(number, *self._store(table, found, number, text))
        return None if text is None else str(text)

    def _stored(self, table: str) -> dict[str, Any] | None:
        status, answer = self._cluster.ask("GET", self._place(table), expected=(404,))
        return None if status == 404 else dict(answer)

    def _store(self, table: str, found: Mapping[str, Any] | None, turn: int, text: str | None) -> tuple[int, int]:
        """Put the progress in the stead of what was found; by what the next one is put in its stead."""
        only = "op_type=create" if found is None else f"if_seq_no={found['_seq_no']}&if_primary_term={found['_primary_term']}"
        body = {"stream": self._stream, "table": table, "turn": turn, "progress": text}
        status, answer = self._cluster.ask("PUT", f"{self._place(table)}?{only}", body, expected=(409,))
        if status == 409:
            raise conflict("another writer of this stream has begun or committed since")
        return int(answer["_seq_no"]), int(answer["_primary_term"])

    def _place(self, table: str) -> str:
        return f"/{self._target.progress_index}/_doc/{quote(f'{self._stream}/{table}', safe='')}"

    def write(self, made: Sequence[TableState], old: str | None, new: str, table: str) -> None:
        turn = self._turns[table]
        self.check_turn(table)
        for state in made:
            index = self._prepare(state.table)
            if index is None:
                continue  # a table that was emptied before anything was put into it
            if state.is_emptied:
                self._empty(index, state, turn.number)
            self._bulk(state, list(self._items(index, state, turn.number)))
        found = {"_seq_no": turn.seq_no, "_primary_term": turn.term}
        self._turns[table] = _Turn(turn.number, *self._store(table, found, turn.number, new))

    def check_turn(self, table: str) -> None:
        """That nobody else has begun to write the table. Who begins later than this has higher versions."""
        found, turn = self._stored(table), self._turns[table]
        if found is None or (found["_seq_no"], found["_primary_term"]) != (turn.seq_no, turn.term):
            raise conflict("another writer of this stream has begun or committed since")

    # -- documents --------------------------------------------------------------------------------------------------------

    def _items(self, index: str, state: TableState, version: int) -> Iterator[_Item]:
        unfit: list[tuple[Key, str]] = []
        for key, row in state.rows.items():
            try:
                meta = _meta(index, _id(key), version)
                if row is None:
                    yield _Item(key, _lines({"delete": meta}))
                    continue
                for value in row:
                    if type(value) in NO_TYPE:
                        NO_TYPE[type(value)](value)
                text = self._encoded(Row(row, state.table.names))
                if "\n" in text:
                    raise ValueError("encode made several lines of it")
                yield _Item(key, _lines({"index": meta}) + text.encode() + b"\n")
            except UnicodeEncodeError:
                unfit.append((key, "text that is none in UTF-8"))
            except ValueError as error:
                unfit.append((key, str(error)))
        if unfit:
            raise self._unfit(state, unfit)

    def _encoded(self, row: Row) -> str:
        try:
            return self._target.encode(row)
        except CanalError:
            raise
        except Exception as error:
            raise ValueError(f"encode raises {type(error).__name__}") from error

    def _empty(self, index: str, state: TableState, version: int) -> None:
        """Delete each document that no row takes the stead of, with a version as all else: a late writer's stay away.

        So are those that this commit itself would have put before: a late writer may have them in hand.
        """
        kept = {_id(key) for key, row in state.rows.items() if row is not None}
        before = dict.fromkeys(one for one in _ids_of(state) if one not in kept)
        self._bulk(state, [_Item(None, _lines({"delete": _meta(index, one, version)})) for one in before])
        self._cluster.ask("POST", f"/{index}/_refresh")
        path = f"/{index}/_search?scroll=5m&allow_partial_search_results=false"
        _, page = self._cluster.ask("POST", path, {"size": _SCAN, "_source": False, "sort": ["_doc"]})
        while hits := page["hits"]["hits"]:
            ids = [hit["_id"] for hit in hits if hit["_id"] not in kept]
            self._bulk(state, [_Item(None, _lines({"delete": _meta(index, one, version)})) for one in ids])
            _, page = self._cluster.ask("POST", "/_search/scroll", {"scroll": "5m", "scroll_id": page["_scroll_id"]})
        self._cluster.ask("DELETE", "/_search/scroll", {"scroll_id": [page["_scroll_id"]]}, expected=(404,))

    def _bulk(self, state: TableState, items: Sequence[_Item]) -> None:
        unfit: list[tuple[Key, str]] = []
        for some in _slices(items, self._target.bulk_bytes):
            unfit += self._sent(some)
        if unfit:
            raise self._unfit(state, unfit)

    def _sent(self, items: Sequence[_Item]) -> list[tuple[Key, str]]:
        """Which of them the cluster will never take, and why; the others are durable."""
        found = "errors,items.*.status,items.*.result,items.*.error.type,items.*.error.reason"
        path = f"/_bulk?filter_path={found}&refresh={str(self._target.refresh).lower()}"
        status, answer = self._cluster.ask("POST", path, b"".join(item.lines for item in items), expected=(413, 429))
        if status == 413 and len(items) == 1 and items[0].key is not None:
            return [(items[0].key, "a document that is too large")]
        if status != 200:
            raise TargetError(f"{self._cluster.what} answers {status} to a bulk request", remedy="Lower bulk_bytes, or wait.")
        answers = answer.get("items", [])
        if len(answers) != len(items):
            raise TargetError(f"{self._cluster.what} tells of {len(answers)} of {len(items)} items of a bulk request")
        unfit = []
        for item, told in zip(items, answers):
            ((op, result),) = told.items()
            if why := self._failed(op, result):
                if item.key is None:
                    raise TargetError(f"{self._cluster.what} does not delete a document: {why}")
                unfit.append((item.key, why))
        return unfit

    def _failed(self, op: str, result: Mapping[str, Any]) -> str:
        """Why an item's document can never be taken; "" where it is written."""
        status, error = int(result["status"]), result.get("error")
        if error is None and (status < 300 or status == 404 and op == "delete"):  # what is not there is deleted
            return ""
        kind = error.get("type", "") if error else ""
        if status == 409:
            raise conflict("a later writer has written a document of the table")
        if status == 400:
            field = re.search(r"field \[([^\]]*)\]", error.get("reason", "") if error else "")  # it may quote a value
            return f"{kind}, field {field[1]}" if field else kind
        if kind == "index_not_found_exception":
            raise TargetSchemaError("the index is gone", remedy="Make it anew, and let the table be copied again.")
        raise TargetError(f"{self._cluster.what} answers {status} {kind} to an item", remedy="Mend that; nothing is lost.")

    def _unfit(self, state: TableState, unfit: Sequence[tuple[Key, str]]) -> UnfitChangeError:
        changes = tuple(change for key, _ in unfit for change in state.of_key(key))
        return UnfitChangeError(
            f"the target cannot hold a row of {state.table.name}: {unfit[0][1]}",
            position=changes[-1].origin.position if changes else None,
            changes=changes,
            remedy="Give the index fields that fit, let a rule change the value, or park it by on_unfit.",
        )

    # -- indices ----------------------------------------------------------------------------------------------------------

    def _prepare(self, table: Table) -> str | None:
        """The index of a table, with fields for all columns; None: there is none, and nothing to put into it."""
        index = f"{self._target.prefix}{table.name}".lower()
        known = self._known.get(table.name)
        if known is not None and self._identity(index) != known[1]:
            raise TargetSchemaError("the index is gone", remedy="Make it anew, and let the table be copied again.")
        if known is not None and known[0] is table:
            return index
        if not re.fullmatch(r'[^-_+.\\/*?"<>| ,#:][^\\/*?"<>| ,#:]*', index) or len(index.encode()) > 255:
            raise ConfigError(f"{index} is no name of an index", remedy=_RENAME)
        fields = {column.name: _field(column) for column in table.columns}
        status, answer = self._cluster.ask("GET", f"/{quote(index)}", expected=(404,))
        if status == 404:
            if not fields:
                return None
            if not self._target.create:
                raise TargetSchemaError(f"there is no index {index}", remedy="Make it, or give the target create=True.")
            settings = {"index.gc_deletes": "1h", **self._target.settings}
            self._make(index, {"mappings": {"properties": fields}, "settings": settings})
        else:
            self._check(index, fields, answer)
        if table.columns:
            self._known[table.name] = table, self._identity(index)
        return index

    def _identity(self, index: str) -> Mapping[str, Any]:
        """What no other index of that name has; of an alias those of its indices."""
        status, answer = self._cluster.ask("GET", f"/{quote(index)}/_settings/index.uuid", expected=(404,))
        return {} if status == 404 else dict(answer)

    def _check(self, index: str, fields: Mapping[str, Any], found: Mapping[str, Any]) -> None:
        """Add the fields that an index lacks; an alias has several indices."""
        theirs = [one.get("mappings", {}).get("properties", {}) for one in found.values()]
        lacking = {name: field for name, field in fields.items() if any(name not in one for one in theirs)}
        if any(one["settings"]["index"].get("translog", {}).get("durability", "").lower() == "async" for one in found.values()):
            log.warning("%s forgets in a crash what it has confirmed: translog.durability of %s is async", self._target, index)
        if lacking and self._target.schema == "refuse":
            remedy = 'Add fields, or give the target schema="add".'
            raise TargetSchemaError(f"the index {index} lacks {', '.join(lacking)}", remedy=remedy)
        if lacking:
            self._cluster.ask("PUT", f"/{quote(index)}/_mapping", {"properties": lacking})

    def _make(self, index: str, body: Mapping[str, Any]) -> None:
        status, answer = self._cluster.ask("PUT", f"/{quote(index)}", body, expected=(400,))
        if status == 400 and answer != "resource_already_exists_exception":
            count = len(body["mappings"].get("properties", {}))
            more = f' It has {count} fields: give settings={{"index.mapping.total_fields.limit": {2 * count}}}.'
            remedy = f"Make it, or give other settings.{more if count >= _MOST_FIELDS else ''}"
            raise TargetSchemaError(f"the index {index} cannot be made: {answer}", remedy=remedy)


#: Fields that an index has by default, at most.
_MOST_FIELDS: Final = 1000
#: What a document has beside its fields.
_METADATA: Final = frozenset(
    {
        "_id",
        "_source",
        "_index",
        "_routing",
        "_version",
        "_type",
        "_field_names",
        "_ignored",
        "_nested_path",
        "_seq_no",
        "_primary_term",
        "_size",
        "_doc_count",
        "_tier",
        "_meta",
        "_feature",
        "_data_stream_timestamp",
        "_recovery_source",
    }
)


def _is_field(name: str) -> bool:
    """Whether a field of a document can be called so; a dot makes an object of what is before it."""
    return name not in _METADATA and all(part.strip() for part in name.split("."))


_RENAME: Final = 'Give the table another name by canal.Rule(to="…").'


def _field(column: ColumnSchema) -> Mapping[str, Any]:
    base = column.base_type
    if column.charset == "binary" and base not in ("json", "geometry", "uuid", "inet4", "inet6"):
        return _FIELDS.get(base, {"type": "binary"})
    return _FIELDS.get(f"{base} unsigned" if column.unsigned else base) or _FIELDS.get(base) or {"type": "keyword"}


def _id(key: Key) -> str:
    """The id of a document.

    Raises:
        ValueError: there is none for this key.
    """
    texts = (base64.b64encode(one).decode() if isinstance(one, bytes) else TEXTS.get(type(one), str)(one) for one in key)
    text = ":".join(one.replace("\\", "\\\\").replace(":", "\\:") for one in texts)
    if not 0 < len(text.encode()) <= _ID:
        raise ValueError(f"a key of {len(text.encode())} bytes: an id has 1 to {_ID}")
    return text


def _ids_of(state: TableState) -> Iterator[str]:
    """The ids of all keys that changes touch."""
    for change in state.changes:
        for row in (change.before, change.after):
            if row is not None:
                with suppress(ValueError):  # no document has such a key
                    yield _id(change.key_of(row))


def _meta(index: str, name: str, version: int) -> dict[str, Any]:
    return {"_index": index, "_id": name, "version": version, "version_type": "external_gte"}


def _lines(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, ensure_ascii=False).encode() + b"\n"


def _slices(items: Sequence[_Item], size: int) -> Iterator[list[_Item]]:
    """Slices of about so many bytes."""
    some: list[_Item] = []
    total = 0
    for item in items:
        if some and total + len(item.lines) > size:
            yield some
            some, total = [], 0
        some.append(item)
        total += len(item.lines)
    if some:
        yield some
