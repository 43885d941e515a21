"""Numbers among options: what cannot be is a ConfigError that names the option and its class."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import canal
from canal.testing import FakeBinlog

_INSTANCE = partial(canal.InstanceConfig, destination="x", source=FakeBinlog())
_ZOOKEEPER = partial(canal.ZooKeeper, hosts="zk1:2181")


@pytest.mark.parametrize("value", ["x", None, -1, float("nan"), 0])
@pytest.mark.parametrize(
    ("make", "option", "takes_nothing"),
    [
        (canal.Heartbeat, "interval", False),
        (canal.Heartbeat, "retries", True),
        (_ZOOKEEPER, "session_timeout", False),
        (_ZOOKEEPER, "takeover_delay", True),
        (_INSTANCE, "store_bytes", False),
        (_INSTANCE, "fallback_interval", True),
        (canal.MySQLSource, "read_timeout", False),
    ],
)
def test_what_is_no_such_number_is_refused(make: Callable[..., Any], option: str, takes_nothing: bool, value: object) -> None:
    if value == 0 and takes_nothing:
        assert getattr(make(**{option: value}), option) == 0
        return
    with pytest.raises(canal.ConfigError, match=f"^{option} of [A-Z].* must be a number of"):
        make(**{option: value})
