"""The text of a meta.dat file: canal's own JSON shape, plus our exact positions and a checksum.

Never touches a file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any, Final

from canal.errors import CursorError
from canal.meta.stored import Client, Clients, is_canals
from canal.position import Position

FORMAT_VERSION: Final = 1
_OWN_KEYS: Final = ("format", "checksum")
_POSITION: Final = "position"  # beside canal's "cursor", which cannot hold all of ours
_FURTHER: Final = "furtherClients"  # beside canal's "clientDatas", those whose ids it could not read
_NAME: Final = "state"
_REMEDY: Final = "Restore the file from a backup, or delete it and its .bak and subscribe again"


def dump(
    destination: str, clients: Clients, name: str = "", address_of: Callable[[Position], tuple[str, int]] = lambda _: ("", 0)
) -> bytes:
    """The file's bytes, ASCII only: canal reads it in whatever charset its platform has. ``name`` is that of this state;
    ``address_of`` gives host and port of a cursor's source."""
    for client_id in clients:
        if type(client_id) is not int:
            raise CursorError(f"a client's id is a number, not {client_id!r}")
    items = [(item[0], _dump_client(destination, *item, address_of)) for item in sorted(clients.items())]
    document: dict[str, Any] = {
        "clientDatas": [item for client_id, item in items if is_canals(client_id)],
        "destination": destination,
        "format": FORMAT_VERSION,
    }
    further = [item for client_id, item in items if not is_canals(client_id)]
    if further:
        document[_FURTHER] = further
    if name:
        document[_NAME] = name
    document["checksum"] = _checksum(document)
    return (json.dumps(document, separators=(",", ":")) + "\n").encode("ascii")


def load(data: bytes, destination: str, must_verify: bool = False) -> Clients:
    """The state in the bytes of a file of ours or, unless it ``must_verify``, of canal's, which has no checksum.

    Raises:
        CursorError: damaged in any way, of a later format, or of another destination.
    """
    # Bytes that are no UTF-8 (canal writes in its platform's charset) become surrogates: harmless where we do not look,
    # refused by _text where we do.
    try:
        document = json.loads(data.decode("utf-8-sig", "surrogateescape"))
    except (ValueError, RecursionError) as error:
        raise CursorError("it is not JSON", remedy=_REMEDY) from error
    if not isinstance(document, dict):
        raise CursorError("it is not a JSON object", remedy=_REMEDY)
    items = _items(document, "clientDatas") + (_items(document, _FURTHER) if _FURTHER in document else [])
    if must_verify or any(key in document for key in _OWN_KEYS) or any(_POSITION in item for item in items):
        _verify(document)
    named = _text(document, "destination")
    if named and named != destination:
        raise CursorError(f"it belongs to destination {named!r}", remedy="Put it back into the folder of that name")
    return _load_clients(items)


def name_of(data: bytes) -> str:
    """The name of the state in the bytes of a file that ``load`` has taken; "" for none."""
    return _text(json.loads(data.decode("utf-8-sig", "surrogateescape")), _NAME)


def _items(document: dict[str, Any], key: str) -> list[dict[str, Any]]:
    items = document.get(key)
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise CursorError(f'"{key}" is not a list of objects', remedy=_REMEDY)
    return items


def _dump_client(
    destination: str, client_id: int, client: Client, address_of: Callable[[Position], tuple[str, int]]
) -> dict[str, Any]:
    identity = {"clientId": client_id, "destination": destination, "filter": client.filter}
    _text(identity, "filter")  # write nothing that load would refuse
    if client.cursor is None:
        return {"clientIdentity": identity}
    _text({"journal": client.cursor.journal}, "journal")
    return {
        "clientIdentity": identity,
        "cursor": client.cursor.to_canal(*address_of(client.cursor)),
        _POSITION: client.cursor.to_text(),
    }


def _checksum(document: dict[str, Any]) -> str:
    covered = {key: value for key, value in document.items() if key != "checksum"}
    return hashlib.sha256(json.dumps(covered, sort_keys=True, separators=(",", ":")).encode("ascii")).hexdigest()


def _verify(document: dict[str, Any]) -> None:
    if document.get("checksum") != _checksum(document):
        raise CursorError("its checksum is wrong", remedy=_REMEDY)
    if document.get("format") != FORMAT_VERSION:
        raise CursorError(
            f"it has format {document.get('format')!r}, not {FORMAT_VERSION}",
            remedy="Upgrade this library to the version that wrote it, or later",
        )


def _load_clients(items: list[dict[str, Any]]) -> Clients:
    clients: dict[int, Client] = {}
    for item in items:
        identity = item.get("clientIdentity")
        client_id = identity.get("clientId") if isinstance(identity, dict) else None
        if not isinstance(identity, dict) or type(client_id) is not int:
            raise CursorError("a client has no id", remedy=_REMEDY)
        if client_id in clients:
            raise CursorError(f"client {client_id} is in it twice", remedy=_REMEDY)
        clients[client_id] = Client(_text(identity, "filter"), _load_cursor(item))
    return clients


def _load_cursor(item: dict[str, Any]) -> Position | None:
    exact = _text(item, _POSITION)
    if exact:
        return Position.from_text(exact)
    cursor = item.get("cursor")
    if cursor is None:
        return None
    if not isinstance(cursor, dict):
        raise CursorError("a cursor is not an object", remedy=_REMEDY)
    position = Position.from_canal(cursor)
    _text({"journal": position.journal}, "journal")
    return position


def _text(fields: dict[str, Any], key: str) -> str:
    value = fields.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise CursorError(f'"{key}" is not text', remedy=_REMEDY)
    if any("\ud800" <= char <= "\udfff" for char in value):
        raise CursorError(f'"{key}" is not UTF-8', remedy="Convert the file to UTF-8")
    return value
