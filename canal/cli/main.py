"""The command line: ``canal tail`` prints changes as people read them, ``canal ha`` tells who runs which destination,
``canal top`` watches them.

Never keeps a cursor: it is for looking, not for processing.
"""

from __future__ import annotations

import argparse
import getpass
import json
import logging
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import FrameType
from typing import Any

import canal
from canal import formats
from canal.changes import Reader
from canal.cli import run as service
from canal.cli import top
from canal.formats.canal_json import to_canal_json
from canal.ha import overview
from canal.model import Entry, EntryType, EventType, Message, Row
from canal.parse.source.mysql import URL_FORM, database, parse_url
from canal.parse.source.preflight import look
from canal.zookeeper.session import ROOT, Session

_STYLES = {EventType.INSERT: "green", EventType.UPDATE: "yellow", EventType.DELETE: "red"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; gives the exit status."""
    options = _parser().parse_args(arguments)
    handler = logging.StreamHandler()
    handler.setFormatter(_VisibleFormatter("%(levelname)s %(message)s"))
    logging.basicConfig(level=logging.DEBUG if options.verbose else logging.WARNING, handlers=[handler])
    try:
        return int(options.run(options))
    except KeyboardInterrupt:
        return 0
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that the flush at exit finds no pipe
        return 0
    except canal.CanalError as error:
        print(f"canal: {visible(str(error))}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="canal", description="Changes of a MySQL or MariaDB server, as they happen.")
    build = "compiled" if canal.compiled else "interpreted"
    parser.add_argument("--version", action="version", version=f"canal {canal.__version__} ({build})")
    commands = parser.add_subparsers(dest="command", required=True)
    _tail_options(commands)
    _run_options(commands)
    _check_options(commands)
    _ha_options(commands)
    top.options(commands, _top)
    return parser


def _tail_options(commands: Any) -> None:
    tail = commands.add_parser(
        "tail",
        help="print changes",
        description="Print the changes of a server (mysql://user@host:port/) or of binlog files (a file or directory).",
        epilog="The password comes from the URL, from CANAL_PASSWORD, or is asked for.",
    )
    tail.add_argument("source", help="mysql://user[:password]@host[:port]/[?ssl_mode=…], a binlog file, or a directory")
    tail.add_argument(
        "--schema", help="of files that do not name their columns: a file of CREATE TABLE statements, or mysql://… to ask"
    )
    tail.add_argument(
        "--lower-case-table-names", type=int, choices=(0, 1, 2), help="the setting of the server that wrote the files"
    )
    tail.add_argument(
        "--unknown-columns", choices=("positions", "error", "leave_out"), default="positions",
        help="of tables whose columns nobody knows: @1, @2 and so on (default), an error, or none of their rows",
    )  # fmt: skip
    tail.add_argument("--filter", default="", help=r"tables to show, in canal's syntax, such as 'shop\..*'")
    tail.add_argument("--black-filter", default="", help="tables not to show")
    tail.add_argument(
        "--start",
        "--since",
        metavar="START",
        help="latest, earliest, JOURNAL:OFFSET, an age such as 90s, 15m, 1h or 2d, or a time such as "
        "2026-11-21T10:00:00+00:00; without a zone it is in this machine's",
    )
    tail.add_argument("--follow", action="store_true", help="go on with what is appended to the files")
    forms = tail.add_mutually_exclusive_group()
    forms.add_argument("--json", action="store_true", help="one canal-json object per line for each event, of one or more rows")
    forms.add_argument(
        "--format", choices=formats.TEXTS, help="a line for each row in this form; docs/formats.md has them side by side"
    )
    tail.add_argument(
        "--limit", type=int, default=0, metavar="N", help="stop after N entries, each of one or more rows (0: never)"
    )
    tail.add_argument("--verbose", action="store_true", help="log what the library does")
    tail.set_defaults(run=_tail)


def _run_options(commands: Any) -> None:
    run = commands.add_parser(
        "run",
        help="run the destinations of a configuration",
        description="Run all destinations of a configuration, and follow its changes: canal's conf directory, or TOML files.",
        epilog="SIGTERM and Ctrl-C end it: what is in hand is rolled back and comes again.",
    )
    run.add_argument("path", help="a directory with canal.properties or TOML files, or one of them")
    run.add_argument(
        "--handler", metavar="MODULE:FUNCTION",
        help="called with (destination, message), which is acked when it returns; without it, and without a pipe, changes are "
        "printed as canal-json",
    )  # fmt: skip
    run.add_argument("--interval", type=float, metavar="SECONDS", help="between two looks at the files")
    run.add_argument("--check", action="store_true", help="only tell whether it can be used, and which keys have no meaning")
    run.add_argument("--verbose", action="store_true", help="log what the library does")
    run.set_defaults(run=_run)


def _check_options(commands: Any) -> None:
    check = commands.add_parser(
        "check",
        help="look at a server, and at the target of a pipe, before the start",
        description="Look at a server's settings and the user's privileges, and tell what mends what is amiss; of a file as "
        "`canal run` takes it at the sources and targets of all its destinations.",
        epilog="The password comes from the URL, from CANAL_PASSWORD, or is asked for. "
        "The exit status is 1 where an instance could not run.",
    )
    check.add_argument("source", help="mysql://user[:password]@host[:port]/[?ssl_mode=…], or a TOML file")
    check.add_argument("--verbose", action="store_true", help="log what the library does")
    check.set_defaults(run=_check)


def _check(options: argparse.Namespace) -> int:
    if _is_url(options.source):
        found = [("", one) for one in look(_server(options.source))]
    elif Path(options.source).exists():
        found = list(service.look_at(canal.server.DirectorySource(options.source)))
    else:
        raise canal.ConfigError("a server is named by its URL", remedy=f"{URL_FORM}, or give a file that is there")
    for where, one in found:
        print(visible(f"{where}{one}"))
    return int(any(one.level == "error" for _, one in found))


def _ha_options(commands: Any) -> None:
    ha = commands.add_parser("ha", help="look at the destinations that processes run by turns")
    actions = ha.add_subparsers(dest="action", required=True)
    status = actions.add_parser("status", help="show who runs what, who stands by, and where the clients are")
    release = actions.add_parser("release", help="let another process take a destination over")
    for command in (status, release):
        command.add_argument("hosts", metavar="ZK_HOSTS", help="members of ZooKeeper, as zk1:2181,zk2:2181,zk3:2181")
        command.add_argument("destination", metavar="DESTINATION", nargs="?" if command is status else None)
        command.add_argument("--root", default=ROOT, help=f"where the tree begins (default: {ROOT})")
        command.add_argument("--timeout", type=float, default=10.0 if command is status else 60.0, metavar="SECONDS")
        command.add_argument("--verbose", action="store_true", help="log what the library does")
        command.epilog = "Credentials come from CANAL_ZOOKEEPER_AUTH, such as digest:user:password."
    status.add_argument("--json", action="store_true", help="a JSON array of destinations")
    status.set_defaults(run=_ha_status)
    release.set_defaults(run=_ha_release)


def _run(options: argparse.Namespace) -> int:
    source = canal.server.DirectorySource(options.path)
    if options.check:
        return service.check(source, lambda line: print(visible(line)))
    handler = service.handler(options.handler) if options.handler else _print_of
    return service.run(source, handler, options.interval)


def _print_of(destination: str, message: Message) -> None:
    _print_json(message)
    sys.stdout.flush()


def _tail(options: argparse.Namespace) -> int:
    if options.limit < 0:
        raise canal.ConfigError(f"--limit must be at least 0, not {options.limit}")
    live = _is_url(options.source)
    source: Any = _server(options.source) if live else _local(options)
    start = _start(options.start or ("latest" if live else "earliest"))
    filter = options.filter or (_database(options.source) if live else "")
    config = canal.InstanceConfig(
        destination="tail", source=source, filter=filter, black_filter=options.black_filter, start=start,
        alarm=_alarm, unknown_columns=options.unknown_columns,
    )  # fmt: skip
    if live:
        for name in ("schema", "lower_case_table_names"):
            if getattr(options, name) is not None:
                option = "--" + name.replace("_", "-")
                raise canal.ConfigError(f"{option} is for binlog files", remedy="A server is asked.")
        source.connect().close()  # the instance would try for ever: here a wrong port is a mistake of the command line
    printer: Callable[[Message], int] = _print_json if options.json else _Printer().print
    if options.format:
        printer = _EncodedPrinter(options.format).print
    total = 0 if live or options.follow else _size(Path(options.source))
    shown = 0
    with _progress(total) as advance, canal.Instance(config) as instance, _ended_by_ctrl_c(instance):
        instance.subscribe()
        if live:
            _greet(source, instance.position(), filter)
        for message in instance.stream(poll=0.2):
            message.entries = [entry for entry in message.entries if entry.entry_type is EntryType.ROWDATA]
            if options.limit:
                message.entries = message.entries[: options.limit - shown]
            shown += len(message.entries)
            printer(message)
            if not total:  # what reads a pipe should not wait for more
                sys.stdout.flush()
            if total and message.entries:
                advance(_done(Path(options.source), message.entries[-1]))
            if options.limit and shown >= options.limit:
                break
    sys.stdout.flush()
    return 0


def _greet(source: canal.MySQLSource, start: canal.Position, filter: str) -> None:
    """A first line, on stderr: what is written to stdout are the changes."""
    colour = "" if _has_rich() or not sys.stdout.isatty() else "; pip install 'canal-cdc[cli]' adds colour"
    text = f"connected to {source.address}, from {start}" + (f", {filter}" if filter else "") + f": waiting for changes{colour}"
    print(visible(f"canal: {text} (Ctrl-C ends it)"), file=sys.stderr, flush=True)


@contextmanager
def _ended_by_ctrl_c(instance: canal.Instance) -> Iterator[None]:
    """Ctrl-C stops the instance, and only a second one interrupts: a KeyboardInterrupt out of a wait may leave its lock to
    be released by who does not hold it."""
    pressed = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        if pressed:
            raise KeyboardInterrupt
        pressed = True
        threading.Thread(target=instance.stop, name="canal-stop").start()

    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:  # ignored, or somebody else's
        yield
        return
    signal.signal(signal.SIGINT, stop)
    try:
        yield
    except canal.CanalError:
        if not pressed:
            raise
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _alarm(destination: str, text: str) -> None:
    """Prints lost connections at once; what stops the parser is printed by main()."""
    if getattr(text, "kind", None) is not canal.AlarmKind.STOPPED:
        logging.warning(text)


def _is_url(text: str) -> bool:
    """Raises ConfigError for any other URL: as the name of a file it would be shown, with its password."""
    scheme, colon, rest = text.partition(":")
    if not colon or not rest.startswith("/") or not scheme.isalnum() or Path(text).exists():
        return False
    if scheme.lower() not in ("mysql", "mariadb") or not rest.startswith("//"):
        raise canal.ConfigError(f"a URL that begins with {scheme}:/ is none of a server", remedy=URL_FORM)
    return True


def _local(options: argparse.Namespace) -> canal.LocalBinlogSource:
    schema: str | canal.MySQLSource | None = None
    if options.schema and _is_url(options.schema):
        schema = _server(options.schema)
    elif options.schema:
        try:
            schema = Path(options.schema).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise canal.ConfigError(f"cannot read --schema {options.schema}: {error}") from error
    return canal.LocalBinlogSource(
        options.source, follow=options.follow, schema=schema, lower_case_table_names=options.lower_case_table_names
    )


def _server(url: str) -> canal.MySQLSource:
    found = parse_url(url)
    if "password" not in found:
        password = os.environ.get("CANAL_PASSWORD")
        if password is None and sys.stdin.isatty():
            password = getpass.getpass(f"Password of {found['user']}@{found['host']}: ")
        found["password"] = password or ""
    return canal.MySQLSource(**found)


def _database(url: str) -> str:
    """A filter of the database that a URL names; "" for none."""
    name = database(url)
    return rf"{re.escape(name)}\..*" if name else ""


_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def _start(text: str) -> str | canal.Position:
    if text in ("latest", "earliest"):
        return text
    journal, _, offset = text.rpartition(":")
    if journal and offset.isdigit() and not journal[0].isdigit():
        return canal.Position(journal=journal, offset=int(offset))
    try:
        if text[:-1].isdigit() and text[-1] in _SECONDS:
            moment = datetime.now(UTC) - timedelta(seconds=int(text[:-1]) * _SECONDS[text[-1]])
        else:
            moment = datetime.fromisoformat(text).astimezone(UTC)
        return canal.Position(timestamp=int(moment.timestamp() * 1000))
    except (ValueError, OverflowError):
        raise canal.ConfigError(
            f"--start (or --since) {text!r} is neither latest, earliest, JOURNAL:OFFSET, an age such as 1h nor a time such as "
            "2026-11-21T10:00:00+00:00"
        ) from None


# -- printing ----------------------------------------------------------------------------------------------------------

#: What a terminal obeys, or what changes the order in which it shows a line: C0, DEL, C1, ends of lines, directions, and halves
#: of characters, which cannot be written.
_CONTROLS = re.compile("[\0-\x08\n-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


def visible(text: str) -> str:
    """Text for one line of a terminal: what would control it is shown as an escape."""
    return _CONTROLS.sub(lambda found: ascii(found[0])[1:-1], text)


def _json_line(text: str) -> str:
    """JSON with escapes for what is valid in it, and controls a terminal."""
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _has_rich() -> bool:
    try:
        import rich.console  # noqa: F401
    except ImportError:
        return False
    return True


class _VisibleFormatter(logging.Formatter):
    """A message takes one line, whatever is in it; a traceback keeps its lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return visible(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:
        return "\n".join(map(visible, super().formatException(ei).split("\n")))


def _print_json(message: Message) -> int:
    for line in to_canal_json(message.entries, batch_id=message.id):
        print(_json_line(line))
    return 0


class _EncodedPrinter:
    """Prints changes in a form of ``canal.formats``."""

    def __init__(self, name: str) -> None:
        self._encode = formats.encoder_of(name)
        self._reader = Reader(is_log=True)

    def print(self, message: Message) -> int:
        for entry in message.entries:
            for change in self._reader.changes(entry):
                if text := self._encode(change):
                    print("\n".join(map(_json_line, text.split("\n"))))
        self._reader.forget(self._reader.mark())
        return 0


class _Printer:
    """Prints changes for people, in colour where the terminal has it."""

    def __init__(self) -> None:
        try:
            from rich.console import Console
            from rich.markup import escape

            console = Console(highlight=False, soft_wrap=True)
            self._out: Callable[[str], None] = console.print
            self._escape: Callable[[str], str] = escape
            self._colour = True
        except ImportError:
            self._out, self._escape, self._colour = print, str, False

    def print(self, message: Message) -> int:
        for entry in message.entries:
            self._entry(entry)
        return 0

    def _entry(self, entry: Entry) -> None:
        header = entry.header
        when = datetime.fromtimestamp(header.execute_time / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
        name = f"{header.schema}.{header.table}" if header.table else header.schema
        position = f"{header.journal}:{header.offset}" + (f"  {header.gtid}" if header.gtid else "")
        style = _STYLES.get(header.event_type, "cyan")
        self._line("bold " + style, f"{header.event_type.name} {name}", "dim", f"  {when}Z  {position}")
        if entry.table is None:
            first, *more = entry.row_change.sql.replace("\r\n", "\n").split("\n")
            for line in (first, *("  " + line for line in more)):
                self._line("cyan", "  " + line)
        for row in entry.rows:
            if row.before is None:
                self._line("green", "  + " + _values(row.after))
            elif row.after is None:
                self._line("red", "  - " + _values(row.before))
            else:
                self._line("yellow", "  ~ " + _difference(row.before, row.after))

    def _line(self, *pairs: str) -> None:
        pairs = tuple(map(visible, pairs))
        if self._colour:
            self._out("".join(f"[{style}]{self._escape(text)}[/]" for style, text in zip(pairs[::2], pairs[1::2])))
        else:
            self._out("".join(pairs[1::2]))


def _values(row: Row | None) -> str:
    return "" if row is None else "  ".join(f"{name}={_text(value)}" for name, value in row.as_dict().items())


def _difference(before: Row, after: Row) -> str:
    parts = []
    for name, new in after.as_dict().items():
        old = before[name]
        if old == new and type(old) is type(new):
            parts.append(f"{name}={_text(new)}")
        elif new is canal.ABSENT:
            parts.append(f"{name}={_text(old)}")
        else:
            parts.append(f"{name}: {_text(old)} → {_text(new)}")
    return "  ".join(parts)


def _text(value: object) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        return "0x" + value[:32].hex() + ("…" if len(value) > 32 else "")
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False) if len(value) <= 200 else json.dumps(value[:200], ensure_ascii=False) + "…"
    return str(value)


# -- progress over files -----------------------------------------------------------------------------------------------


def _files(path: Path) -> list[Path]:
    from canal.position import journal_key

    if not path.is_dir():
        return [path]
    names = [name for name in path.iterdir() if name.is_file() and name.suffix[1:].isdigit()]
    return sorted(names, key=lambda name: journal_key(name.name))


def _size(path: Path) -> int:
    return sum(file.stat().st_size for file in _files(path)) if path.exists() else 0


def _done(path: Path, entry: Entry) -> int:
    done = 0
    for file in _files(path):
        if file.name == entry.header.journal:
            return done + entry.header.offset
        done += file.stat().st_size
    return done


def _progress(total: int) -> AbstractContextManager[Callable[[int], None]]:
    """A progress bar on stderr when that is a terminal and stdout is not the same one."""
    if not total or not sys.stderr.isatty() or sys.stdout.isatty():
        return nullcontext(lambda done: None)
    try:
        return _RichProgress(total)
    except ImportError:
        return nullcontext(lambda done: None)


class _RichProgress(AbstractContextManager[Callable[[int], None]]):
    def __init__(self, total: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

        self._progress = Progress(
            BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn(), console=Console(stderr=True)
        )
        self._task = self._progress.add_task("binlog", total=total)
        self._total = total

    def __enter__(self) -> Callable[[int], None]:
        self._progress.start()
        return lambda done: self._progress.update(self._task, completed=done)

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is None:
            self._progress.update(self._task, completed=self._total)
        self._progress.stop()


# -- high availability -------------------------------------------------------------------------------------------------


@contextmanager
def _zookeeper(options: argparse.Namespace) -> Iterator[Session]:
    scheme, _, credential = os.environ.get("CANAL_ZOOKEEPER_AUTH", "").partition(":")
    auth = [(scheme, credential)] if scheme else []
    session = Session(canal.ZooKeeper(hosts=options.hosts, root=options.root, auth=auth))
    kazoo = logging.getLogger("canal.ha.kazoo")
    with ExitStack() as leaving:
        if not options.verbose:
            leaving.callback(kazoo.setLevel, kazoo.level)
            kazoo.setLevel(logging.CRITICAL)
        leaving.callback(session.close)
        session.open()
        if not session.wait_connected(min(options.timeout, 10.0)):
            raise canal.CoordinationError(
                f"ZooKeeper at {options.hosts} does not answer",
                remedy="Check the addresses, and that a majority of its members runs.",
            )
        yield session


def _top(options: argparse.Namespace) -> int:
    if top.is_page(options.source):
        rates: top.Rates = {}

        def look() -> tuple[list[tuple[str, ...]], list[str]]:
            found = top.read_page(options.source, options.timeout)
            return top.page_rows(found, rates), found["problems"]

        return top.show(look, visible, options.interval, options.once)
    options.hosts = options.source
    with _zookeeper(options) as session:

        def look() -> tuple[list[tuple[str, ...]], list[str]]:
            found = [overview.look_at(session, name) for name in overview.destinations(session)]
            return top.overview_rows(found, time.time()), [sentence for one in found for sentence in one.damaged]

        return top.show(look, visible, options.interval, options.once)


def _ha_status(options: argparse.Namespace) -> int:
    with _zookeeper(options) as session:
        names = [options.destination] if options.destination else overview.destinations(session)
        found = [overview.look_at(session, name) for name in names]
    now = time.time()
    if options.json:
        print(json.dumps([_ha_document(one, now) for one in found], indent=2))
    elif not found:
        print(f"no destination under {options.root}")
    else:
        print("\n".join(visible(line) for one in found for line in _ha_lines(one, now)))
    return 1 if any(one.damaged for one in found) else 0


def _ha_release(options: argparse.Namespace) -> int:
    with _zookeeper(options) as session:
        old, new = overview.release(session, options.destination, options.timeout)
    print(visible(f"{options.destination}: {old} has let go, {new.owner} runs it (epoch {new.epoch})"))
    return 0


def _ha_document(one: overview.DestinationOverview, now: float) -> dict[str, Any]:
    return {
        "destination": one.name, "owner": one.owner or None, "active": one.active,
        "since": _moment(one.since) if one.owner else None, "epoch": one.epoch, "members": list(one.members),
        "clients": [
            {
                "id": client.id, "filter": client.filter,
                "cursor": json.loads(client.cursor.to_text()) if client.cursor else None,
                "acked": _moment(client.acked) if client.acked else None, "behind_at_most_s": client.behind(now),
            }
            for client in one.clients
        ],
        "damaged": list(one.damaged),
    }  # fmt: skip


def _ha_lines(one: overview.DestinationOverview, now: float) -> Iterator[str]:
    yield one.name
    if one.owner:
        asked = "" if one.active else "  (asked to let go)"
        yield f"  runs on   {one.owner}  since {_moment(one.since)} ({now - one.since:.0f} s)  epoch {one.epoch}{asked}"
    else:
        yield f"  runs on   no process  epoch {one.epoch}"
    for member in one.standbys:
        yield f"  stands by {member}"
    for client in one.clients:
        yield f"  client {client.id}" + (f"  filter {client.filter}" if client.filter else "")
        if client.cursor is None:
            yield "    a cursor that cannot be read" if client.problem else "    no cursor"
            continue
        behind = client.behind(now)
        yield f"    acked     {client.cursor}" + (f"  at {_moment(client.acked)}" if client.acked else "")
        if behind is not None:
            yield f"    behind    {behind:.1f} s at most: the last change that was acked is as old"
    for sentence in one.damaged:
        yield f"  damaged   {sentence}"


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
