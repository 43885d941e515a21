"""The parts of an Instance and their optional capabilities, which only this module checks, when the Instance is created."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from canal.errors import ConfigError
from canal.ha import Heartbeat, SourceHealth
from canal.meta.protocol import AddressWriter, MetaManager
from canal.parse.parser import ClientAwareParser, EventParser, MergingParser, ParserInfo, SwitchingParser, parser_info
from canal.parse.schema.history import SchemaHistory
from canal.rows.mask import Masks
from canal.sink import EntrySink
from canal.sink.protocol import ExclusiveSink, MaskingSink, Sink
from canal.store.protocol import EntryStore


class Parts:
    """One parser, sink, store and meta manager.

    Args:
        sink: None: an ``EntrySink`` with the masks of the parsers.

    Attributes:
        parser_info: the parser, with defaults for the capabilities that it lacks.
        sources: the parsers of single sources: the members of a group, or the parser itself.
        client_aware: the parser, if it calls back for the clients' cursors.
        merging: the parser, if it merges several parsers.

    Raises:
        ConfigError: a part does not implement its Protocol, or the sink lacks a mask of the parser.
    """

    def __init__(self, parser: EventParser, sink: Sink | None, store: EntryStore, meta: MetaManager) -> None:
        _check(parser, EventParser)
        _check(store, EntryStore)
        _check(meta, MetaManager)
        self.parser, self.store, self.meta = parser, store, meta
        self.parser_info: ParserInfo = parser_info(parser)
        self.client_aware = parser if isinstance(parser, ClientAwareParser) else None
        self.merging = parser if isinstance(parser, MergingParser) else None
        self.sources = (parser,) if self.merging is None else tuple(self.merging.members.values())
        self.sink = _checked_sink(sink, self.sources)
        if isinstance(meta, AddressWriter):
            meta.address_of = self.parser_info.address_of

    @property
    def exclusive(self) -> tuple[object, ...]:
        """The parts that serve one Instance at a time."""
        is_shareable = not (isinstance(self.sink, ExclusiveSink) and self.sink.is_exclusive)
        return (self.meta, self.store, self.parser, *(() if is_shareable else (self.sink,)))

    @property
    def histories(self) -> list[SchemaHistory | None]:
        """The schema history of each source's parser."""
        return [parser_info(one).history for one in self.sources]

    def watch(self, heartbeat: Heartbeat, *, without_standby: bool) -> tuple[SourceHealth, ...]:
        """Create the heartbeats of the sources that have a standby, or of all sources.

        Raises:
            ConfigError: no parser can switch to a standby.
        """
        switching = [one for one in self.sources if isinstance(one, SwitchingParser)]
        if not switching:
            raise ConfigError(
                f"heartbeat needs a parser that can switch to a standby, and {type(self.parser).__name__} cannot",
                remedy="Use canal.parse.BinlogParser, implement canal.parse.parser.SwitchingParser, or omit heartbeat.",
            )
        watched = [one for one in switching if without_standby or one.other_source is not None]
        return tuple(SourceHealth(heartbeat, one.open_probe, one.switch) for one in watched)

    def status_of(self, part: object, kind: type[Any], *arguments: Any) -> Any:
        """Return the status of a part, or None if the part has none of this kind."""
        status: Callable[..., Any] | None = getattr(part, "status", None)
        found = status(*arguments) if callable(status) else None
        return found if isinstance(found, kind) else None


def _check(part: object, protocol: type[Any]) -> None:
    if not isinstance(part, protocol):
        missing = [name for name in dir(protocol) if not name.startswith("_") and not hasattr(part, name)]
        raise ConfigError(f"{part!r} does not implement {protocol.__name__}: it lacks {', '.join(missing)}")


def _checked_sink(sink: Sink | None, parsers: tuple[EventParser, ...]) -> Sink:
    masks = {table: columns for parser in parsers for table, columns in parser_info(parser).masks.masks.items()}
    if sink is None:
        return EntrySink(masks=Masks(masks))
    _check(sink, Sink)
    withheld = sink.masks.masks.keys() if isinstance(sink, MaskingSink) else set()
    if missing := masks.keys() - withheld:
        raise ConfigError(
            f"the parser masks {', '.join(sorted(missing))}, but the sink would pass statements that contain the values",
            remedy="Pass the parser's masks to EntrySink. A custom sink that drops these statements needs an attribute masks of "
            "type canal.rows.mask.Masks.",
        )
    return sink
