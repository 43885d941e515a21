"""What the bytes of the log say: events, transactions, and whether anything is missing."""
