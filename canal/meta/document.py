"""The format of meta.dat: canal's JSON, extended by exact positions and a checksum."""

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
_POSITION: Final = "position"  # in addition to canal's "cursor", which is less exact
_FURTHER: Final = "furtherClients"  # in addition to canal's "clientDatas": clients with ids that canal cannot read
_NAME: Final = "state"
_REMEDY: Final = "Restore the file from a backup, or delete it and its .bak and subscribe again"


def dump(
    destination: str, clients: Clients, name: str = "", address_of: Callable[[Position], tuple[str, int]] = lambda _: ("", 0)
) -> bytes:
    """Return the content of the file in ASCII, because canal reads it in its platform's charset.

    ``name`` identifies this state. ``address_of`` returns host and port of a cursor's source.
    """
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
    """Parse our file or, unless ``must_verify``, canal's file without a checksum.

    Raises:
        CursorError: the data is damaged, has a later format, or belongs to another destination.
    """
    # Bytes that are not UTF-8 (canal writes in its platform's charset) become surrogates. They are harmless in fields that we
    # ignore; _text rejects them in the others.
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
    """Return the name of the state in a loaded file; "" if it has none."""
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
    _text(identity, "filter")  # never write a file that load would reject
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
