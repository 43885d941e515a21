"""What the ring asks of the system's scheduler; the compiled build has it from the ``.pxd`` beside it."""

import os


def give_way() -> None:
    """Let a thread go first that was woken just now and waits for this core or for the interpreter."""
    os.sched_yield()
