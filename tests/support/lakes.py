"""Tables of Delta and Iceberg in a folder, and reading them by another way than they are written."""

from __future__ import annotations

import itertools
import shutil
import weakref
from pathlib import Path
from typing import Any

import pyarrow as pa

from canal.targets.tables import DeltaTableTarget, IcebergTableTarget, MySQLTableTarget
from tests.support.histories import change, table

_numbers = itertools.count()


def load_catalog(name: str, **options: Any) -> Any:
    """As pyiceberg's; its connections are closed when it is gone."""
    from pyiceberg.catalog import load_catalog as load

    catalog = load(name, **options)
    if (engine := getattr(catalog, "engine", None)) is not None:
        weakref.finalize(catalog, engine.dispose)
    return catalog


class Lake:
    """Makes targets, and reads them by another way than they are written."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def make(self) -> Any:
        raise NotImplementedError

    def rows(self, target: Any) -> pa.Table | None:
        raise NotImplementedError

    def drop(self, target: Any) -> None:
        raise NotImplementedError


class Delta(Lake):
    def make(self) -> DeltaTableTarget:
        return DeltaTableTarget(str(self.root / f"delta{next(_numbers)}"))

    def rows(self, target: DeltaTableTarget) -> pa.Table | None:
        from deltalake import DeltaTable

        return DeltaTable(target.path).to_pyarrow_table() if DeltaTable.is_deltatable(target.path) else None

    def drop(self, target: DeltaTableTarget) -> None:
        shutil.rmtree(target.path)


class Iceberg(Lake):
    def make(self) -> IcebergTableTarget:
        properties = {"type": "sql", "uri": f"sqlite:///{self.root}/catalog.db", "warehouse": f"file://{self.root}/lake"}
        return IcebergTableTarget(f"shop.orders{next(_numbers)}", "test", properties)

    def rows(self, target: IcebergTableTarget) -> pa.Table | None:
        catalog = load_catalog("test", **target.properties)
        try:
            return catalog.load_table(target.table).scan().to_arrow() if catalog.table_exists(target.table) else None
        finally:
            catalog.close()

    def drop(self, target: IcebergTableTarget) -> None:
        catalog = load_catalog("test", **target.properties)
        catalog.drop_table(target.table)
        catalog.close()


def login(server: Any) -> dict[str, Any]:
    return {"host": server.host, "port": server.port, "user": server.user, "password": server.password, "ssl_disabled": True}


def in_server(server: Any, target: MySQLTableTarget) -> dict[Any, Any]:
    rows = server.query(f"SELECT id, k, a, b FROM {target.table}")
    return {(row[0], row[1]): dict(zip(("id", "k", "a", "b"), row)) for row in rows}


def first_changes() -> pa.Table:
    return table([change("I", 1, number, {"id": number, "k": "x", "a": 1, "b": None}) for number in range(3)])


def more_changes() -> pa.Table:
    before = {"id": 0, "k": "x", "a": 1, "b": None}
    return table([change("U", 2, 0, {**before, "a": 2}, before), change("I", 3, 0, {"id": 9, "k": "x", "a": 1, "b": None})])
