"""``python -m canal``: see :mod:`canal.cli`."""

from canal.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
