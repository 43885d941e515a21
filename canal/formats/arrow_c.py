"""The structures of Arrow's C data interface, which the compiled build has from the ``.pxd`` beside it.

The interpreted one makes each array by a call of pyarrow.
"""
