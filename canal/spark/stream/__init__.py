"""What a query's process reads of the log, and where a batch of it begins and ends."""
