"""Helpers that any room may import. Knows no room."""
