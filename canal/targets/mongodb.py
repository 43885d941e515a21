"""MongoDB: rows as documents, with the progress in the same transaction where the server has those.

Never rounds a value, and never passes over a document that was not written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final, Literal
from urllib.parse import urlsplit

import attrs

from canal._util.option_checks import text
from canal.changes import Table, TableState
from canal.changes.latest import Key, Values
from canal.errors import ConfigError, ConnectionLostError, TargetError, TargetSchemaError, UnfitChangeError
from canal.rows.values import InvalidJson
from canal.schema import ColumnSchema
from canal.targets.protocol import Guarantee, Scope
from canal.targets.tables import need
from canal.targets.values import NO_TYPE, TEXTS, plain_text
from canal.targets.work import StateWork, closed, conflict

#: Digits of a Decimal128, and of the fraction of a second in a date, at most.
_DIGITS: Final = 34
_FRACTION: Final = 3
#: Keys in one condition, at most.
_SLICE: Final = 1000
#: Codes of errors that tell of the document: two of one unique key, validation, names of fields, size.
_DUPLICATE: Final = 11000
_UNFIT: Final = {
    _DUPLICATE: "another document has its values of a unique index",
    121: "the validation of the collection refuses it",
    2: "a name or value that the server refuses",
    52: "a name that begins with $",
    57: "a name with a dot",
    10334: "it is too large",
    17280: "a value that is too large for an index",
}
_WRITE_CONFLICT: Final = 112
_RENAME: Final = 'Give the table another name by canal.Rule(to="…").'


@attrs.frozen
class MongoDBTarget:
    """MongoDB 4.4 or later, or what speaks its protocol; a table is a collection, a row a document.

    ``shop.orders`` is the collection orders of the database shop. A document has the columns as fields, in their order, behind
    an ``_id`` that is the value of the key, or of several key columns a document of them. It is replaced as a whole.

    Integers beyond 63 bits and DECIMAL are Decimal128; DECIMAL of more than 34 digits is text. DATE is midnight UTC; DATETIME
    (as if it were UTC) and TIMESTAMP are dates, but text with more than three digits of a fraction, which a date does not hold.
    TIME, ENUM, SET and JSON are text; JSON that the instance gives as objects is documents and arrays.

    Args:
        url: as pymongo takes it: ``mongodb://user:password@host1,host2/?replicaSet=rs0``, ``mongodb+srv://…``.
        transactions: all tables of a message and the progress are one transaction: exactly once, on replica sets and sharded
            clusters. Without it each table is written by itself, and its progress behind it.
        database: of the progress, in its collection ``canal_progress``; and of tables whose name has no schema.
        decimals: "decimal128", or "text" for servers that have no such type.
        timeout: seconds to wait for a server, an answer, and a majority of a replica set.
        options: more arguments of ``pymongo.MongoClient``, such as ``tlsCAFile``.
    """

    url: str = attrs.field(repr=False, validator=text)
    transactions: bool = attrs.field(default=False, kw_only=True)
    database: str = attrs.field(default="canal", kw_only=True)
    decimals: Literal["decimal128", "text"] = attrs.field(default="decimal128", kw_only=True)
    timeout: float = attrs.field(default=60.0, kw_only=True)
    options: Mapping[str, Any] = attrs.field(factory=dict, kw_only=True, repr=False)

    is_log = False
    #: JSON that the instance gives as objects comes as such.
    takes_objects = True

    def __attrs_post_init__(self) -> None:
        if not re.match(r"mongodb(\+srv)?://[^/]", self.url):
            raise ConfigError("the url of a MongoDBTarget is mongodb://host:27017/ or mongodb+srv://host/")
        if self.decimals not in ("decimal128", "text") or not self.timeout > 0:
            raise ConfigError('decimals is "decimal128" or "text", and timeout more than 0 seconds')

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee.ONCE if self.transactions else Guarantee.REPEATABLE

    @property
    def scope(self) -> Scope:
        return "all" if self.transactions else "table"

    def __str__(self) -> str:
        return f"MongoDB {urlsplit(self.url).netloc.rpartition('@')[2]}"

    @contextmanager
    def begin(self, stream: str) -> Iterator[MongoDBWork]:
        pymongo = need("pymongo", "mongodb")
        waits = dict.fromkeys(("serverSelectionTimeoutMS", "connectTimeoutMS", "socketTimeoutMS"), int(self.timeout * 1000))
        try:
            client = pymongo.MongoClient(self.url, **{**waits, "appname": "canal-cdc", **self.options})
        except (pymongo.errors.PyMongoError, TypeError, ValueError, OSError) as error:
            raise ConfigError(f"pymongo does not take the url or options of {self}: {type(error).__name__}") from error
        with closed(client):
            with _understood(f"{self}"):
                hello = client.admin.command("hello")
            is_cluster = "setName" in hello or hello.get("msg") == "isdbgrid"
            if self.transactions and not (is_cluster and hello.get("logicalSessionTimeoutMinutes")):
                raise ConfigError(
                    f"{self} has no transactions: it is no replica set and no sharded cluster",
                    remedy="Make it a replica set, which may have one member, or leave transactions=True out.",
                )
            yield MongoDBWork(self, client, stream, is_cluster=is_cluster, largest=int(hello["maxBsonObjectSize"]))


@contextmanager
def _understood(what: str) -> Iterator[None]:
    """What errors of pymongo mean; their texts may quote values."""
    from pymongo import errors

    try:
        yield
    except errors.ConnectionFailure as error:
        raise ConnectionLostError(f"the connection to {what} broke: {type(error).__name__}") from error
    except errors.InvalidName as error:
        raise ConfigError(f"{error} in a name of {what}", remedy=_RENAME) from error
    except errors.PyMongoError as error:
        code = getattr(error, "code", None)
        if code == _WRITE_CONFLICT:
            raise conflict("another writer changes what is to be written") from error
        said = type(error).__name__ if code is None else f"{type(error).__name__}, code {code}"
        raise TargetError(f"{what} refuses: {said}", remedy="See what that means; nothing is lost.") from error


@attrs.frozen
class _Batch:
    """What is to be done to a collection."""

    state: TableState
    collection: Any
    ids: Mapping[Key, Any]
    documents: Mapping[Key, Any]
    """Of the rows that are put."""
    is_unique: bool
    """Whether there are unique indexes: rows are deleted and put anew, so that their values may change places."""


class MongoDBWork(StateWork):
    def __init__(self, target: MongoDBTarget, client: Any, stream: str, *, is_cluster: bool, largest: int) -> None:
        super().__init__()
        self._target, self._client, self._stream, self._largest = target, client, stream, largest
        self._owners: dict[str, str] = {}
        self._known: dict[str, tuple[Table, Sequence[_Adapter]]] = {}
        level = "majority" if is_cluster else None  # what a failover would take back is no progress
        self._progress = self._collection(target.database, "canal_progress", level)

    def _collection(self, database: str, name: str, level: str | None = None) -> Any:
        """A collection that is read at the primary, and whose writes are durable when they are confirmed."""
        from bson.codec_options import CodecOptions
        from pymongo import ReadPreference, WriteConcern
        from pymongo.read_concern import ReadConcern

        durable = WriteConcern("majority", j=True, wtimeout=int(self._target.timeout * 1000))
        with _understood(f"{self._target}"):
            return self._client.get_database(database).get_collection(
                name, CodecOptions(), ReadPreference.PRIMARY, durable, ReadConcern(level)
            )

    # -- progress ---------------------------------------------------------------------------------------------------------

    def load(self, table: str) -> str | None:
        with _understood(f"{self._target}"):
            found = self._progress.find_one({"_id": self._id_of_progress(table)})
        return None if found is None else str(found["progress"])

    def _id_of_progress(self, table: str) -> Mapping[str, str]:
        return {"stream": self._stream, "table": table}

    def _claim(self, old: str | None, new: str, table: str, session: Any) -> None:
        from pymongo.errors import DuplicateKeyError

        name = self._id_of_progress(table)
        if old is not None:
            done = self._progress.update_one({"_id": name, "progress": old}, {"$set": {"progress": new}}, session=session)
            if done.matched_count != 1:
                raise conflict()
            return
        try:
            self._progress.insert_one({"_id": name, "progress": new}, session=session)
        except DuplicateKeyError as error:
            raise conflict() from error

    # -- rows -------------------------------------------------------------------------------------------------------------

    def write(self, made: Sequence[TableState], old: str | None, new: str, table: str) -> None:
        batches = [self._batch(state) for state in made]
        with _understood(f"{self._target}"):
            if not self._target.transactions:
                if self.load(table) != old:
                    raise conflict()
                for batch in batches:
                    self._put(batch, None)
                self._claim(old, new, table, None)
                return
            with self._transaction() as session:
                self._claim(old, new, table, session)  # first: whoever comes second finds it taken
                for batch in batches:
                    self._put(batch, session)

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        """A session in a transaction. After an interrupt the server ends it by itself: the client may hold a lock of its own."""
        from pymongo import ReadPreference
        from pymongo.errors import PyMongoError
        from pymongo.read_concern import ReadConcern

        session = self._client.start_session()
        session.start_transaction(ReadConcern("snapshot"), self._progress.write_concern, ReadPreference.PRIMARY)
        try:
            yield session
            session.commit_transaction()
        except Exception:
            with suppress(PyMongoError):
                session.abort_transaction()
            session.end_session()
            raise
        session.end_session()

    def _batch(self, state: TableState) -> _Batch:
        collection, adapters = self._prepare(state.table)
        ids: dict[Key, Any] = {}
        documents: dict[Key, Any] = {}
        unfit: list[tuple[Key, str]] = []
        for key, row in state.rows.items():
            try:
                ids[key] = self._id(state.table, key)
                if row is not None:
                    documents[key] = self._document(state.table, ids[key], row, adapters)
            except ValueError as error:
                unfit.append((key, str(error)))
        if unfit:
            raise self._unfit(state, unfit)
        with _understood(f"{self._target}"):
            is_unique = any(index.get("unique") for index in collection.index_information().values())
        return _Batch(state, collection, ids, documents, is_unique)

    def _put(self, batch: _Batch, session: Any) -> None:
        from pymongo import DeleteOne, InsertOne, ReplaceOne
        from pymongo.errors import BulkWriteError

        ids, documents = batch.ids, batch.documents
        is_anew = batch.state.is_emptied or batch.is_unique
        if batch.state.is_emptied:
            batch.collection.delete_many({}, session=session)
        elif batch.is_unique:
            for some in _slices(list(ids.values())):
                batch.collection.delete_many({"_id": {"$in": some}}, session=session)
        keys = [key for key in ids if key in documents or not is_anew]
        wanted: list[Any] = []
        for key in keys:
            if is_anew:
                wanted.append(InsertOne(documents[key]))
            elif key in documents:
                wanted.append(ReplaceOne({"_id": ids[key]}, documents[key], upsert=True))
            else:
                wanted.append(DeleteOne({"_id": ids[key]}))
        try:
            if wanted:
                batch.collection.bulk_write(wanted, ordered=False, session=session)
        except BulkWriteError as error:
            raise self._failed(batch.state, keys, error.details) from error

    def _failed(self, state: TableState, keys: Sequence[Key], details: Mapping[str, Any]) -> Exception:
        """What is raised for operations of which some failed."""
        errors = details.get("writeErrors", ())
        codes = {int(error["code"]) for error in errors}
        if _WRITE_CONFLICT in codes or any(_is_of_id(error) for error in errors):
            return conflict("another writer changes what is to be written")
        if other := codes - _UNFIT.keys():
            return TargetError(f"{self._target} refuses documents: code {min(other)}", remedy="Mend that; nothing is lost.")
        if not errors:
            return TargetError(f"{self._target} does not confirm what it wrote", remedy="See that a majority of it is up.")
        return self._unfit(state, [(keys[error["index"]], _UNFIT[error["code"]]) for error in errors])

    def read(self, table: Table, keys: Sequence[Key]) -> Mapping[Key, Values]:
        from bson import encode
        from bson.errors import BSONError

        collection, _ = self._prepare(table)
        wanted: dict[bytes, tuple[Key, Any]] = {}
        for key in keys:
            with suppress(ValueError, BSONError):  # it is unfit, which the commit finds
                name = self._id(table, key)
                wanted[encode({"_id": name})] = key, name
        found: dict[Key, Values] = {}
        with _understood(f"{self._target}"):
            for some in _slices([name for _, name in wanted.values()]):
                for document in collection.find({"_id": {"$in": some}}):
                    if (known := wanted.get(encode({"_id": document["_id"]}))) is not None:
                        key, own = known[0], dict(zip(table.keys, known[0]))
                        found[key] = tuple(own[name] if name in own else document.get(name) for name in table.names.names)
        return found

    # -- documents --------------------------------------------------------------------------------------------------------

    def _id(self, table: Table, key: Key) -> Any:
        _, adapters = self._known_of(table)
        parts = {name: adapters[table.names.index(name)](value) for name, value in zip(table.keys, key)}
        return next(iter(parts.values())) if len(parts) == 1 else parts

    def _document(self, table: Table, name: Any, row: Values, adapters: Sequence[_Adapter]) -> Any:
        """The document of a row, encoded.

        Raises:
            ValueError: there is none.
        """
        from bson import encode
        from bson.errors import BSONError
        from bson.raw_bson import RawBSONDocument

        values = {column: adapter(value) for column, adapter, value in zip(table.names.names, adapters, row)}
        try:
            raw = encode({"_id": name, **values})
        except (BSONError, UnicodeEncodeError, OverflowError) as error:
            raise ValueError(f"a value that BSON does not have ({type(error).__name__})") from error
        if len(raw) > self._largest:
            raise ValueError(f"a document of {len(raw)} bytes: one has {self._largest} at most")
        return RawBSONDocument(raw)

    def _unfit(self, state: TableState, unfit: Sequence[tuple[Key, str]]) -> UnfitChangeError:
        changes = tuple(change for key, _ in unfit for change in state.of_key(key))
        return UnfitChangeError(
            f"the target cannot hold a row of {state.table.name}: {unfit[0][1]}",
            position=changes[-1].origin.position if changes else None,
            changes=changes,
            remedy="Let a rule change the value, mend the indexes and validation of its collection, or park it by on_unfit.",
        )

    def _prepare(self, table: Table) -> tuple[Any, Sequence[_Adapter]]:
        """The collection of a table, and what makes values of its columns."""
        database, dot, name = table.name.partition(".")
        if not dot:
            database, name = self._target.database, table.name
        owner = self._owners.setdefault(f"{database}.{name}", table.name)
        if owner != table.name or (database, name) == (self._target.database, "canal_progress"):
            raise ConfigError(f"{database}.{name} is the collection of something else than {table.name}", remedy=_RENAME)
        return self._collection(database, name), self._known_of(table)[1]

    def _known_of(self, table: Table) -> tuple[Table, Sequence[_Adapter]]:
        known = self._known.get(table.name)
        if known is None or known[0] is not table:
            for column in table.columns:
                odd = column.name == "_id" and table.keys != ("_id",)
                if odd or column.name.startswith("$") or "." in column.name or "\0" in column.name:
                    remedy = "Give it another one by canal.Rule(rename=…)."
                    raise TargetSchemaError(f"{column.name} of {table.name} is no name of a field", remedy=remedy)
            known = self._known[table.name] = table, [_adapter(column, self._target.decimals) for column in table.columns]
        return known


_Adapter = Callable[[Any], Any]


def _is_of_id(error: Mapping[str, Any]) -> bool:
    """Whether it is that somebody else has put a document with the same key meanwhile."""
    is_named = error.get("keyPattern") == {"_id": 1} or "index: _id_" in error.get("errmsg", "")
    return error["code"] == _DUPLICATE and is_named


def _slices(keys: Sequence[Any]) -> Iterator[Sequence[Any]]:
    return (keys[begin : begin + _SLICE] for begin in range(0, len(keys), _SLICE))


# -- values --------------------------------------------------------------------------------------------------------------


def _adapter(column: ColumnSchema, decimals: str) -> _Adapter:
    """What makes a value of BSON of a column's values; it raises ValueError of one that BSON does not have."""
    number = re.search(r"\((\d+)", column.column_type)
    digits, base = int(number[1]) if number else 0, column.base_type
    is_text = base in ("datetime", "timestamp") and digits > _FRACTION or base == "decimal" and digits > _DIGITS
    adapters: dict[type, _Adapter] = {
        **NO_TYPE,
        int: _integer,
        Decimal: _decimal,
        datetime: _moment,
        date: _day,
        timedelta: TEXTS[timedelta],
        InvalidJson: plain_text,
    }
    if decimals == "text":
        adapters |= {int: lambda value: value if _is_int64(value) else str(value), Decimal: TEXTS[Decimal]}
    if is_text:
        adapters |= {datetime: TEXTS[datetime], Decimal: TEXTS[Decimal]}

    def adapt(value: Any) -> Any:
        if type(value) is dict:
            return {name: adapt(one) for name, one in value.items()}
        if type(value) is list:
            return [adapt(one) for one in value]
        adapter = adapters.get(type(value))
        return value if adapter is None else adapter(value)

    return adapt


def _is_int64(value: int) -> bool:
    return -(1 << 63) <= value < 1 << 63


def _integer(value: int) -> Any:
    return value if _is_int64(value) else _decimal(Decimal(value))


def _decimal(value: Decimal) -> Any:
    from bson.decimal128 import Decimal128

    try:
        return Decimal128(value)
    except ArithmeticError as error:
        raise ValueError(f"a number of more than {_DIGITS} digits") from error


def _moment(value: datetime) -> datetime:
    if value.microsecond % 1000:
        raise ValueError("a moment with a fraction of more than three digits")
    return value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)


def _day(value: date) -> datetime:
    return datetime(value.year, value.month, value.day)
