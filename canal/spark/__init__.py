"""Spark: a streaming source on the binlog, its snapshot, and sinks that keep a table equal to MySQL's.

Never imports PySpark before something of it is used.
"""
