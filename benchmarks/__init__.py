"""How fast the library is, beside everybody: ``python -m benchmarks --help``.

``loads`` has what servers write, ``contestants`` who reads it, ``race`` runs them in turn and refuses wrong answers, ``measures``
has what is no rate, ``report`` writes docs/benchmarks.md. The Spark source has a benchmark of its own (``spark_run.py``).
"""
