"""Scheduler calls of the ring. The compiled build uses the ``.pxd`` file instead."""

import os


def give_way() -> None:
    """Let a thread run that was just woken and waits for this core or the interpreter lock."""
    os.sched_yield()
