"""Numbers and layouts of the binary log, and what each server line supports. Values only."""
