"""Changes in the forms of other systems: canal's columns and JSON, Arrow.

Never imports a format that is not asked for.
"""
