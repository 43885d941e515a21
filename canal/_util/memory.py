"""Errors by which the process shows that it has no memory left, whatever their type."""

from __future__ import annotations

import errno


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an exception, or the one that caused it, means that memory could not be had."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, MemoryError) or (isinstance(seen, OSError) and seen.errno == errno.ENOMEM):
            return True
        # OpenSSL and the start of a thread report it by a text only.
        if isinstance(seen, (OSError, RuntimeError)) and ("malloc failure" in str(seen) or "start new thread" in str(seen)):
            return True
        seen = seen.__cause__ or seen.__context__
    return False
