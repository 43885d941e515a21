"""Entries as bytes: segments of records, and the directory of them that one process writes."""
