"""The decision where a stream begins: each rule once, and always an answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

import canal
from canal.parse.start import ON_LOST, RULES, Facts, How, decide

HERE, THERE = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "4e11fa47-71ca-11e1-9e33-c80aa9429562"
DONE = f"{HERE}:1-100"
STORED = canal.Position("binlog.000007", 4711, DONE, timestamp=1_700_000_000_000, server_id=1, source=HERE)
BY_FILE = canal.Position("binlog.000007", 4711, timestamp=1_700_000_000_000, server_id=1, source=HERE, tail="ab" * 16)
PROVED = attrs.evolve(STORED, incarnation="1699999000-1")
OLDEST = attrs.evolve(STORED, journal="binlog.000009", offset=4)
OF_MARIADB = canal.Position("binlog.000007", 4711, "0-1-100", source=HERE, incarnation="1699999000-1")
OLDEST_OF_MARIADB = attrs.evolve(OF_MARIADB, journal="binlog.000009", offset=4, incarnation="")
BEYOND_32_BITS = attrs.evolve(PROVED, offset=1 << 32)
MINUTE_AGO = canal.Position(timestamp=1_699_999_940_000)
MARIADB = canal.Position("binlog.000007", 4711, "0-1-100", timestamp=1_700_000_000_000, source=f"1@{HERE}")
CANALS = canal.Position("binlog.000007", 4711, timestamp=1_700_000_000_000)


def facts(position: canal.Position | None = None, configured: str | canal.Position = "latest", **others: Any) -> Facts:
    return Facts(**{"position": position, "configured": configured, "identity": HERE, "has_gtids": True, **others})


ELSEWHERE = canal.Position("b.000001", 4, source=THERE)
AT, FROM, BY_GTID = (
    canal.Position("binlog.000003", 154),
    canal.Position("binlog.000003", timestamp=1),
    canal.Position(gtid=DONE),
)

TABLE = [
    # GTID mode: the stored set first, a configured one on a first start only.
    (facts(STORED), "GTID set", How.GTID, STORED),
    (facts(STORED, identity=THERE), "GTID set", How.GTID, STORED),
    (facts(STORED, configured=canal.Position(gtid=f"{HERE}:1-5")), "GTID set", How.GTID, STORED),
    (facts(BY_GTID), "GTID set", How.GTID, BY_GTID),
    (facts(MARIADB, flavor="mariadb"), "GTID set", How.GTID, MARIADB),
    (facts(None, BY_GTID), "first start by GTID set", How.RESOLVE, BY_GTID),
    # A journal that can be proved to be the same goes before the GTID set; where it is gone, that tells the rest.
    (facts(PROVED), "same log", How.OFFSET, PROVED),
    (facts(PROVED, has_gtids=False), "same log", How.OFFSET, PROVED),
    (facts(PROVED, journals=("binlog.000007", "binlog.000008")), "same log", How.OFFSET, PROVED),
    (facts(PROVED, journals=("binlog.000009", "binlog.000010")), "purged log", How.OLDEST, OLDEST),
    (facts(PROVED, journals=("binlog.000001", "binlog.000002")), "GTID set", How.GTID, PROVED),
    (facts(PROVED, journals=("other.000009",)), "GTID set", How.GTID, PROVED),
    (facts(PROVED, journals=("binlog.000009",), identity=THERE), "GTID set", How.GTID, PROVED),
    (facts(PROVED, journals=("binlog.000009",), has_gtids=False), "same server", How.OFFSET, PROVED),
    (facts(OF_MARIADB, journals=("binlog.000009",), flavor="mariadb"), "purged log", How.OLDEST, OLDEST_OF_MARIADB),
    (facts(PROVED, identity=THERE), "GTID set", How.GTID, PROVED),
    (facts(BEYOND_32_BITS), "GTID set", How.GTID, BEYOND_32_BITS),
    (facts(BEYOND_32_BITS, has_gtids=False), "same log", How.OFFSET, BEYOND_32_BITS),
    # From a GTID set to journal and offset, and back.
    (facts(STORED, has_gtids=False), "same server", How.OFFSET, STORED),
    (facts(BY_FILE), "same server", How.OFFSET, BY_FILE),
    # A stored position of the same server, whatever its address is by now; canal's cursors do not name theirs.
    (facts(BY_FILE, has_gtids=False), "same server", How.OFFSET, BY_FILE),
    (facts(BY_FILE, configured="earliest", has_gtids=False), "same server", How.OFFSET, BY_FILE),
    (facts(CANALS, has_gtids=False), "same server", How.OFFSET, CANALS),
    # Another server: a standby, or a change behind one address.
    (facts(BY_FILE, identity=THERE, has_gtids=False), "other server", How.MATCH, BY_FILE),
    (facts(BY_FILE, identity=THERE), "other server", How.MATCH, BY_FILE),
    (facts(STORED, identity=THERE, has_gtids=False), "other server", How.MATCH, STORED),
    (facts(STORED, identity=f"2@{THERE}", flavor="mariadb"), "other server", How.MATCH, STORED),
    (facts(ELSEWHERE), "other server, no time", How.FAIL, ELSEWHERE),
    # Only a time.
    (facts(MINUTE_AGO), "time only", How.RESOLVE, MINUTE_AGO),
    # The log is gone.
    (facts(BY_FILE, lost=1), "lost, fail", How.FAIL, BY_FILE),
    (facts(BY_FILE, lost=2, on_lost="earliest"), "same server", How.OFFSET, BY_FILE),
    (facts(BY_FILE, lost=3, on_lost="earliest"), "lost, earliest", How.RESOLVE, "earliest"),
    (facts(STORED, lost=3, on_lost="latest"), "lost, latest", How.RESOLVE, "latest"),
    (facts(STORED, lost=1, threshold=0, on_lost="time"), "lost, time", How.RESOLVE, MINUTE_AGO),
    (facts(STORED, lost=3, on_lost="earliest", behind=AT), "lost, earliest", How.RESOLVE, AT),
    (facts(STORED, lost=3, on_lost="time", behind=AT), "lost, time", How.RESOLVE, AT),
    (facts(BY_GTID, lost=3, on_lost="time"), "lost, no time", How.RESOLVE, "earliest"),
    # Nothing stored.
    (facts(None, "latest"), "first start", How.RESOLVE, "latest"),
    (facts(None, "earliest"), "first start", How.RESOLVE, "earliest"),
    (facts(None, AT), "first start", How.RESOLVE, AT),
    (facts(None, FROM), "first start", How.RESOLVE, FROM),
    (facts(None, BY_GTID, has_gtids=False), "first start", How.RESOLVE, BY_GTID),
    (facts(None, BY_GTID, lost=9, on_lost="latest"), "first start by GTID set", How.RESOLVE, BY_GTID),
]


@pytest.mark.parametrize(("known", "rule", "how", "start"), TABLE)
def test_decide_known_facts_returns_rule_and_start(known: Facts, rule: str, how: How, start: str | canal.Position) -> None:
    decision = decide(known)

    assert (decision.rule, decision.how, decision.start) == (rule, how, start)


def test_decision_table_covers_every_rule() -> None:
    assert {rule for _, rule, _, _ in TABLE} == {rule.name for rule in RULES}
    assert len({rule.name for rule in RULES}) == len(RULES)


POSITIONS = st.none() | st.builds(
    canal.Position,
    journal=st.sampled_from(["", "b.000001"]),
    offset=st.integers(0, 9),
    gtid=st.sampled_from(["", DONE, "0-1-2"]),
    timestamp=st.sampled_from([0, 1, 10**12]),
    source=st.sampled_from(["", HERE, THERE]),
)


@given(
    position=POSITIONS,
    configured=st.sampled_from(["latest", "earliest"]) | POSITIONS.filter(bool),
    lost=st.integers(0, 4),
    on_lost=st.sampled_from(ON_LOST),
    has_gtids=st.booleans(),
    flavor=st.sampled_from(["mysql", "mariadb"]),
)
def test_decide_any_facts_skips_no_changes_without_policy(
    position: canal.Position | None, configured: Any, lost: int, on_lost: str, has_gtids: bool, flavor: str
) -> None:
    decision = decide(facts(position, configured, lost=lost, on_lost=on_lost, has_gtids=has_gtids, flavor=flavor))

    if position is not None and not lost:  # what is stored is never passed by for what is configured
        assert decision.start == position
    if decision.how is How.OFFSET:
        assert position is not None
        assert position.source in ("", HERE)
    if position is None:
        assert decision.start == configured


def test_decide_unknown_on_lost_raises() -> None:
    with pytest.raises(canal.ConfigError, match="on_lost"):
        decide(facts(on_lost="skip"))


def test_docs_list_every_start_rule_in_order() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "start-positions.md").read_text()

    rows = [f"| {number} | {rule.when} | {rule.then} |" for number, rule in enumerate(RULES, 1)]
    assert "\n".join(rows) in text
