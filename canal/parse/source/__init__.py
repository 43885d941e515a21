"""Sources of a binary log: a server, or binlog files."""
