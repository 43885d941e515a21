"""The commands of ``canal``."""
