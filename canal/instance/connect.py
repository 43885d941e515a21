"""``canal.connect``: one client that is ready to read, from one line.

Never keeps anything itself: what it gives is an :class:`~canal.Instance` like any other.
"""

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
from canal.parse.first_look import unmatched
from canal.parse.source.mysql import MySQLSource, database, parse_url
from canal.parse.source.protocol import Source, complete, teller
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
    """A started :class:`canal.Instance` with one subscribed client; ``with`` stops it at its end.

        with canal.connect("mysql://canal:secret@127.0.0.1/shop", tables="orders", meta="/var/lib/app/canal") as instance:
            for change in instance.changes():
                print(change.table, change.op, change.before, change.after)

    It looks at the server once, so that a wrong address, password or table raises here. After that the instance reconnects
    by itself.

    Args:
        source: ``mysql://user:password@host:port/database?option=value``, where the options are those of
            :class:`canal.MySQLSource`; or a source. Only changes of the URL's database are delivered, where it names one.
        tables: names of the tables to deliver: "orders" where the URL names a database, or "shop.orders". A ``*`` stands for
            any characters. Empty: all.
        filter: the tables in the syntax of ``InstanceConfig.filter``, instead of ``tables`` and of the URL's database. It may
            match none yet: tables that are made later.
        start: where to begin if no cursor is stored: "latest", "earliest" or a position.
        meta: where the cursor is kept: a directory, or a meta manager. None keeps it in memory: each start begins at ``start``.
        destination: name of the instance, under which the cursor is kept: by default that of the URL's database, or "canal".
        password: of the user, so that it need not stand in the URL.
        options: other options of :class:`canal.InstanceConfig`.

    Raises:
        ConfigError: an option is wrong, or one of the ``tables`` is none that the user may see; the nearest names are given.
        AuthenticationError: the login is refused.
        ConnectionLostError: the server cannot be reached.
        CanalError: what else stops the reader, such as a position that the server has no log for.
    """
    schema = database(source) if isinstance(source, str) else ""
    if isinstance(tables, (bytes, Mapping)) or not isinstance(tables, Iterable):
        raise ConfigError(f"tables must be a name or several, not {tables!r}")
    names = [tables] if isinstance(tables, str) and tables else list(tables)
    if names and filter is not None:
        raise ConfigError("canal.connect takes tables or filter, not both", remedy="Write all of it into filter.")
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
        raise ConfigError("password is for a URL: a source has its own", remedy="Give it to the source.")
    return source


def _whole(name: str, schema: str) -> str:
    """A name with its database."""
    if not isinstance(name, str):
        raise ConfigError(f"tables are named by str, not by {type(name).__name__}")
    if "." not in name and not schema:
        raise ConfigError(
            f"tables names {name!r} without a database, and the URL names none",
            remedy=f"Write {f'shop.{name}'!r}, or mysql://…/shop.",
        )
    return name if "." in name else f"{schema}.{name}"


def _pattern(name: str) -> str:
    """A name as a filter has it."""
    return re.escape(name).replace(r"\*", ".*").replace(",", r"\,")


def _look(source: Source, standby: Source | None, wanted: Sequence[str]) -> None:
    """Raise what is wrong with the address, the login or the names; the standby is asked where the source does not answer."""
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
    none_seen = f"tables '{wanted[0]}' matches no table: our user may see none at all"
    for text in unmatched(filters, names) if names else [none_seen]:
        message, _, hint = text.partition(". ")
        raise ConfigError(
            f"{teller(source).address}: {message}",
            remedy=f"{hint} Name a table that is made later, or that the user may not read, in filter.".strip(),
        )
