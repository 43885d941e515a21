"""Which columns a table had at a position: statements, table maps, and a history of both."""
