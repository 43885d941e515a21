"""Arguments that several commands take: a server, binlog files."""

from __future__ import annotations

import argparse
import getpass
import os
import sys
from pathlib import Path

import canal
from canal.parse.source.mysql import URL_FORM, parse_url


def is_url(text: str) -> bool:
    """Return if the text is a server's URL. Raise ConfigError for other URLs: as a file name they would show the password."""
    scheme, colon, rest = text.partition(":")
    if not colon or not rest.startswith("/") or not scheme.isalnum() or Path(text).exists():
        return False
    if scheme.lower() not in ("mysql", "mariadb") or not rest.startswith("//"):
        raise canal.ConfigError(f"{scheme}:/ does not begin the URL of a server", remedy=URL_FORM)
    return True


def local(options: argparse.Namespace) -> canal.LocalBinlogSource:
    schema: str | canal.MySQLSource | None = None
    if options.schema and is_url(options.schema):
        schema = server(options.schema)
    elif options.schema:
        try:
            schema = Path(options.schema).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise canal.ConfigError(f"cannot read --schema {options.schema}: {error}") from error
    return canal.LocalBinlogSource(
        options.source, follow=options.follow, schema=schema, lower_case_table_names=options.lower_case_table_names
    )


def server(url: str) -> canal.MySQLSource:
    found = parse_url(url)
    if "password" not in found:
        password = os.environ.get("CANAL_PASSWORD")
        if password is None and sys.stdin.isatty():
            password = getpass.getpass(f"Password of {found['user']}@{found['host']}: ")
        found["password"] = password or ""
    return canal.MySQLSource(**found)
