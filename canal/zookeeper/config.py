"""Options for ZooKeeper and elections."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Literal

import attrs

from canal._util.option_checks import not_negative, positive
from canal.errors import ConfigError

ROOT: Final = "/otter/canal"
"""The root in canal (Java), so canal users can move in place."""


def _is_root(instance: object, attribute: attrs.Attribute[str], value: str) -> None:
    if not value.startswith("/") or value.endswith("/") or "//" in value:
        raise ConfigError(f"root of ZooKeeper is a path such as {ROOT}, not {value!r}")


def _is_hosts(instance: object, attribute: attrs.Attribute[str], value: object) -> None:
    if not isinstance(value, str):
        raise ConfigError(f"hosts of ZooKeeper must be a str, not {value!r}", remedy='Write "zk1:2181,zk2:2181,zk3:2181".')
    if not value.strip():
        raise ConfigError("hosts of ZooKeeper names none", remedy='Write "zk1:2181,zk2:2181,zk3:2181".')


def _is_acl(instance: object, attribute: attrs.Attribute[str], value: str) -> None:
    if value not in ("creator", "open"):
        raise ConfigError(f'acl of ZooKeeper is "creator" or "open", not {value!r}')


def _pairs(value: Iterable[Any]) -> tuple[tuple[str, str], ...]:
    pairs = tuple(tuple(pair) if isinstance(pair, (tuple, list)) else () for pair in value)
    if not all(len(pair) == 2 and all(isinstance(part, str) for part in pair) for pair in pairs):
        raise ConfigError(
            "auth of ZooKeeper is no list of pairs of texts", remedy='Write (("digest", "user:password"),), with both commas.'
        )
    return pairs


@attrs.frozen(kw_only=True)
class ZooKeeper:
    """Options for the connection to ZooKeeper, and for elections.

    Args:
        hosts: ``host:port`` of each member, with commas between them.
        session_timeout: seconds without contact after which ZooKeeper ends the session. The server limits the value to 2 to 20
            ticks (4 to 40 s by default). Delivery stops a little earlier.
        takeover_delay: seconds until standbys take over; the former owner may restart meanwhile.
        root: path above all nodes.
        auth: (scheme, credential) pairs, such as ``("digest", "user:password")``.
        acl: "creator": with ``auth`` only clients with the same credentials may read and change the nodes, and open nodes of
            the destination become private. "open": all clients may, as without ``auth``.
        options: further arguments of ``kazoo.client.KazooClient``, such as those for TLS.
    """

    hosts: str = attrs.field(validator=_is_hosts)
    session_timeout: float = attrs.field(default=10.0, validator=positive)
    takeover_delay: float = attrs.field(default=5.0, validator=not_negative)
    root: str = attrs.field(default=ROOT, validator=_is_root)
    auth: tuple[tuple[str, str], ...] = attrs.field(default=(), converter=_pairs, repr=False)
    acl: Literal["creator", "open"] = attrs.field(default="creator", validator=_is_acl)
    options: dict[str, Any] = attrs.field(factory=dict, repr=False)

    def destination_path(self, destination: str, *parts: str) -> str:
        """Return the path to a destination's node, or to a node under it."""
        return "/".join((self.root, "destinations", destination, *parts))

    @property
    def farewell(self) -> float:
        """Seconds to wait for the last answers before a session is closed."""
        return min(self.session_timeout / 4, 5.0)

    @property
    def is_creators(self) -> bool:
        """Whether nodes are private to clients with the same credentials."""
        return bool(self.auth) and self.acl == "creator"
