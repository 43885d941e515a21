"""The rows that a table has before its changes are followed: chunks of a key, their values, files of them."""
