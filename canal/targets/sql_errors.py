"""What an error of an SQL server means, by its own codes: SQLSTATE of PostgreSQL, numbers of MySQL and MariaDB.

Never sees a value of a row.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

from canal.errors import CanalError, ConnectionLostError, TargetError, TargetSchemaError
from canal.targets.work import conflict


class Kind(enum.Enum):
    """What can be done about an error."""

    ROW = "row"
    """The server refuses a row; others may pass."""

    LOST = "lost"
    """The connection is gone."""

    CONFLICT = "conflict"
    """Another writer was quicker, or holds a lock."""

    ACCOUNT = "account"
    """The server refuses the user, the password or the database."""

    RIGHTS = "rights"
    """The user may not do it."""

    SCHEMA = "schema"
    """A table or column is not as it must be."""

    OTHER = "other"
    """Anything else, which may pass."""


#: By SQLSTATE, or its beginning; the longer one counts.
_STATES: Final[Mapping[str, Kind]] = {
    "22": Kind.ROW,
    "23": Kind.ROW,
    "08": Kind.LOST,
    "57P": Kind.LOST,
    "40": Kind.CONFLICT,
    "55P03": Kind.CONFLICT,
    "28": Kind.ACCOUNT,
    "3D": Kind.ACCOUNT,
    "42501": Kind.RIGHTS,
    "42": Kind.SCHEMA,
    "3F": Kind.SCHEMA,
    "0A": Kind.SCHEMA,
}
_NUMBERS: Final[Mapping[int, Kind]] = {
    **dict.fromkeys((1205, 1213), Kind.CONFLICT),  # lock wait timeout, deadlock
    **dict.fromkeys((1053, 1927, 2002, 2003, 2006, 2013, 2055), Kind.LOST),
    **dict.fromkeys((1045, 1049, 1130, 1251, 1275, 1524, 1698, 1820, 1862, 2059, 2061, 3118, 4151), Kind.ACCOUNT),
    **dict.fromkeys((1044, 1142, 1143, 1227, 1370, 1410), Kind.RIGHTS),
    **dict.fromkeys((1050, 1054, 1059, 1060, 1064, 1071, 1072, 1101, 1146, 1170, 1235), Kind.SCHEMA),
    **dict.fromkeys((1292, 1364, 1366, 1416, 3140, 3819, 4025), Kind.ROW),
}


def kind_of_state(state: str | None) -> Kind:
    """What an SQLSTATE means."""
    found = (_STATES.get((state or "")[:length]) for length in (5, 3, 2))
    return next((kind for kind in found if kind is not None), Kind.OTHER)


def kind_of_number(number: int) -> Kind:
    """What an error number of MySQL means."""
    return _NUMBERS.get(number, Kind.OTHER)


def error_of(kind: Kind, said: str, target: str, user: str) -> CanalError:
    """The error for what a server said, which is none about a row."""
    if kind is Kind.LOST:
        return ConnectionLostError(f"the connection to {target} broke: {said}")
    if kind is Kind.CONFLICT:
        return conflict(f"another writer holds what is to be written: {said}")
    if kind is Kind.ACCOUNT:
        return TargetError(
            f"{target} refuses the user {user!r}: {said}",
            is_lasting=True,
            remedy="Check the user, the password and the database of the target, and start the pipe again.",
        )
    if kind is Kind.RIGHTS:
        return TargetError(
            f"{target} refuses the user {user!r} a statement: {said}",
            is_lasting=True,
            remedy="Grant the rights that the page of the target names (canal check tells which are missing), and start again.",
        )
    if kind is Kind.SCHEMA:
        return TargetSchemaError(f"{target} refuses: {said}", remedy="See that its tables have the columns of the source.")
    return TargetError(f"{target} refuses: {said}")
