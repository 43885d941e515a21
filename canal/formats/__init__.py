"""Changes in the forms of other systems: canal's columns and JSON, Debezium's and Maxwell's, Avro, Arrow.

Never imports a format that is not asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from canal._util.lazy import lazy_names
from canal.errors import ConfigError

if TYPE_CHECKING:
    from canal.formats.avro import DebeziumAvro, SchemaRegistry
    from canal.formats.canal_json import CanalJson
    from canal.formats.debezium_json import DebeziumJson
    from canal.formats.encoder import Encoded, Encoder
    from canal.formats.maxwell_json import MaxwellJson

__all__ = [
    "TEXTS",
    "CanalJson",
    "DebeziumAvro",
    "DebeziumJson",
    "Encoded",
    "Encoder",
    "MaxwellJson",
    "SchemaRegistry",
    "encoder_of",
]

#: Module and class of each encoder, by the name that a command line or a file gives it.
_ENCODERS: Final = {
    "canal-json": ("canal_json", "CanalJson"),
    "debezium-avro": ("avro", "DebeziumAvro"),
    "debezium-json": ("debezium_json", "DebeziumJson"),
    "maxwell-json": ("maxwell_json", "MaxwellJson"),
}
_HOMES: Final = {name: module for module, name in _ENCODERS.values()} | {
    "Encoded": "encoder",
    "Encoder": "encoder",
    "SchemaRegistry": "avro",
}
#: Names of formats that are text.
TEXTS: Final = ("canal-json", "debezium-json", "maxwell-json")


def encoder_of(name: str, **options: Any) -> Any:
    """The encoder of a name, such as ``encoder_of("debezium-json", schemas=True)``.

    Raises:
        ConfigError: there is no such format, or it has no such option.
    """
    if name not in _ENCODERS:
        raise ConfigError(f"there is no format {name!r}", remedy=f"There are {', '.join(_ENCODERS)}.")
    kind = _named(_ENCODERS[name][1])
    try:
        return kind(**options)
    except TypeError as error:
        raise ConfigError(f"the format {name} cannot be made of the options {', '.join(sorted(options))}") from error


_named = lazy_names(__name__, _HOMES)
if not TYPE_CHECKING:
    __getattr__ = _named
