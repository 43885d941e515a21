"""HTTP target: sends changes by POST. A 2xx status confirms each request.

Never sends a request before the server has confirmed the previous request.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from time import time
from typing import Any, ClassVar, Final
from urllib.parse import quote, urlsplit

import attrs

from canal._util.option_checks import text
from canal.changes import Change, Changes
from canal.changes.batch import EntryRows
from canal.errors import ConfigError, ConnectionLostError, TargetError, UnfitChangeError
from canal.formats.change_json import line
from canal.targets.messages import Encoding, change_of, of_entry
from canal.targets.protocol import Guarantee, Scope
from canal.targets.tables import need
from canal.targets.work import LogWork, closed, is_http

log = logging.getLogger("canal.pipe")

#: Statuses for a rejected body, and for a temporary failure.
_UNFIT: Final = (400, 413, 422)
_AGAIN: Final = (408, 409, 425, 429)
#: Initial and maximum backoff in seconds; the backoff doubles. A longer ``Retry-After`` fails the commit, and the pipe waits.
_FIRST: Final = 0.5
_LONGEST: Final = 60.0
#: Maximum bytes to read from a response, so that the connection can be reused.
_ANSWER: Final = 1 << 16


@attrs.frozen
class HTTPTarget:
    """An HTTP endpoint for changes, such as a webhook. Requests are sent by POST one at a time, in log order.

    Each request has an ``Idempotency-Key``: ``<stream>/<change id>``, or ``<stream>/<first id>,<last id>`` for several changes.
    A retry with the same changes has the same key. Characters other than letters, digits and ``-_:/,`` are percent-encoded.
    Redirects are not followed.

    Args:
        url: http or https. Put credentials into ``headers`` or ``options``.
        secret: signs each request according to Standard Webhooks (``webhook-id``, ``webhook-timestamp``,
            ``webhook-signature``). Use base64 of 24 to 64 bytes, with or without ``whsec_``. To rotate secrets, pass both:
            requests then have both signatures.
        batch: maximum changes per request. With 1, the body is the result of ``encode``; with more, the body has one line
            per change.
        batch_bytes: maximum bytes of lines per request. A larger line is sent alone.
        headers: sent with each request.
        encode: returns the body for a change, without a line break, such as ``canal.formats.DebeziumJson()``. A change with
            the body "" is not sent.
        attempts: number of attempts per request before the commit fails and the pipe applies ``on_error``. The backoff grows
            from half a second to a minute. ``Retry-After`` overrides it.
        timeout: seconds to wait for a connection, and for each part of a response.
        options: more arguments for ``httpx.Client``, such as ``auth``, ``verify``, ``cert``, ``proxy``.
    """

    url: str = attrs.field(repr=False, validator=text)
    secret: str | Sequence[str] = attrs.field(default=(), kw_only=True, repr=False)
    batch: int = attrs.field(default=1, kw_only=True)
    batch_bytes: int = attrs.field(default=1 << 20, kw_only=True)
    headers: Mapping[str, str] = attrs.field(factory=dict, kw_only=True, repr=False)
    encode: Callable[[Change], str | bytes] = attrs.field(default=line, kw_only=True)
    attempts: int = attrs.field(default=5, kw_only=True)
    timeout: float = attrs.field(default=30.0, kw_only=True)
    options: Mapping[str, Any] = attrs.field(factory=dict, kw_only=True, repr=False)

    guarantee = Guarantee.APPENDED
    scope: ClassVar[Scope] = "all"
    is_log = True

    def __attrs_post_init__(self) -> None:
        if not is_http(self.url):
            raise ConfigError("the url of an HTTPTarget is http://host/… or https://host/…")
        if min(self.batch, self.batch_bytes, self.attempts) < 1 or not self.timeout > 0:
            raise ConfigError("batch, batch_bytes and attempts are 1 or more, and timeout is more than 0 seconds")
        if self.batch > 1 and not getattr(self.encode, "is_text", True):
            raise ConfigError("a request of several messages is lines of text, and Avro is not", remedy="Set batch=1.")
        _keys(self.secret)

    def __str__(self) -> str:
        parts = urlsplit(self.url)
        return f"HTTP {parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    @contextmanager
    def begin(self, stream: str) -> Iterator[LogWork]:
        httpx = need("httpx", "http")
        kind = "application/json" if self.batch == 1 else "application/x-ndjson"
        kind = kind if getattr(self.encode, "is_text", True) else "avro/binary"
        headers = {"Content-Type": kind, "User-Agent": "canal-cdc", **self.headers}
        try:
            client = httpx.Client(headers=headers, **{"timeout": self.timeout, **self.options})
        except (TypeError, ValueError, OSError, httpx.InvalidURL) as error:  # OSError: a missing certificate file
            raise ConfigError(f"httpx.Client does not take the headers or options of {self}: {type(error).__name__}") from error
        with closed(client):
            yield _HTTPWork(self, client, stream)


def _keys(secret: str | Sequence[str]) -> list[bytes]:
    """Return the secrets decoded from base64."""
    try:
        texts = [secret] if isinstance(secret, str) else list(secret)
        found = [base64.b64decode(text.removeprefix("whsec_"), validate=True) for text in texts]
    except (binascii.Error, ValueError):
        found = [b""]
    if any(not 24 <= len(key) <= 64 for key in found):
        raise ConfigError(
            "a secret of an HTTPTarget is base64 of 24 to 64 bytes",
            remedy='Make one: "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()',
        )
    return found


@attrs.frozen
class _Part:
    """A message in a request."""

    id: str
    value: bytes
    _of: Sequence[Change]
    _number: int

    def change(self) -> Change:
        return change_of(self._of, self._number) if isinstance(self._of, EntryRows) else self._of[0]


class _HTTPWork(LogWork):
    def __init__(self, target: HTTPTarget, client: Any, stream: str) -> None:
        super().__init__()
        self._target, self._client, self._stream = target, client, stream
        self._secrets = _keys(target.secret)
        self._encoding = Encoding(target.encode, key=None)
        self.encode_entry = self._encoding.entry(None)
        self._confirmed: set[str] = set()  # ids since the last commit

    def load(self, table: str) -> None:
        return None

    def write(self, made: Sequence[Change], old: str | None, new: str, table: str) -> None:
        for batch in self._batches(self._parts(made)):
            self._send(batch)
        self._confirmed.clear()

    def _parts(self, made: Sequence[Change]) -> Iterator[_Part]:
        """Yield the messages to send, without those confirmed since the last commit."""
        for part in made.parts if isinstance(made, Changes) else [made]:
            if isinstance(part, EntryRows) and part.encoded is not None:
                for identity, _, value, _, number in of_entry(part):
                    if value and identity not in self._confirmed:
                        yield _Part(identity, value, part, number)
                continue
            for change in part:
                for one in self._encoding.messages(change):
                    if one.value and one.id not in self._confirmed:
                        yield _Part(one.id, one.value, [change], 0)

    def _batches(self, parts: Iterable[_Part]) -> Iterator[list[_Part]]:
        """Group messages into requests."""
        batch: list[_Part] = []
        size = 0
        for part in parts:
            length = len(part.value) + 1
            if batch and (len(batch) == self._target.batch or size + length > self._target.batch_bytes):
                yield batch
                batch, size = [], 0
            batch.append(part)
            size += length
        if batch:
            yield batch

    def _send(self, batch: list[_Part]) -> None:
        """Send a request and wait for the confirmation."""
        status = self._status(batch, self._body(batch))
        if 200 <= status < 300:
            self._confirmed.update(part.id for part in batch)
            return
        what = f"{self._target} answers {status}"
        if status in _UNFIT and len(batch) > 1:  # find the rejected change
            for one in batch:
                self._send([one])
        elif status in _UNFIT:
            change = batch[0].change()
            raise UnfitChangeError(
                f"{what} to a change of {change.table.name}",
                position=change.origin.position,
                changes=(change,),
                remedy="Make the server accept the change, alter the body by a rule or encode, or park the change by on_unfit.",
            )
        elif 300 <= status < 400:
            raise TargetError(what, remedy="Give the address that it redirects to.")
        else:
            raise TargetError(what, remedy="Nothing is lost: see what it means by that, such as credentials that are not right.")

    def _body(self, batch: list[_Part]) -> bytes:
        return batch[0].value if self._target.batch == 1 else b"".join(part.value + b"\n" for part in batch)

    def _status(self, batch: list[_Part], body: bytes) -> int:
        """Return the response status. Retry temporary failures until ``attempts`` is reached."""
        import httpx

        name = batch[0].id if len(batch) == 1 else f"{batch[0].id},{batch[-1].id}"
        key = quote(f"{self._stream}/{name}", safe="/:,").replace(".", "%2E").replace("~", "%7E")
        for attempt in range(1, self._target.attempts + 1):
            asked = 0.0
            try:
                status, asked = self._post(key, body)
                if status not in _AGAIN and status < 500:
                    return status
                what = f"{self._target} answers {status}"
                failure: TargetError | ConnectionLostError = TargetError(
                    what, retry_after=asked, remedy="The request is retried."
                )
            except httpx.TransportError as error:
                failure = ConnectionLostError(f"the request to {self._target} failed: {type(error).__name__}")
                failure.__cause__ = error
            if attempt == self._target.attempts or asked > _LONGEST:
                raise failure
            wait = asked or min(_FIRST * 2.0 ** (attempt - 1), _LONGEST)
            log.warning("%s; attempt %d, again in %.1f s", failure.message, attempt, wait)
            if self.paused(wait):
                raise failure
        raise AssertionError("an attempt returns or raises")

    def paused(self, seconds: float) -> bool:
        """Wait before the next attempt. Return True if the pipe stops meanwhile."""
        return self.stopping.wait(seconds)

    def _post(self, key: str, body: bytes) -> tuple[int, float]:
        """Return the response status and the ``Retry-After`` delay in seconds."""
        headers = {"Idempotency-Key": key, **signature(self._secrets, key, int(time()), body)}
        with self._client.stream("POST", self._target.url, content=body, headers=headers) as response:
            size = 0
            for chunk in response.iter_raw():
                size += len(chunk)
                if size > _ANSWER:
                    break
            return int(response.status_code), _seconds(response.headers.get("Retry-After", ""))


def signature(secrets: Sequence[bytes], key: str, timestamp: int, body: bytes) -> dict[str, str]:
    """Return the Standard Webhooks headers for a body, or {} without secrets."""
    if not secrets:
        return {}
    signed = b".".join((key.encode(), str(timestamp).encode(), body))
    digests = (hmac.digest(secret, signed, hashlib.sha256) for secret in secrets)
    texts = " ".join(f"v1,{base64.b64encode(digest).decode()}" for digest in digests)
    return {"webhook-id": key, "webhook-timestamp": str(timestamp), "webhook-signature": texts}


def _seconds(text: str) -> float:
    """Convert a ``Retry-After`` header to seconds. The header holds seconds or a date; return 0 if it is empty or invalid."""
    if text.strip().isascii() and text.strip().isdigit():
        return float(min(int(text), 1 << 31))
    try:
        until = parsedate_to_datetime(text)
    except ValueError:
        return 0.0
    until = until if until.tzinfo is not None else until.replace(tzinfo=UTC)
    return max((until - datetime.now(UTC)).total_seconds(), 0.0)
