"""The former home of ``canal.targets.tables.outcome``."""

from canal.targets.tables.outcome import fit as fit
from canal.targets.tables.outcome import outcome as outcome
from canal.targets.tables.outcome import where as where
from canal.targets.tables.outcome import wider as wider
