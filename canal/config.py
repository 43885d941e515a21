"""The options of an Instance, checked on construction. Opens no connection."""

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
        if isinstance(value, str) and "://" in value:  # do not show a URL: it may contain a password
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
    """Check that all processes of a destination share the stored state.

    Raises:
        ConfigError: ``meta`` or a history is local to one process. A MemoryHistory is allowed: each active turn clears it.
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
    """One source of a :class:`canal.Group`, with its options: see :class:`canal.InstanceConfig`."""

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
        members: maps the names used in cursors to the members.
        order, idle_after, stalled_after, on_stalled: see :class:`canal.parse.GroupParser`.
    """

    members: Mapping[str, Member] = attrs.field(validator=_check_members)
    order: Literal["time", "arrival"] = "time"
    idle_after: float = 3.0
    stalled_after: float = 60.0
    on_stalled: Literal["wait", "go_on"] = "wait"

    def __attrs_post_init__(self) -> None:
        check_merging(self.order, self.idle_after, self.stalled_after, self.on_stalled)


#: Options that each member of a group sets separately.
OF_MEMBERS: Final = ("source", "start", "standby", "standby_start", "schema_history")


def _default_meta(config: InstanceConfig) -> MetaManager:
    return MemoryMeta() if config.ha is None else ZooKeeperMeta(config.ha)


@checks_names({"tables": "filter, or canal.connect(…, tables=)", "host": "source=canal.MySQLSource(host=…)"})
@attrs.frozen(kw_only=True)
class InstanceConfig:
    """The options of an :class:`~canal.Instance`.

    Args:
        destination: name of the instance. It is the key of its cursors and part of every log line.
        source: :class:`canal.MySQLSource`, :class:`canal.LocalBinlogSource`, :class:`canal.testing.FakeBinlog`, or a
            :class:`canal.Group`. Group members set ``start``, ``standby`` and ``schema_history`` individually.
        filter: tables to deliver, in canal's syntax: comma-separated regular expressions, each matched against the complete
            ``schema.table``, case-insensitive. Empty: all tables. A statement passes if any table in it passes. A statement
            without tables is matched as ``schema.``.
        black_filter: tables to exclude, in the same syntax.
        field_filter, black_field_filter: columns to deliver or exclude, as ``schema.table:c1/c2,schema.other:c3``.
        mask: replaces column values: ``{"shop.users": {"email": canal.Mask.hmac(env="KEY")}}``, with tables in the syntax of
            ``filter``. Statement texts that may contain such values are withheld; see docs/masking.md.
        row_filter: ``(header, before, after) -> bool``; keeps a row change if it returns true.
        leave_out: kinds of changes to drop: "insert", "update", "delete" (rows); "ddl", "dml", "dcl" (statements, in canal's
            categories); "tableless": statements without a table, which canal never delivers, such as GRANT, CREATE VIEW and
            ALTER DATABASE.
        shadow_tables: also deliver the temporary tables of gh-ost and pt-online-schema-change, and the renames that swap
            them in; see docs/limits.md. By default a table is excluded if its name matches such a tool and the original table
            exists and passes the filters.
        sequences: also deliver MariaDB sequences, which the log has as tables. Each change is an INSERT.
        unknown_columns: policy for a table whose column names are unknown, because no source has them or a statement
            changed them in an unsupported way. "positions": name the columns @1, @2 and so on, treat unknown types as signed
            numbers and bytes, and raise an alarm. "error": stop the instance. "leave_out": drop the rows and raise an alarm.
        column_types: origin of numeric and geometry type names (``Column.mysql_type``) with binlog_row_metadata=FULL.
            "log": the log, without queries. It lacks display widths, ZEROFILL and ``point``. "history": complete names such
            as ``tinyint(1)``, as in canal. Tables are then queried and tracked in ``schema_history`` as without FULL. If a
            table cannot be tracked, a warning is logged and the log's type is used.
        start: start position without a stored cursor: "latest", "earliest" or a position. A position may have only a
            ``timestamp`` (milliseconds since 1970).
        standby: another server in the same replication topology. It is used if ``source`` fails, or after
            ``Instance.switch``.
        standby_start: like ``start``, for a first start at the standby.
        heartbeat: health check of the source. With a standby the default is every 3 s.
        on_lost: policy if the source has purged the log at the cursor. "fail" stops the instance. "earliest", "latest" and
            "time" (the cursor's time minus ``fallback_interval``) continue there, with an alarm that reports the gap.
        dump_error_threshold: number of retries at the source before ``on_lost`` applies, unless it is "fail".
        fallback_interval: seconds to go back if only a time identifies the position, as at a server without common GTIDs.
        log_positions: stores the parse position, for parsers without a store.
        ha: ZooKeeper coordination. One of several processes delivers; the others are standbys.
        meta: stores subscriptions and cursors. Default: ZooKeeper with ``ha``, else memory.
        schema_history: stores table columns by position, for sources without binlog_row_metadata=FULL or with
            ``column_types="history"``. Default: ZooKeeper with ``ha``, next to the cursors of a FileMeta, else memory.
        hooks: see :class:`canal.Hook`.
        time_zone: zone of TIMESTAMP values.
        json: "text" returns JSON as the server prints it. "objects" returns dict, list, str, int, float, bool and None, and
            SQL values inside documents (Decimal, date and so on) like columns of their types. A document ``null`` is None,
            like NULL. MariaDB stores JSON as text; invalid text, such as a duplicate member, is :class:`canal.InvalidJson`.
            For log files, a schema must declare the ``json`` columns.
        store_entries, store_bytes: maximum size of the store.
        slow_after: seconds to wait for room in the store before an alarm names the slow client.
        on_slow: policy for a client that holds up the others. "wait", or "evict": the store drops the client, which continues
            from its cursor over a private connection until it has caught up. The limit is the alarm's, or ``slow_entries``
            or ``slow_bytes`` in the store for this client alone.
        isolate_ddl: deliver each statement that changes a schema in a separate batch.
        whole_transactions: end batches at the end of a transaction. A transaction with more than ``batch_size`` row changes
            comes alone, and in pieces only if the store cannot hold it.
        batch_bytes: maximum size of a batch in bytes, as counted by the store; None: the store's size. A single entry or whole
            transaction may exceed it.
        empty_transaction_interval, empty_transaction_count: deliver one transaction without changes per this many seconds or
            transactions, so that cursors advance.
        reconnect_backoff: first and longest delay before a reconnect, in seconds.
        start_timeout: seconds that ``subscribe`` waits for the start position.
        alarm: called with (destination, message) for each problem that an operator should know, and again when it is solved.
            The message is a :class:`canal.AlarmMessage`.
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
        """The config of each group member, with a destination per member; empty for a single source."""
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
        """The filter from ``filter`` and ``black_filter``."""
        return TableFilter(self.filter, self.black_filter)

    def masks(self) -> Masks:
        """The masks from ``mask``."""
        return Masks(self.mask)

    def column_filter(self) -> FieldFilter:
        """The filter from ``field_filter`` and ``black_field_filter``."""
        return FieldFilter(self.field_filter, self.black_field_filter)
