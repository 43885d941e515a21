"""The remoting protocol of RocketMQ, as far as one who sends messages needs it: frames, requests and answers, signatures.

Its broker and name server have spoken it since 3.0; the clients of 5.x that speak gRPC need a proxy beside these. Never decides
which queue a message goes to, and tries nothing twice.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import itertools
import json
import re
import socket
import ssl
import struct
import time
from collections.abc import Mapping
from typing import Any, Final, Protocol

import attrs

from canal.errors import ConnectionLostError, TargetError

#: Codes of requests.
SEND_BATCH: Final = 320
ROUTE: Final = 105
#: Codes of answers.
OK: Final = 0
TOPIC_MISSING: Final = 17

#: In a frame's flag: it is an answer.
_ANSWER: Final = 1
#: Bytes of a frame; a larger one is none.
_LARGEST: Final = 64 << 20
#: Seconds without a request after which a connection is not trusted.
_IDLE: Final = 30.0
#: Name servers before 4.9.4 write the keys of a map of numbers without quotes.
_BARE_KEY: Final = re.compile(rb"(?<=[{,])(\d+)(?=:)")


class Account(Protocol):
    """Who asks, for brokers with ACLs; nobody where ``access_key`` is ""."""

    @property
    def access_key(self) -> str: ...
    @property
    def secret_key(self) -> str: ...


@attrs.frozen
class Answer:
    code: int
    remark: str
    fields: Mapping[str, str]
    body: bytes


class BrokerConnection:
    """A connection to a broker or a name server, for one thread. Several requests may be under way at once."""

    def __init__(self, address: str, account: Account, tls: ssl.SSLContext | None, timeout: float) -> None:
        self.address = address
        self._account, self._timeout = account, timeout
        self._numbers = itertools.count(1)
        self._answers: dict[int, Answer] = {}
        self._used = time.monotonic()
        host, _, port = address.rpartition(":")
        self._socket: socket.socket | None = None
        with self._understood():
            opened = self._socket = socket.create_connection((host.strip("[]"), int(port)), timeout)
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls is not None:
                self._socket = tls.wrap_socket(opened, server_hostname=host.strip("[]"))

    def is_over(self) -> bool:
        """Whether it was unused for so long that the other side may close it: brokers do after two minutes."""
        return self._socket is None or time.monotonic() - self._used > _IDLE

    def send(self, code: int, fields: Mapping[str, str], body: bytes = b"") -> int:
        """Send a request; gives its number, for ``answer``."""
        if self._account.access_key:
            fields = {**fields, "AccessKey": self._account.access_key}
            fields = {**fields, "Signature": _signature(fields, body, self._account.secret_key)}
        number, self._used = next(self._numbers), time.monotonic()
        head = json.dumps(
            {
                "code": code,
                "language": "PYTHON",
                "version": 0,
                "opaque": number,
                "flag": 0,
                "extFields": fields,
                "serializeTypeCurrentRPC": "JSON",
            }
        ).encode()
        with self._understood():
            assert self._socket is not None
            self._socket.sendall(struct.pack(">II", 4 + len(head) + len(body), len(head)) + head + body)
        return number

    def answer(self, number: int) -> Answer:
        """Wait for the answer to a request.

        Raises:
            ConnectionLostError: the connection broke, or it took too long.
        """
        deadline = time.monotonic() + self._timeout
        with self._understood():
            while number not in self._answers:
                self._read(deadline)
        return self._answers.pop(number)

    def ask(self, code: int, fields: Mapping[str, str], body: bytes = b"") -> Answer:
        return self.answer(self.send(code, fields, body))

    def _read(self, deadline: float) -> None:
        (size,) = struct.unpack(">I", self._bytes(4, deadline))
        if not 4 <= size <= _LARGEST:
            raise TargetError(f"{self.address} does not speak the remoting protocol of RocketMQ")
        frame = self._bytes(size, deadline)
        kind, length = frame[0], int.from_bytes(frame[1:4], "big")
        try:
            head = json.loads(frame[4 : 4 + length]) if kind == 0 else {}
        except ValueError:
            raise TargetError(f"{self.address} does not speak the remoting protocol of RocketMQ") from None
        if head.get("flag", 0) & _ANSWER:
            found = Answer(head["code"], head.get("remark") or "", head.get("extFields") or {}, frame[4 + length :])
            self._answers[head["opaque"]] = found

    def _bytes(self, size: int, deadline: float) -> bytes:
        assert self._socket is not None
        found = bytearray()
        while len(found) < size:
            self._socket.settimeout(max(deadline - time.monotonic(), 0.001))
            more = self._socket.recv(min(size - len(found), 1 << 20))
            if not more:
                raise ConnectionResetError
            found += more
        self._socket.settimeout(self._timeout)
        return bytes(found)

    @contextlib.contextmanager
    def _understood(self) -> Any:
        try:
            yield
        except TimeoutError as error:
            self.close()
            raise ConnectionLostError(f"RocketMQ {self.address} gave no answer for {self._timeout:g} s") from error
        except OSError as error:
            self.close()
            raise ConnectionLostError(f"the connection to RocketMQ {self.address} broke: {type(error).__name__}") from error

    def close(self) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.close()
            self._socket = None


def _signature(fields: Mapping[str, str], body: bytes, secret: str) -> str:
    signed = "".join(fields[name] for name in sorted(fields)).encode() + body
    return base64.b64encode(hmac.digest(secret.encode(), signed, hashlib.sha1)).decode()


@attrs.frozen(order=True)
class Queue:
    """A queue of a topic, which one broker has."""

    broker: str
    number: int
    address: str = attrs.field(order=False)


def queues_of(answer: Answer) -> list[Queue]:
    """The queues of a topic that can be written to, in an order that is the same wherever it is asked for."""
    try:
        route = json.loads(answer.body)
    except ValueError:
        route = json.loads(_BARE_KEY.sub(rb'"\1"', answer.body))
    masters = {one["brokerName"]: one["brokerAddrs"].get("0") for one in route["brokerDatas"]}
    found = []
    for one in route["queueDatas"]:
        address = masters.get(one["brokerName"])
        if address is not None and one["perm"] & 2:
            found += [Queue(one["brokerName"], number, address) for number in range(one["writeQueueNums"])]
    return sorted(found)


def packed(body: bytes, properties: Mapping[str, str]) -> bytes:
    """A message within a batch."""
    text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items()).encode()
    size = 22 + len(body) + len(text)
    return struct.pack(">IIIII", size, 0, 0, 0, len(body)) + body + struct.pack(">H", len(text)) + text


def batch_fields(group: str, topic: str, queue: Queue, default: str, queues: int) -> dict[str, str]:
    """The head of a batch. ``default`` is the topic after which a broker makes one that is not there."""
    named = {
        "a": group,
        "b": topic,
        "c": default,
        "d": queues,
        "e": queue.number,
        "f": 0,
        "g": int(time.time() * 1000),
        "h": 0,
        "i": "",
        "j": 0,
        "k": "false",
        "m": "true",
    }
    return {name: str(value) for name, value in named.items()}
