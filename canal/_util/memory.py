"""Detection of out-of-memory errors of any type."""

from __future__ import annotations

import errno


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an exception or its cause means that memory allocation failed."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, MemoryError) or (isinstance(seen, OSError) and seen.errno == errno.ENOMEM):
            return True
        # OpenSSL and thread creation report it only by message.
        if isinstance(seen, (OSError, RuntimeError)) and ("malloc failure" in str(seen) or "start new thread" in str(seen)):
            return True
        seen = seen.__cause__ or seen.__context__
    return False
