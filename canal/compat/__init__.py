"""Interfaces of other libraries over an Instance."""
