"""``canal.connect``: a started Instance with one subscribed client, in one call."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from typing import Any

from canal.config import InstanceConfig
from canal.errors import ConfigError, ConnectionLostError
from canal.filter import TableFilter
from canal.instance.instance import Instance
from canal.meta import FileMeta, MetaManager
from canal.parse.config_check import unmatched
from canal.parse.source.mysql import MySQLSource, database, parse_url
from canal.parse.source.protocol import Source, complete, source_info
from canal.position import Position


def connect(
    source: str | Source,
    *,
    tables: str | Sequence[str] = (),
    filter: str | None = None,
    start: str | Position = "latest",
    meta: MetaManager | str | os.PathLike[str] | None = None,
    destination: str = "",
    password: str | None = None,
    **options: Any,
) -> Instance:
    """Return a started :class:`canal.Instance` with one subscribed client. Leaving its ``with`` block stops it.

        with canal.connect("mysql://canal:secret@127.0.0.1/shop", tables="orders", meta="/var/lib/app/canal") as instance:
            for change in instance.changes():
                print(change.table, change.op, change.before, change.after)

    The call connects to the server once, so that a wrong address, password or table name raises here. Later the instance
    reconnects automatically.

    Args:
        source: ``mysql://user:password@host:port/database?option=value`` with the options of :class:`canal.MySQLSource`, or a
            source. If the URL names a database, only changes of this database are delivered.
        tables: names of the tables to deliver: "shop.orders", or "orders" if the URL names a database. A ``*`` matches any
            characters. Empty: all tables.
        filter: tables in the syntax of ``InstanceConfig.filter``, instead of ``tables`` and the URL's database. The tables need
            not exist yet.
        start: where to begin if no cursor is stored: "latest", "earliest" or a position.
        meta: directory or meta manager that stores the cursor. None: keep the cursor in memory, so that each start begins at
            ``start``.
        destination: name of the instance, under which the cursor is stored. Default: the URL's database, or "canal".
        password: the user's password, so that the URL need not contain it.
        options: other options of :class:`canal.InstanceConfig`.

    Raises:
        ConfigError: an option is wrong, or the user cannot see one of the ``tables``. The message lists similar names.
        AuthenticationError: the server refused the login.
        ConnectionLostError: the server cannot be reached.
        CanalError: another error that stops the reader, for example a purged start position.
    """
    schema = database(source) if isinstance(source, str) else ""
    if isinstance(tables, (bytes, Mapping)) or not isinstance(tables, Iterable):
        raise ConfigError(f"tables must be a name or several, not {tables!r}")
    names = [tables] if isinstance(tables, str) and tables else list(tables)
    if names and filter is not None:
        raise ConfigError("canal.connect accepts either tables or filter", remedy="Put all tables into filter.")
    found = _source(source, password)
    wanted = [_whole(name, schema) for name in names] or ([f"{schema}.*"] if schema else [])
    if meta is not None:
        options["meta"] = FileMeta(meta) if isinstance(meta, (str, os.PathLike)) else meta
    config = InstanceConfig(
        destination=destination or schema or "canal",
        source=found,
        start=start,
        filter=",".join(map(_pattern, wanted)) if filter is None else filter,
        **options,
    )
    _look(found, config.standby, wanted if filter is None else [])
    instance = Instance(config)
    try:
        instance.start()
        instance.subscribe()
    except BaseException:
        instance.stop()
        raise
    return instance


def _source(source: str | Source, password: str | None) -> Source:
    if isinstance(source, str):
        given: dict[str, Any] = {} if password is None else {"password": password}
        return MySQLSource(**parse_url(source), **given)
    if password is not None:
        raise ConfigError("password applies to a URL only", remedy="Pass the password to the source.")
    return source


def _whole(name: str, schema: str) -> str:
    """Return a table name with its database."""
    if not isinstance(name, str):
        raise ConfigError(f"each name in tables must be a str, not {type(name).__name__}")
    if "." not in name and not schema:
        raise ConfigError(
            f"neither the table name {name!r} nor the URL has a database", remedy=f"Write {f'shop.{name}'!r}, or mysql://…/shop."
        )
    return name if "." in name else f"{schema}.{name}"


def _pattern(name: str) -> str:
    """Return a table name as a pattern of ``InstanceConfig.filter``."""
    return re.escape(name).replace(r"\*", ".*").replace(",", r"\,")


def _look(source: Source, standby: Source | None, wanted: Sequence[str]) -> None:
    """Check address, login and table names against the source, or against the standby if the source does not answer."""
    try:
        connection = source.connect()
    except ConnectionLostError:
        if standby is None:
            raise
        source = standby
        connection = source.connect()
    with closing(connection):
        names = complete(connection).table_names() if wanted else None
    if names is None:
        return
    filters = [("tables", name, TableFilter(_pattern(name))) for name in wanted]
    none_seen = f"tables '{wanted[0]}' matches no table: the user cannot see any table"
    for text in unmatched(filters, names) if names else [none_seen]:
        message, _, hint = text.partition(". ")
        raise ConfigError(
            f"{source_info(source).address}: {message}",
            remedy=f"{hint} Use filter for a table that is created later or that the user may not read.".strip(),
        )
