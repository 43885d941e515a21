"""The way from a query's process to an Instance that its driver shares: a connection, and what stands for the source.

Never reads the log: a source that can be named is handed over and read as any other.
"""

from __future__ import annotations

from multiprocessing import AuthenticationError
from multiprocessing.connection import Client
from typing import Any, Final, Self

import attrs

from canal.errors import ConfigError, ConnectionLostError
from canal.instance.sharing.addresses import look_up, unknown
from canal.instance.sharing.wire import Channel, EntryReader, decode_error, decode_table
from canal.model import Entry
from canal.position import Position
from canal.schema import TableSchema

_SLOW: Final = 120.0  # seconds that the driver may take for an answer, beyond those that it is given


class Remote:
    """A connection to a shared Instance. Used by one thread; only ``shut`` may come from another.

    Raises:
        UnknownDestinationError: no living process of this user shares an Instance of that name on this machine.
        ConfigError: others could have written the file that names it.
        ConnectionLostError: the process hangs.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        found = look_up(name)
        try:
            connection = Client((found["host"], found["port"]), "AF_INET")
        except OSError as error:
            raise unknown(name, f"process {found.get('pid')} does not answer") from error
        self._channel = Channel(connection)
        self._reader = EntryReader()
        try:
            self._channel.log_in(bytes.fromhex(found["key"]), first=False)
        except BlockingIOError as error:
            self._channel.close()
            raise ConnectionLostError(
                f"process {found.get('pid')}, which shares an Instance as {name!r}, does not answer",
                remedy="Start the query again when it does.",
            ) from error
        except (AuthenticationError, EOFError, OSError) as error:
            self._channel.close()
            raise unknown(name, f"what answers at port {found['port']} is not process {found.get('pid')}") from error

    def ask(self, do: str, *, wait: float = 0.0, **what: Any) -> tuple[dict[str, Any], list[Entry]]:
        """Have the driver do something; ``wait`` are the seconds that it may take by what it is asked.

        Raises:
            CanalError: as the Instance raised it.
            ConnectionLostError: the driver has ended, or shares the Instance no more.
        """
        try:
            self._channel.limit(wait + _SLOW)
            self._channel.send({"do": do, **what})
            reply, data = self._channel.receive()
        except (EOFError, OSError) as error:
            raise ConnectionLostError(
                f"the driver that shared an Instance as {self._name!r} has ended, hangs, or shares it no more",
                remedy="Share it and start the query again.",
            ) from error
        if "error" in reply:
            raise decode_error(reply["error"])
        return reply, self._reader.read(data)

    def shut(self) -> None:
        self._channel.shut()

    def close(self) -> None:
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


@attrs.frozen
class SharedSource:
    """Stands for the source of a shared Instance where that cannot be handed over, such as a FakeBinlog: it can be asked."""

    name: str

    def connect(self, server_id_hint: int | None = None) -> Any:
        return _Questions(self.name)

    def refusal(self, start: Position, end: Position) -> ConfigError:
        """What to raise where changes of (start, end] would have to be read again."""
        return ConfigError(
            f"the changes from {start} to {end} are not in the Instance that is shared as {self.name!r} any more, and its source "
            "is an object of the driver that this process cannot connect to",
            position=start,
            remedy="Give the Instance a MySQLSource or LocalBinlogSource, or begin a new checkpoint.",
        )


class _Questions:
    """As much of a connection to the source as questions to the driver can be."""

    identity = "shared"
    full_metadata = False

    def __init__(self, name: str) -> None:
        self._remote = Remote(name)

    def resolve(self, start: str | Position) -> Position:
        text = start if isinstance(start, str) else start.to_text()
        return Position.from_text(self._remote.ask("resolve", start=text, table=None)[0]["position"])

    def table_columns(self, schema: str, table: str) -> TableSchema | None:
        found = self._remote.ask("resolve", start=None, table=[schema, table])[0]["table"]
        return None if found is None else decode_table(found)

    def close(self) -> None:
        self._remote.close()


__all__ = ["Remote", "SharedSource"]
