"""Validators for attrs options: numbers, texts and paths. They do not convert values."""

from __future__ import annotations

import math
import os
from typing import Any

import attrs

from canal.errors import ConfigError


def positive(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if not isinstance(value, (int, float)) or not 0 < value < math.inf:
        raise _wrong(instance, attribute, "a number of more than 0", value)


def not_negative(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if not isinstance(value, (int, float)) or not value >= 0:
        raise _wrong(instance, attribute, "a number of at least 0", value)


def text(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """Check for a str. The message omits the value, which may be a password."""
    if not isinstance(value, str):
        raise ConfigError(f"{attribute.name} of {type(instance).__name__} must be a str, not {type(value).__name__}")


def file_path(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    path_of(value, f"{attribute.name} of {type(instance).__name__}")


def path_of(value: object, option: str) -> str:
    """Return a path as str; reject bytes.

    Raises:
        ConfigError: the value is not a path. The message names ``option``.
    """
    if not isinstance(value, (str, os.PathLike)):
        raise ConfigError(f"{option} must be a path, not {type(value).__name__}")
    return os.fspath(value)


def check_callable(value: object, option: str) -> None:
    if not callable(value):
        raise ConfigError(f"{option} must be callable, not {value!r}")


def _wrong(instance: object, attribute: attrs.Attribute[Any], what: str, value: object) -> ConfigError:
    return ConfigError(f"{attribute.name} of {type(instance).__name__} must be {what}, not {value!r}")
