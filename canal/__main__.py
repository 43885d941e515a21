"""``python -m canal``: see :mod:`canal.cli`."""

from canal.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
