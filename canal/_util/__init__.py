"""Helpers for all rooms. They import no room."""
