"""Decodes the bytes of the log into events and transactions, and checks that no part is missing."""
