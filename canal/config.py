"""The options of an Instance, checked when they are given.

Never connects to anything.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, tzinfo
from typing import Any, Final, Literal

import attrs

from canal._util.option_checks import not_negative, positive
from canal._util.option_names import checks_names
from canal.alarm import Alarm, log_alarm
from canal.errors import ConfigError
from canal.filter import FieldFilter, TableFilter
from canal.ha import Heartbeat
from canal.meta import FileMeta, MemoryMeta, MetaManager, ZooKeeperMeta
from canal.parse.group import check_merging, check_name
from canal.parse.log_positions import LogPositionManager, MemoryLogPositionManager
from canal.parse.options import ColumnTypes, UnknownColumns
from canal.parse.schema.history import FileHistory, MemoryHistory, SchemaHistory
from canal.parse.schema.zookeeper_history import ZooKeeperHistory
from canal.parse.source.protocol import Source
from canal.parse.start import ON_LOST, OnLost
from canal.position import Position
from canal.rows.mask import Mask, Masks
from canal.sink import Hook, Kind, LeaveOut, RowPredicate
from canal.zookeeper.session import ZooKeeper


def _check_destination(instance: object, attribute: object, value: Any) -> None:
    if not isinstance(value, str):
        raise ConfigError(f"destination must be a str, not {type(value).__name__}", remedy='Name it, as "example".')
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", value):
        raise ConfigError(f"destination {value!r}: letters, digits, '_', '-' and '.' only, 128 at most")


def check_start(instance: object, attribute: object, value: object) -> None:
    if not isinstance(value, Position) and value not in ("latest", "earliest"):
        raise ConfigError(
            f'start is "latest", "earliest" or a canal.Position, not {value!r}',
            remedy="For a position write canal.Position(journal=…, offset=…) or (gtid=…), "
            "for a time canal.Position(timestamp=milliseconds since 1970).",
        )
    if isinstance(value, Position) and not (value.journal or value.gtid or value.timestamp):
        raise ConfigError("start is a position that names no journal, GTID set or time")
    if isinstance(value, Position) and not value.is_concrete and 0 < value.timestamp < 100_000_000_000:
        raise ConfigError(f"timestamp {value.timestamp} is in 1973 or before", remedy="It counts milliseconds, not seconds.")


def _meets(protocol: Any, what: str) -> Any:
    def check(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
        if isinstance(value, str) and "://" in value:  # it is not shown, for it may have a password
            raise ConfigError(
                f"{attribute.name} must be {what}, not a URL",
                remedy="Use canal.MySQLSource.from_url(url), or canal.connect(url).",
            )
        if not isinstance(value, protocol):
            shown = repr(value) if value is None or isinstance(value, (str, int, float)) else type(value).__name__
            raise ConfigError(f"{attribute.name} must be {what}, not {shown}")

    return check


def _check_json(instance: object, attribute: object, value: object) -> None:
    if value not in ("text", "objects"):
        raise ConfigError(f'json is "text" or "objects", not {value!r}')


def _check_hooks(instance: object, attribute: object, value: object) -> None:
    if not isinstance(value, (list, tuple)) or not all(hasattr(hook, "before") and not isinstance(hook, type) for hook in value):
        raise ConfigError(f"hooks must be a list of canal.Hook objects, not {value!r}")


def _check_text(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if not isinstance(value, str):
        raise ConfigError(f"{attribute.name} must be a str, with commas between its parts, not {value!r}")


def _check_callable(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if not callable(value):
        raise ConfigError(f"{attribute.name} must be callable, not {value!r}")


def _check_backoff(instance: object, attribute: object, value: object) -> None:
    if (
        not isinstance(value, (tuple, list))
        or not all(isinstance(seconds, (int, float)) for seconds in value)
        or not (len(value) == 2 and 0 < value[0] <= value[1])
    ):
        raise ConfigError(f"reconnect_backoff must be (first, longest) in seconds, such as (0.1, 10.0), not {value!r}")


def _check_on_lost(instance: object, attribute: object, value: object) -> None:
    if value not in ON_LOST:
        raise ConfigError(f"on_lost is one of {', '.join(ON_LOST)}, not {value!r}")


def _check_unknown_columns(instance: object, attribute: object, value: object) -> None:
    if value not in ("positions", "error", "leave_out"):
        raise ConfigError(f'unknown_columns is "positions", "error" or "leave_out", not {value!r}')


def _check_column_types(instance: object, attribute: object, value: object) -> None:
    if value not in ("log", "history"):
        raise ConfigError(f'column_types is "log" or "history", not {value!r}')


def _check_on_slow(instance: object, attribute: object, value: object) -> None:
    if value not in ("wait", "evict"):
        raise ConfigError(f'on_slow is "wait" or "evict", not {value!r}')


def check_shared(meta: MetaManager, *histories: SchemaHistory | None) -> None:
    """What processes that take turns keep must be seen by each of them.

    Raises:
        ConfigError: it is one process's own. A MemoryHistory is allowed, which is forgotten at the begin of each turn.
    """
    if type(meta) in (MemoryMeta, FileMeta):
        raise ConfigError(
            f"with ha each process must see the cursors of the others, and {type(meta).__name__} is one process's own",
            remedy="Leave meta out, or use canal.ZooKeeperMeta, MixedMeta or PeriodMixedMeta.",
        )
    if any(type(history) is FileHistory for history in histories):
        raise ConfigError(
            "with ha each process must see what the others have followed of tables, and FileHistory is one process's own",
            remedy="Use canal.parse.ZooKeeperHistory, which a config with ha has by default.",
        )


_is_source = _meets(Source, "a source such as canal.MySQLSource")


def _is_source_or_group(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if not isinstance(value, Group):
        _is_source(instance, attribute, value)


def _check_members(instance: object, attribute: object, value: object) -> None:
    if not isinstance(value, Mapping) or not value:
        raise ConfigError(f"the members of a group are a mapping of names to canal.Member, not {value!r}")
    for name, member in value.items():
        check_name(name)
        if not isinstance(member, Member):
            raise ConfigError(f"member {name} is a canal.Member, not a {type(member).__name__}")


@checks_names()
@attrs.frozen(kw_only=True)
class Member:
    """One source of a :class:`canal.Group`, with the options that are its own: see :class:`canal.InstanceConfig`."""

    source: Source = attrs.field(validator=_is_source)
    start: str | Position = attrs.field(default="latest", validator=check_start)
    standby: Source | None = attrs.field(default=None, validator=attrs.validators.optional(_is_source))
    standby_start: str | Position = attrs.field(default="latest", validator=check_start)
    schema_history: SchemaHistory | None = attrs.field(
        default=None, validator=attrs.validators.optional(_meets(SchemaHistory, "such as canal.FileHistory(directory)"))
    )


@attrs.frozen
class Group:
    """Several sources in one store, as ``source`` of an :class:`canal.InstanceConfig`.

    Args:
        members: by the names by which cursors know them.
        order, idle_after, stalled_after, on_stalled: see :class:`canal.parse.GroupParser`.
    """

    members: Mapping[str, Member] = attrs.field(validator=_check_members)
    order: Literal["time", "arrival"] = "time"
    idle_after: float = 3.0
    stalled_after: float = 60.0
    on_stalled: Literal["wait", "go_on"] = "wait"

    def __attrs_post_init__(self) -> None:
        check_merging(self.order, self.idle_after, self.stalled_after, self.on_stalled)


#: Options of which each member of a group has its own.
OF_MEMBERS: Final = ("source", "start", "standby", "standby_start", "schema_history")


def _default_meta(config: InstanceConfig) -> MetaManager:
    return MemoryMeta() if config.ha is None else ZooKeeperMeta(config.ha)


@checks_names({"tables": "filter, or canal.connect(…, tables=)", "host": "source=canal.MySQLSource(host=…)"})
@attrs.frozen(kw_only=True)
class InstanceConfig:
    """Everything that makes an :class:`~canal.Instance`.

    Args:
        destination: name of the instance; the key of its cursors and part of every log line.
        source: :class:`canal.MySQLSource`, :class:`canal.LocalBinlogSource`, :class:`canal.testing.FakeBinlog`, or a
            :class:`canal.Group` of several, each with ``start``, ``standby`` and ``schema_history`` of its own.
        filter: tables to deliver, in canal's syntax: comma-separated regular expressions, each matched against the whole
            of ``schema.table`` without regard to case. Empty: all. A statement passes by any table that it names, or by
            ``schema.`` when it names none.
        black_filter: tables not to deliver, in the same syntax.
        field_filter, black_field_filter: columns to deliver or not, as ``schema.table:c1/c2,schema.other:c3``.
        mask: what becomes of columns' values: ``{"shop.users": {"email": canal.Mask.hmac(env="KEY")}}``, with tables in the
            syntax of ``filter``. Texts of statements that may hold them are withheld; docs/masking.md.
        row_filter: ``(header, before, after) -> bool``; keeps the row changes for which it is true.
        leave_out: kinds of changes not to deliver: "insert", "update", "delete" (rows); "ddl", "dml", "dcl" (statements, as
            canal sorts them); "tableless": statements that name no table, which canal never delivers, such as GRANT, CREATE VIEW
            and ALTER DATABASE.
        shadow_tables: also deliver the tables that gh-ost and pt-online-schema-change make beside the table that they
            alter, and the renames that put them in its place; see docs/limits.md. Without it a table is left out when it
            is named like one of theirs and the table that it would belong to exists and passes the filters.
        sequences: also deliver the rows of MariaDB's sequences, which it keeps as tables: an INSERT for each change of one.
        unknown_columns: what to do with rows of a table whose columns nobody knows: none that names them was given, or a
            statement of the log has changed them in a way that cannot be followed. "positions" names them @1, @2 and so on, with
            an alarm, and what the log does not tell of them is taken for signed numbers and bytes; "error" stops the instance;
            "leave_out" does not deliver its rows, with an alarm.
        column_types: where the texts of numeric and geometry types come from (``Column.mysql_type``) if the source writes
            binlog_row_metadata=FULL. "log": from it, which has no display width, no ZEROFILL and no ``point``; nobody is asked.
            "history": the whole text, such as ``tinyint(1)``, as canal gives it. The tables are looked up and followed then in
            ``schema_history``, as without FULL; of one that cannot be, a warning tells, and the text is that of the log.
        start: where to begin when no cursor is stored: "latest", "earliest" or a position, which may have only a
            ``timestamp`` (milliseconds since 1970).
        standby: another server of the same replication, read when ``source`` does not answer, or after
            ``Instance.switch``.
        standby_start: as ``start``, for a first start at the standby.
        heartbeat: how the source's health is watched; given a standby, by default every 3 s.
        on_lost: what to do when the source has no longer the log behind the cursor: "fail" stops the instance;
            "earliest", "latest" and "time" (the cursor's, less ``fallback_interval``) go on from there, with an alarm that
            names the gap.
        dump_error_threshold: before ``on_lost`` does anything but fail, the source is asked so many times again.
        fallback_interval: seconds to go back where only a time tells the position: another server without common GTIDs.
        log_positions: keeps where parsing stands; for parsers without a store behind them.
        ha: ZooKeeper, by which several processes that embed the destination take turns; one delivers, the others stand by.
        meta: keeps subscriptions and cursors: in memory when none is given, with ``ha`` in ZooKeeper.
        schema_history: keeps the columns of tables by position, where the source does not write
            binlog_row_metadata=FULL, or with
            ``column_types="history"``. Not given: with ``ha`` in ZooKeeper, beside the cursors of a FileMeta, else
            in memory.
        hooks: see :class:`canal.Hook`.
        time_zone: zone of TIMESTAMP values.
        json: "text" gives JSON as the server prints it, "objects" as dict, list, str, int, float, bool and None, with
            the SQL values that MySQL keeps in documents (Decimal, date and so on) as columns of their types give them.
            A document ``null`` is None then, as NULL is. MariaDB's JSON is text: what cannot be objects, such as one with a
            member twice, is :class:`canal.InvalidJson`; of files a schema must say which columns are ``json``.
        store_entries, store_bytes: what the store keeps at most.
        slow_after: seconds for which the reader waits for room in the store before an alarm names who holds it back.
        on_slow: what becomes of a client that holds the others back: "wait", or "evict": the store keeps nothing for it any
            more, and it reads on from its cursor over a connection of its own until it has caught up. It is held to do so
            when an alarm would name it, or when the store keeps more than ``slow_entries`` or ``slow_bytes`` for it alone.
        isolate_ddl: a statement that changes a schema comes in a batch of its own.
        whole_transactions: batches end where a transaction does. One of more than ``batch_size`` row changes comes alone, and
            in pieces only where the store has no room for all of it.
        batch_bytes: what a batch holds at most, in bytes as the store counts them; None: as much as the store. One entry, or
            one whole transaction, may be more.
        empty_transaction_interval, empty_transaction_count: of the transactions that the filters emptied, one is
            delivered after so many seconds or transactions, so that cursors move on.
        reconnect_backoff: seconds before the first attempt to reconnect, and before any later one at most.
        start_timeout: how long ``subscribe`` waits for the start position.
        alarm: called with (destination, message) about everything that an operator should know, once for each trouble and
            when it is over; the message is a :class:`canal.AlarmMessage`.
    """

    destination: str = attrs.field(validator=_check_destination)
    source: Source | Group = attrs.field(validator=_is_source_or_group)
    filter: str = attrs.field(default="", validator=_check_text)
    black_filter: str = attrs.field(default="", validator=_check_text)
    field_filter: str = attrs.field(default="", validator=_check_text)
    black_field_filter: str = attrs.field(default="", validator=_check_text)
    mask: Mapping[str, Mapping[str, Mask]] = attrs.field(factory=dict)
    row_filter: RowPredicate | None = attrs.field(default=None, validator=attrs.validators.optional(_check_callable))
    leave_out: Sequence[Kind] = attrs.field(default=(), validator=lambda _, __, value: LeaveOut(value))
    shadow_tables: bool = False
    sequences: bool = False
    unknown_columns: UnknownColumns = attrs.field(default="positions", validator=_check_unknown_columns)
    column_types: ColumnTypes = attrs.field(default="log", validator=_check_column_types)
    start: str | Position = attrs.field(default="latest", validator=check_start)
    standby: Source | None = attrs.field(default=None, validator=attrs.validators.optional(_is_source))
    standby_start: str | Position = attrs.field(default="latest", validator=check_start)
    heartbeat: Heartbeat | None = attrs.field(
        default=None, validator=attrs.validators.optional(_meets(Heartbeat, "a canal.Heartbeat"))
    )
    on_lost: OnLost = attrs.field(default="fail", validator=_check_on_lost)
    dump_error_threshold: int = attrs.field(default=2, validator=not_negative)
    fallback_interval: float = attrs.field(default=60.0, validator=not_negative)
    log_positions: LogPositionManager | None = attrs.field(
        default=None, validator=attrs.validators.optional(_meets(LogPositionManager, "a log position manager"))
    )
    ha: ZooKeeper | None = attrs.field(
        default=None, validator=attrs.validators.optional(_meets(ZooKeeper, 'such as canal.ZooKeeper(hosts="zk1:2181")'))
    )
    meta: MetaManager = attrs.field(
        default=attrs.Factory(_default_meta, takes_self=True), validator=_meets(MetaManager, "such as canal.FileMeta(directory)")
    )
    schema_history: SchemaHistory | None = attrs.field(
        default=None, validator=attrs.validators.optional(_meets(SchemaHistory, "such as canal.FileHistory(directory)"))
    )
    hooks: Sequence[Hook] = attrs.field(default=(), validator=_check_hooks)
    time_zone: tzinfo = attrs.field(default=UTC, validator=_meets(tzinfo, "a tzinfo such as zoneinfo.ZoneInfo(name)"))
    json: Literal["text", "objects"] = attrs.field(default="text", validator=_check_json)
    store_entries: int = attrs.field(default=1 << 16, validator=positive)
    store_bytes: int = attrs.field(default=64 << 20, validator=positive)
    slow_after: float = attrs.field(default=60.0, validator=positive)
    on_slow: Literal["wait", "evict"] = attrs.field(default="wait", validator=_check_on_slow)
    slow_entries: int | None = attrs.field(default=None, validator=attrs.validators.optional(positive))
    slow_bytes: int | None = attrs.field(default=None, validator=attrs.validators.optional(positive))
    isolate_ddl: bool = False
    whole_transactions: bool = False
    batch_bytes: int | None = attrs.field(default=None, validator=attrs.validators.optional(positive))
    empty_transaction_interval: float = attrs.field(default=5.0, validator=not_negative)
    empty_transaction_count: int = attrs.field(default=8192, validator=not_negative)
    reconnect_backoff: tuple[float, float] = attrs.field(default=(0.1, 10.0), validator=_check_backoff)
    start_timeout: float = attrs.field(default=30.0, validator=positive)
    alarm: Alarm = attrs.field(default=log_alarm, validator=_check_callable)

    def __attrs_post_init__(self) -> None:
        if self.ha is not None:
            check_shared(self.meta, self.schema_history)
        self.table_filter()
        self.column_filter()
        self.masks()
        if isinstance(self.source, Group):
            self._check_group()
            self.members()

    def _check_group(self) -> None:
        known = attrs.fields_dict(InstanceConfig)
        given = [name for name in (*OF_MEMBERS[1:], "log_positions") if getattr(self, name) != known[name].default]
        if given:
            raise ConfigError(f"of a group each member has its own {', '.join(given)}", remedy="Give canal.Member what it has.")
        if self.on_slow != "wait":
            raise ConfigError('on_slow is "wait" with a group: a client reads on by itself from one source only')

    def members(self) -> dict[str, InstanceConfig]:
        """The config of each member of a group, as of a destination of its own; none where there is one source."""
        if not isinstance(self.source, Group):
            return {}
        return {
            name: attrs.evolve(
                self,
                destination=f"{self.destination}.{name}",
                log_positions=MemoryLogPositionManager(),
                **{option: getattr(member, option) for option in OF_MEMBERS},
            )
            for name, member in self.source.members.items()
        }

    def history(self) -> SchemaHistory:
        """The schema history to use."""
        if self.schema_history is not None:
            return self.schema_history
        if self.ha is not None:
            return ZooKeeperHistory(self.ha)
        return FileHistory(self.meta.directory) if isinstance(self.meta, FileMeta) else MemoryHistory()

    def table_filter(self) -> TableFilter:
        """What ``filter`` and ``black_filter`` say."""
        return TableFilter(self.filter, self.black_filter)

    def masks(self) -> Masks:
        """What ``mask`` says."""
        return Masks(self.mask)

    def column_filter(self) -> FieldFilter:
        """What ``field_filter`` and ``black_field_filter`` say."""
        return FieldFilter(self.field_filter, self.black_field_filter)
