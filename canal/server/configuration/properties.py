"""Java's properties files: their text, and the references in their values.

Never decides what a key means.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from canal.errors import ConfigError

_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_BAD_UNICODE: Final = re.compile(r"(?<!\\)(?:\\\\)*\\u(?![0-9a-fA-F]{4})")
_KEY: Final = re.compile(r"((?:\\.|[^\\ \t\f=:])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
#: What stands for a byte that is not UTF-8.
_NOT_UTF8: Final = re.compile("[\udc80-\udcff]")
_BLANKS: Final = " \t\f"
_DEPTH: Final = 16


def parse(text: str, name: str) -> dict[str, str]:
    """Keys and values, as java.util.Properties reads them; ``name`` is that of the file, for errors.

    Raises:
        ConfigError: a line that is no comment is not UTF-8, a \\u escape has no four digits, or a key comes twice with different
            values.
    """
    found: dict[str, str] = {}
    for number, line in _lines(text):
        if _NOT_UTF8.search(line):
            raise ConfigError(
                f"{name}, line {number}: it is not UTF-8",
                remedy="Save the file as UTF-8, or write each such character as \\u and four hexadecimal digits.",
            )
        if _BAD_UNICODE.search(line):
            raise ConfigError(f"{name}, line {number}: \\u is followed by no four hexadecimal digits")
        matched = _KEY.fullmatch(line)
        assert matched is not None
        key, value = (_unescaped(part) for part in matched.groups())
        if found.get(key, value) != value:
            raise ConfigError(f"{name}, line {number}: {key} is there twice, with different values", remedy="Leave one out.")
        found[key] = value
    return found


def _lines(text: str) -> list[tuple[int, str]]:
    """The logical lines that say something, and where each begins."""
    lines: list[tuple[int, str]] = []
    held, begin = None, 0
    for number, line in enumerate(re.split("\r\n|\r|\n", text.removeprefix("\ufeff")), 1):
        line = line.lstrip(_BLANKS)
        if held is None and (not line or line[0] in "#!"):
            continue
        begin = begin if held is not None else number
        whole = (held or "") + line
        is_continued = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        held = whole[:-1] if is_continued else None
        if held is None:
            lines.append((begin, whole))
    return [*lines, (begin, held)] if held else lines


def _unescaped(text: str) -> str:
    def one(found: re.Match[str]) -> str:
        code = found[1]
        return chr(int(code[1:], 16)) if len(code) > 1 else _ESCAPES.get(code, code)

    return _ESCAPE.sub(one, text)


class Values:
    """Values by key, with their references resolved and each use noted.

    ``${name}`` is an environment variable, else another key; ``${name:default}`` has a default. ``${env:NAME}`` is an environment
    variable only, ``${file:/path}`` the text of a file without the line's end, as secrets are mounted. An environment
    variable that is called like a key wins over it, as in canal.

    Args:
        given: layers of keys, the first wins.
        where: the file, for errors, which never show a value.
    """

    def __init__(self, *given: Mapping[str, str], where: str, environ: Mapping[str, str] | None = None) -> None:
        self._environ = os.environ if environ is None else environ
        self._where = where
        self._given: dict[str, str] = {}
        for layer in reversed(given):
            self._given.update(layer)
        self.referred: set[str] = set()

    def all(self) -> list[str]:
        """All keys, in no order."""
        return list(self._given)

    def get(self, key: str) -> str:
        """The value without blanks around it; "" where there is none. Raises ConfigError for a reference that leads nowhere."""
        raw = self._environ.get(key, self._given.get(key, ""))
        return self._resolved(raw, key, 0).strip()

    def written(self, key: str) -> str:
        """As ``get``; the text as it is written where a reference leads nowhere."""
        try:
            return self.get(key)
        except ConfigError:
            return self._given.get(key, "")

    def _resolved(self, text: str, key: str, depth: int) -> str:
        if depth > _DEPTH:
            raise ConfigError(f"{self._where}: {key} refers to itself, or too deep")
        at = text.find("${")
        if at < 0:
            return text
        end = _closing(text, at + 2)
        if end < 0:
            return text
        value = self._reference(text[at + 2 : end], key, depth + 1)
        return text[:at] + value + self._resolved(text[end + 1 :], key, depth)

    def _reference(self, text: str, key: str, depth: int) -> str:
        if text.startswith("file:"):
            return self._secret(self._resolved(text[5:], key, depth), key)
        name, colon, default = (text[4:] if text.startswith("env:") else text).partition(":")
        own = None if text.startswith("env:") else self._given.get(name)
        self.referred.add(name)
        found = self._environ.get(name, own)
        if found is None and not colon:
            raise ConfigError(
                f"{self._where}: {key} refers to ${{{text}}}, which is neither an environment variable nor a key",
                remedy="Set it, or write ${NAME:default}.",
            )
        return self._resolved(default if found is None else found, key, depth)

    def _secret(self, path: str, key: str) -> str:
        try:
            return Path(path).read_text("utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{self._where}: {key} refers to the file {path}, which cannot be read: {error}") from error


def _closing(text: str, at: int) -> int:
    """Where the brace ends that is open before ``at``; -1 where it does not."""
    depth = 1
    for number in range(at, len(text)):
        if text.startswith("${", number):
            depth += 1
        elif text[number] == "}":
            depth -= 1
            if not depth:
                return number
    return -1
