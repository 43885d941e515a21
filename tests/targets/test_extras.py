"""Public names whose libraries are not installed."""

from __future__ import annotations

import subprocess
import sys

#: The missing module, the package and name that need it, and the extra that brings it.
MISSING = [
    ("pyarrow", "canal.targets", "DeltaTarget", "lake"),
    ("pyarrow", "canal.targets", "IcebergTarget", "lake"),
    ("pyarrow", "canal.targets", "ParquetTarget", "lake"),
    ("psycopg", "canal.targets", "PostgreSQLTarget", "postgresql"),
    ("pyarrow", "canal.spark", "foreach_batch", "spark"),
    ("pyarrow", "canal.spark", "apply_changes", "spark"),
]


def test_name_whose_library_is_not_installed_raises_an_error_with_the_extra() -> None:
    code = (
        "import sys\n"
        f"for module in {sorted({one[0] for one in MISSING})}:\n"
        "    sys.modules[module] = None\n"
        "import importlib, canal\n"
        f"for module, package, name, extra in {MISSING}:\n"
        "    try:\n"
        "        getattr(importlib.import_module(package), name)('x').begin('s').__enter__()\n"
        "    except canal.ConfigError as error:\n"
        '        print(f"canal-cdc[{extra}]" in str(error) and module in str(error))\n'
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["True"] * len(MISSING)
