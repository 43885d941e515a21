"""Existing rows of tables."""
