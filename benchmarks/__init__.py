"""Benchmarks: each checks its own answer and runs its contestants in turn against the same server."""
