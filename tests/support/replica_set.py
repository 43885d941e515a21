"""A stand-in for a replica set, in front of a server of MongoDB's protocol that has no transactions.

It says that it is one, takes back what an aborted transaction wrote, and refuses what is written beside an open one, as a real
server does where both write one document. What is written in a transaction is seen by others before it is committed.
"""

from __future__ import annotations

import socket
import socketserver
import struct
import threading
from collections.abc import Callable
from typing import Any

import bson
import pymongo

_QUERY, _MESSAGE = 2004, 2013
_OF_TRANSACTIONS = ("lsid", "txnNumber", "startTransaction", "autocommit", "readConcern")


class ReplicaSet(socketserver.ThreadingTCPServer):
    """A replica set of one member, of what is at the host and port ``upstream``."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, upstream: tuple[str, int]) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.upstream = upstream
        self.address = f"127.0.0.1:{self.server_address[1]}"
        self.url = f"mongodb://{self.address}/?replicaSet=rs0"
        self.client: Any = pymongo.MongoClient(*upstream)
        self.lock = threading.RLock()
        self.open: bytes | None = None  # the session whose transaction it is
        self.saved: dict[tuple[str, str], list[Any]] = {}
        self.is_patient = True
        """Whether an open transaction stays; or is aborted where another session asks for something, as of a client that died."""
        self.commands: list[str] = []
        self.concerns: set[tuple[str, str]] = set()  # of all that reads, writes or commits, outside of transactions
        self.lost: Callable[[str], bool] = lambda name: False
        """Whether the answer to a command in a transaction gets lost."""

    def answer(self, command: dict[str, Any], send: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
        name, session = next(iter(command)), bytes(command.get("lsid", {}).get("id", b""))
        is_transaction = "autocommit" in command
        plain = {key: value for key, value in command.items() if key not in _OF_TRANSACTIONS}
        with self.lock:
            if name in ("find", "insert", "update", "delete") and not is_transaction or name == "commitTransaction":
                concern = command.get("readConcern", {}).get("level") or command.get("writeConcern", {}).get("w")
                self.concerns.add((name, f"{concern}"))
            if name in ("commitTransaction", "abortTransaction"):
                return self._end(name, session)
            if name == "endSessions":
                return {"ok": 1.0}
            if not self.is_patient and self.open not in (None, session) and name not in ("hello", "listIndexes"):
                self._end("abortTransaction", self.open)
            writes = name in ("insert", "update", "delete")
            if is_transaction and ("writeConcern" in command or "readConcern" in command and "startTransaction" not in command):
                return {"ok": 0.0, "code": 72, "codeName": "InvalidOptions", "errmsg": "not within a transaction"}
            if is_transaction and self.open is None and command.get("startTransaction"):
                self.open, self.saved, self.commands = session, {}, []
            if writes and self.open not in (None, session) or is_transaction and self.open != session:
                return _refused(112, "WriteConflict")
            if is_transaction:
                self.commands.append(f"{name} {command[name]}")
            if is_transaction and writes:
                where = command["$db"], command[name]
                self.saved.setdefault(where, list(self.client[where[0]][where[1]].find()))
            return send(plain)

    def _end(self, name: str, session: bytes | None) -> dict[str, Any]:
        if self.open == session:
            if name == "abortTransaction":
                for (database, collection), documents in self.saved.items():
                    self.client[database][collection].delete_many({})
                    if documents:
                        self.client[database][collection].insert_many(documents)
            self.open = None
            self.commands.append(name)
        return {"ok": 1.0}  # also to a commit that is asked for again


def _refused(code: int, name: str) -> dict[str, Any]:
    return {"ok": 0.0, "code": code, "codeName": name, "errmsg": name, "errorLabels": ["TransientTransactionError"]}


class _Connection(socketserver.BaseRequestHandler):
    server: ReplicaSet

    def handle(self) -> None:
        with socket.create_connection(self.server.upstream) as upstream:
            while (request := _read(self.request)) is not None:
                number, kind = struct.unpack("<i", request[4:8])[0], struct.unpack("<i", request[12:16])[0]
                if kind == _QUERY:  # the first words of a client
                    upstream.sendall(request)
                    answer = _read(upstream) or b""
                    body = answer[16:36] + bson.encode(self._hello(bson.decode(answer[36:])))
                    self.request.sendall(_message(number, 1, body))
                    continue
                command = _command(request)
                answer = self.server.answer(command, lambda plain: _asked(upstream, plain))
                if next(iter(command)).lower() in ("hello", "ismaster"):
                    answer = self._hello(answer)
                if "autocommit" in command and self.server.lost(next(iter(command))):
                    return
                self.request.sendall(_message(number, _MESSAGE, b"\0\0\0\0\0" + bson.encode(answer)))

    def _hello(self, answer: dict[str, Any]) -> dict[str, Any]:
        address = self.server.address
        return answer | {"setName": "rs0", "setVersion": 1, "hosts": [address], "me": address, "primary": address}


def _read(source: socket.socket) -> bytes | None:
    found = b""
    while len(found) < 4 or len(found) < struct.unpack("<i", found[:4])[0]:
        wanted = 4 - len(found) if len(found) < 4 else struct.unpack("<i", found[:4])[0] - len(found)
        if not (some := source.recv(wanted)):
            return None
        found += some
    return found


def _message(number: int, kind: int, body: bytes) -> bytes:
    return struct.pack("<iiii", 16 + len(body), 1, number, kind) + body


def _command(request: bytes) -> dict[str, Any]:
    """The command of a message, with what comes in sequences of documents."""
    at, command, more = 20, {}, {}
    while at < len(request):
        kind, size = request[at], struct.unpack("<i", request[at + 1 : at + 5])[0]
        part = request[at + 1 : at + 1 + size]
        if kind == 0:
            command = bson.decode(part)
        else:
            name, _, documents = part[4:].partition(b"\0")
            more[name.decode()] = bson.decode_all(documents)
        at += 1 + size
    return command | more


def _asked(upstream: socket.socket, command: dict[str, Any]) -> dict[str, Any]:
    upstream.sendall(_message(0, _MESSAGE, b"\0\0\0\0\0" + bson.encode(command)))
    answer = _read(upstream)
    assert answer is not None
    return bson.decode(answer[21:])
