"""The state machine of the election: every state with every event, and what must hold whatever happens."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canal.ha.machine import OWNING, TABLE, Action, Event, Role, step

ALL = list(itertools.product(Role, Event))
#: What may follow from a look, a claim or a start that was under way when contact was lost.
LATE = {
    Event.FREE,
    Event.GONE,
    Event.TAKEN,
    Event.OWN,
    Event.STALE,
    Event.RETIRED,
    Event.CLAIMED,
    Event.REFUSED,
    Event.READY,
    Event.BROKEN,
}


@pytest.mark.parametrize(("role", "event"), ALL, ids=lambda one: one.name)
def test_every_state_with_every_event(role: Role, event: Event) -> None:
    after, actions = step(role, event)

    if (role, event) not in TABLE:
        assert (after, actions) == (role, ())
    if event is Event.STOP and role is not Role.OFFLINE:
        assert after is Role.OFFLINE
        assert actions[-1] is Action.CLOSE
    if event is Event.LOST and role is not Role.OFFLINE:  # the instance is stopped before anything else
        assert after is Role.CONNECTING
        assert role not in OWNING or actions[:2] == (Action.PAUSE, Action.STOP_PARTS)
    if role is Role.ACTIVE and after is not Role.ACTIVE:
        assert actions[0] is Action.PAUSE
    if role in OWNING and after not in OWNING:
        assert Action.STOP_PARTS in actions
        assert not any(one in actions for one in (Action.GIVE_UP, Action.LOOK, Action.LEAVE, Action.CLOSE)) or (
            actions.index(Action.STOP_PARTS)
            < min(actions.index(one) for one in (Action.GIVE_UP, Action.LOOK, Action.LEAVE, Action.CLOSE) if one in actions)
        )
    if role not in OWNING:
        assert not {Action.RESUME, Action.STOP_PARTS} & set(actions)
    if Action.RESUME in actions:
        assert after is Role.ACTIVE
        assert event in (Event.READY, Event.OWN)
    if Action.MARK in actions:
        assert after is Role.ACTIVE
    if role in (Role.ACTIVE, Role.SUSPENDED) and after not in OWNING:
        assert Action.UNMARK in actions
    if Action.START_PARTS in actions:
        assert (role, event, after) == (Role.CLAIMING, Event.CLAIMED, Role.STARTING)
    if Action.CLAIM in actions:
        assert after is Role.CLAIMING
    if after in (Role.WAITING, Role.RESTING) and role is not after:
        assert actions[-1] in (Action.WAIT_TURN, Action.WAIT_REST)
    if role in (Role.WAITING, Role.RESTING) and after not in (role, Role.CLAIMING) and event is not Event.DUE:
        assert actions[0] is Action.NO_WAIT


@given(st.lists(st.sampled_from(list(Event)), max_size=60))
def test_no_history_delivers_without_owning_or_leaves_parts_running(history: list[Event]) -> None:
    role, running, flows, claimed = Role.OFFLINE, False, False, False
    for event in history:
        role, actions = step(role, event)
        for action in actions:
            if action is Action.START_PARTS:
                assert not running
                running = True
            elif action is Action.STOP_PARTS:
                running = flows = False
            elif action is Action.PAUSE:
                flows = False
            elif action is Action.RESUME:
                assert running
                flows = True
            elif action is Action.CLAIM:
                claimed = True
            elif action is Action.GIVE_UP:
                assert not running
        assert claimed or not running
        assert not flows or role is Role.ACTIVE
        assert running == (role in OWNING)


def test_every_role_can_be_reached_and_left() -> None:
    reached = {Role.OFFLINE}
    while True:
        further = {after for (role, _), (after, _) in TABLE.items() if role in reached}
        if further <= reached:
            break
        reached |= further
    assert reached == set(Role)
    assert all((role, Event.STOP) in TABLE for role in Role if role is not Role.OFFLINE)


def test_what_comes_late_does_no_harm() -> None:
    """An answer to a question that was asked before contact was lost."""
    for event in LATE:
        assert step(Role.CONNECTING, event) == (Role.CONNECTING, ())
        assert step(Role.OFFLINE, event) == (Role.OFFLINE, ())


def diagram() -> str:
    lines = ["stateDiagram-v2", "    [*] --> offline"]
    grouped: dict[tuple[Role, Role], list[str]] = {}
    for (role, event), (after, _) in TABLE.items():
        if role is not after and event is not Event.STOP:
            grouped.setdefault((role, after), []).append(event.name.lower())
    lines += [f"    {role.value} --> {after.value}: {', '.join(events)}" for (role, after), events in grouped.items()]
    return "\n".join(lines)


def test_the_docs_draw_the_table() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "high-availability.md").read_text()

    assert diagram() in text
