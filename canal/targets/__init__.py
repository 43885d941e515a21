"""Targets: where changes go."""
