"""Stores entries as bytes, in segments of records in a directory of one process."""
