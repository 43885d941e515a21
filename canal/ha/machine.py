"""Which process is active: the state machine of one destination in one process, as a table.

Never does anything: an event in a state gives the next state and the actions to carry out, in order.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final


class Role(enum.Enum):
    """The states."""

    OFFLINE = "offline"
    """Not started, or stopped."""
    CONNECTING = "connecting"
    """No session with ZooKeeper."""
    STANDBY = "standby"
    """Another process is active; this one watches."""
    WAITING = "waiting"
    """The owner is gone; it gets some seconds to come back before this process takes over."""
    CLAIMING = "claiming"
    """Writing its name into the running node."""
    STARTING = "starting"
    """It owns the node and starts its parts."""
    ACTIVE = "active"
    """It delivers."""
    SUSPENDED = "suspended"
    """It was active and has lost contact: delivery and acks pause until it is known who owns the node."""
    RESTING = "resting"
    """Released by an operator, or its claim or its start has failed: others go first."""


class Event(enum.Enum):
    START = "start() is called"
    STOP = "stop() is called"
    CONNECTED = "there is a session, or contact again"
    DISCONNECTED = "contact is lost, the session may live"
    LOST = "the session is over"
    CHANGED = "the running node has changed"
    FREE = "no running node, and no other process was seen to own it last"
    GONE = "no running node; another process owned it last"
    TAKEN = "another process owns the running node"
    OWN = "this session owns the running node"
    STALE = "the running node is this process's, of an earlier session"
    RETIRED = "an operator has written active=false into our running node"
    CLAIMED = "the running node is written"
    REFUSED = "the running node could not be written: another process was quicker, or there was no answer"
    READY = "the parts run"
    BROKEN = "the running node may not be written, or the parts could not be started"
    FENCED = "a write was refused because another process has taken over, or the lease is over"
    CLIENTS = "a client has subscribed or unsubscribed"
    RELEASE = "an operator asks for a release"
    DUE = "the wait is over"


class Action(enum.Enum):
    OPEN = "open the session"
    CLOSE = "close the session"
    JOIN = "write the cluster nodes"
    LEAVE = "remove the cluster nodes"
    LOOK = "read the running node and watch it"
    CLAIM = "raise the epoch and write the running node, in one transaction"
    GIVE_UP = "remove the running node, if it is ours"
    START_PARTS = "start the parts from the stored cursors"
    STOP_PARTS = "stop the parts"
    MARK = "look at the running nodes of its clients, and write those that are missing"
    UNMARK = "remove the running nodes of its clients"
    RESUME = "let deliveries and acks through"
    PAUSE = "let nothing through"
    WAIT_TURN = "wait for takeover_delay"
    WAIT_REST = "wait for takeover_delay, longer after each failure in a row"
    NO_WAIT = "forget the wait"


R, E, A = Role, Event, Action
#: Leaving the active role, in this order: nothing is delivered any more before anything else happens.
_DOWN: Final = (A.PAUSE, A.STOP_PARTS, A.UNMARK)

#: What is not in the table changes nothing.
TABLE: Final[Mapping[tuple[Role, Event], tuple[Role, tuple[Action, ...]]]] = {
    (R.OFFLINE, E.START): (R.CONNECTING, (A.OPEN,)),
    (R.CONNECTING, E.CONNECTED): (R.STANDBY, (A.JOIN, A.LOOK)),
    (R.CONNECTING, E.STOP): (R.OFFLINE, (A.LEAVE, A.CLOSE)),
    # -- another process is active
    (R.STANDBY, E.CHANGED): (R.STANDBY, (A.LOOK,)),
    (R.STANDBY, E.FREE): (R.CLAIMING, (A.CLAIM,)),
    (R.STANDBY, E.GONE): (R.WAITING, (A.WAIT_TURN,)),
    (R.STANDBY, E.OWN): (R.STANDBY, (A.GIVE_UP, A.LOOK)),
    (R.STANDBY, E.RETIRED): (R.STANDBY, (A.GIVE_UP, A.LOOK)),
    (R.STANDBY, E.STALE): (R.STANDBY, (A.GIVE_UP, A.LOOK)),
    (R.STANDBY, E.DISCONNECTED): (R.CONNECTING, ()),
    (R.STANDBY, E.LOST): (R.CONNECTING, ()),
    (R.STANDBY, E.STOP): (R.OFFLINE, (A.LEAVE, A.CLOSE)),
    # -- the owner is gone
    (R.WAITING, E.CHANGED): (R.STANDBY, (A.NO_WAIT, A.LOOK)),
    (R.WAITING, E.TAKEN): (R.STANDBY, (A.NO_WAIT,)),
    (R.WAITING, E.DUE): (R.CLAIMING, (A.CLAIM,)),
    (R.WAITING, E.DISCONNECTED): (R.CONNECTING, (A.NO_WAIT,)),
    (R.WAITING, E.LOST): (R.CONNECTING, (A.NO_WAIT,)),
    (R.WAITING, E.STOP): (R.OFFLINE, (A.NO_WAIT, A.LEAVE, A.CLOSE)),
    # -- taking over
    (R.CLAIMING, E.CLAIMED): (R.STARTING, (A.START_PARTS,)),
    (R.CLAIMING, E.REFUSED): (R.STANDBY, (A.LOOK,)),
    (R.CLAIMING, E.BROKEN): (R.RESTING, (A.GIVE_UP, A.WAIT_REST)),
    (R.CLAIMING, E.DISCONNECTED): (R.CONNECTING, ()),
    (R.CLAIMING, E.LOST): (R.CONNECTING, ()),
    (R.CLAIMING, E.STOP): (R.OFFLINE, (A.GIVE_UP, A.LEAVE, A.CLOSE)),
    (R.STARTING, E.READY): (R.ACTIVE, (A.LOOK, A.RESUME, A.MARK)),
    (R.STARTING, E.BROKEN): (R.RESTING, (A.STOP_PARTS, A.GIVE_UP, A.WAIT_REST)),
    (R.STARTING, E.FENCED): (R.STANDBY, (*_DOWN, A.LOOK)),
    (R.STARTING, E.DISCONNECTED): (R.SUSPENDED, ()),
    (R.STARTING, E.LOST): (R.CONNECTING, _DOWN),
    (R.STARTING, E.STOP): (R.OFFLINE, (*_DOWN, A.GIVE_UP, A.LEAVE, A.CLOSE)),
    # -- active
    (R.ACTIVE, E.CHANGED): (R.ACTIVE, (A.LOOK,)),
    (R.ACTIVE, E.CLIENTS): (R.ACTIVE, (A.MARK,)),
    (R.ACTIVE, E.OWN): (R.ACTIVE, (A.RESUME, A.MARK)),  # where contact was lost and found again during a look
    (R.ACTIVE, E.FREE): (R.STANDBY, (*_DOWN, A.LOOK)),
    (R.ACTIVE, E.GONE): (R.STANDBY, (*_DOWN, A.LOOK)),
    (R.ACTIVE, E.TAKEN): (R.STANDBY, _DOWN),
    (R.ACTIVE, E.STALE): (R.STANDBY, (*_DOWN, A.GIVE_UP, A.LOOK)),
    (R.ACTIVE, E.RETIRED): (R.RESTING, (*_DOWN, A.GIVE_UP, A.WAIT_REST)),
    (R.ACTIVE, E.RELEASE): (R.RESTING, (*_DOWN, A.GIVE_UP, A.WAIT_REST)),
    (R.ACTIVE, E.FENCED): (R.STANDBY, (*_DOWN, A.LOOK)),
    (R.ACTIVE, E.DISCONNECTED): (R.SUSPENDED, (A.PAUSE,)),
    (R.ACTIVE, E.LOST): (R.CONNECTING, _DOWN),
    (R.ACTIVE, E.STOP): (R.OFFLINE, (*_DOWN, A.GIVE_UP, A.LEAVE, A.CLOSE)),
    # -- contact is lost
    (R.SUSPENDED, E.CONNECTED): (R.SUSPENDED, (A.LOOK,)),
    (R.SUSPENDED, E.CHANGED): (R.SUSPENDED, (A.LOOK,)),
    (R.SUSPENDED, E.OWN): (R.ACTIVE, (A.RESUME, A.MARK)),
    (R.SUSPENDED, E.FREE): (R.STANDBY, (*_DOWN, A.LOOK)),
    (R.SUSPENDED, E.GONE): (R.STANDBY, (*_DOWN, A.LOOK)),
    (R.SUSPENDED, E.TAKEN): (R.STANDBY, _DOWN),
    (R.SUSPENDED, E.STALE): (R.STANDBY, (*_DOWN, A.GIVE_UP, A.LOOK)),
    (R.SUSPENDED, E.RETIRED): (R.RESTING, (*_DOWN, A.GIVE_UP, A.WAIT_REST)),
    (R.SUSPENDED, E.RELEASE): (R.RESTING, (*_DOWN, A.GIVE_UP, A.WAIT_REST)),
    (R.SUSPENDED, E.FENCED): (R.STANDBY, (*_DOWN, A.LOOK)),
    (R.SUSPENDED, E.BROKEN): (R.RESTING, (*_DOWN, A.GIVE_UP, A.WAIT_REST)),
    (R.SUSPENDED, E.LOST): (R.CONNECTING, _DOWN),
    (R.SUSPENDED, E.STOP): (R.OFFLINE, (*_DOWN, A.GIVE_UP, A.LEAVE, A.CLOSE)),
    # -- released, or not able to start
    (R.RESTING, E.DUE): (R.STANDBY, (A.LOOK,)),
    (R.RESTING, E.DISCONNECTED): (R.CONNECTING, (A.NO_WAIT,)),
    (R.RESTING, E.LOST): (R.CONNECTING, (A.NO_WAIT,)),
    (R.RESTING, E.STOP): (R.OFFLINE, (A.NO_WAIT, A.LEAVE, A.CLOSE)),
}

#: Roles in which the parts may run.
OWNING: Final = frozenset((R.STARTING, R.ACTIVE, R.SUSPENDED))


def step(role: Role, event: Event) -> tuple[Role, tuple[Action, ...]]:
    """The next role and what to do; the same role and nothing where the event means nothing."""
    return TABLE.get((role, event), (role, ()))
