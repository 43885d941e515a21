"""Changes that a server applies and does not write to its log, because of its settings.

Never connects: the caller passes the means to ask.
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
    """Changes that are missing from a server's log.

    ``is_fatal``: the server applies changes of any table without logging them, now. ``only`` and ``ignored`` are the
    databases of ``binlog_do_db`` and ``binlog_ignore_db``.
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
        remedy = f"Set {name}=ON in its configuration and restart it."
        if settings.get("wsrep_on", "").upper() == "ON":
            text = f"it is a node of a Galera cluster with {name}=OFF, so what the other nodes commit is not in its log"
            yield Unlogged(name, text, remedy, is_fatal=True)
        elif role := _replication(release, settings, ask):
            text = f"it is a replica with {name}=OFF, so what it replicates is not in its log"
            if role == "stopped":
                text = f"{text}; its replication is stopped now"
            remedy = f"{remedy} Or read the server that it replicates from; or, if it replicates no more, RESET its replication."
            yield Unlogged(name, text, remedy, is_fatal=role == "running")
    for option, names, which in zip(("binlog_do_db", "binlog_ignore_db"), map(str, status[2:4]), ("all other", "those")):
        if names:
            databases = frozenset(names.split(","))
            yield Unlogged(
                option,
                f"{option}={names} keeps changes of {which} databases out of its log",
                f"Remove {option} from its configuration and restart it, or leave those databases out of the filter.",
                only=databases if option == "binlog_do_db" else frozenset(),
                ignored=databases if option == "binlog_ignore_db" else frozenset(),
            )


def _replication(release: Release, settings: Mapping[str, str], ask: Ask) -> Literal["running", "stopped", ""]:
    """Return whether a server replicates, or has replicated; "" if it never did."""
    if not release.is_mariadb:
        rows = ask(release.replica_query)
        runs = any(str(one) != "No" for row in rows for one in row[_RUNNING])
        return "running" if runs else "stopped" if rows else ""
    # MariaDB since 10.5 answers SHOW SLAVE STATUS only to users with the privilege SLAVE MONITOR.
    running = ask("SHOW GLOBAL STATUS WHERE Variable_name IN ('Slave_running', 'Slaves_running')")
    if any(str(value) not in ("OFF", "0") for _, value in running):
        return "running"
    logged = _numbers(settings.get("gtid_binlog_state", ""))
    applied = _numbers(settings.get("gtid_slave_pos", ""))
    return "stopped" if any(number > logged.get(origin, 0) for origin, number in applied.items()) else ""


def _numbers(gtids: str) -> dict[str, int]:
    """The last number of each domain and server in a set of MariaDB GTIDs."""
    parts = (one.strip().rpartition("-") for one in gtids.split(",") if one.strip())
    return {origin: int(number) for origin, _, number in parts}
