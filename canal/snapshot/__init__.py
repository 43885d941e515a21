"""Existing rows of tables, read in chunks of a key at a known position. Knows a source and columns, no target."""
