"""Interfaces compatible with other libraries, on top of an Instance."""
