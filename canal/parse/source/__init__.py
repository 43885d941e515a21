"""Where the log comes from: a server, or files."""
