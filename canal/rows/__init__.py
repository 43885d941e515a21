"""Bytes of row events to values; what user code and executors import, and nothing of the stream."""
