"""Public helpers for tests: a fake binlog, throwaway servers, a fault proxy, a load generator.

Imports nothing by itself: each helper is a module of its own.
"""
