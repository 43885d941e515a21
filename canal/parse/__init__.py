"""Parsing: from a source of binlog bytes to entries."""
