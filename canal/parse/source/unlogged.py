"""Finds changes that a server applies but, because of the settings, does not log.

Never connects: the caller passes a function that runs queries.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

import attrs

from canal.binlog.server_facts import OF_REPLICAS, Ask, Release

#: The columns of SHOW REPLICA STATUS that say whether the receiver and the applier run.
_RUNNING: Final = slice(10, 12)


@attrs.frozen
class Unlogged:
    """Changes that a server applies but does not log.

    ``is_fatal``: the server does so now for changes of any table. ``only`` and ``ignored`` are the databases of
    ``binlog_do_db`` and ``binlog_ignore_db``.
    """

    setting: str
    text: str
    remedy: str
    is_fatal: bool = False
    only: frozenset[str] = frozenset()
    ignored: frozenset[str] = frozenset()

    def lacks(self, database: str) -> bool:
        """Return whether changes of a database are missing."""
        return database not in self.only if self.only else not self.ignored or database in self.ignored


def unlogged(release: Release, settings: Mapping[str, str], status: tuple[Any, ...], ask: Ask) -> Iterator[Unlogged]:
    """Find the changes that a server does not log.

    Args:
        settings: values of ``OF_REPLICAS`` and ``wsrep_on``, by name, of those that the server has.
        status: the row of ``Release.status_query``.
        ask: runs a query; called only for a server that does not log what it applies as a replica.
    """
    name = next((one for one in OF_REPLICAS[:2] if one in settings), "")
    if name and settings[name].upper() == "OFF":
        remedy = f"Set {name}=ON in the server's configuration and restart it."
        if settings.get("wsrep_on", "").upper() == "ON":
            text = f"it is a Galera node with {name}=OFF, so commits of other nodes are not in the log"
            yield Unlogged(name, text, remedy, is_fatal=True)
        elif role := _replication(release, settings, ask):
            text = f"it is a replica with {name}=OFF, so replicated changes are not in the log"
            if role == "stopped":
                text = f"{text}; replication is stopped now"
            remedy = f"{remedy} Or read from the source server; or, if it no longer replicates, RESET the replication."
            yield Unlogged(name, text, remedy, is_fatal=role == "running")
    for option, names, which in zip(("binlog_do_db", "binlog_ignore_db"), map(str, status[2:4]), ("all other", "those")):
        if names:
            databases = frozenset(names.split(","))
            yield Unlogged(
                option,
                f"{option}={names} keeps changes of {which} databases out of the log",
                f"Remove {option} from the server's configuration and restart it, or leave those databases out of the filter.",
                only=databases if option == "binlog_do_db" else frozenset(),
                ignored=databases if option == "binlog_ignore_db" else frozenset(),
            )


def _replication(release: Release, settings: Mapping[str, str], ask: Ask) -> Literal["running", "stopped", ""]:
    """Return whether a server replicates or has replicated; "" if it never did."""
    if not release.is_mariadb:
        rows = ask(release.replica_query)
        runs = any(str(one) != "No" for row in rows for one in row[_RUNNING])
        return "running" if runs else "stopped" if rows else ""
    # MariaDB since 10.5 allows SHOW SLAVE STATUS only with the privilege SLAVE MONITOR.
    running = ask("SHOW GLOBAL STATUS WHERE Variable_name IN ('Slave_running', 'Slaves_running')")
    if any(str(value) not in ("OFF", "0") for _, value in running):
        return "running"
    logged = _numbers(settings.get("gtid_binlog_state", ""))
    applied = _numbers(settings.get("gtid_slave_pos", ""))
    return "stopped" if any(number > logged.get(origin, 0) for origin, number in applied.items()) else ""


def _numbers(gtids: str) -> dict[str, int]:
    """Return the last number of each domain and server in a MariaDB GTID set."""
    parts = (one.strip().rpartition("-") for one in gtids.split(",") if one.strip())
    return {origin: int(number) for origin, _, number in parts}
