"""Pipes: the loop from an Instance to a target, which acks what the target has committed."""

from canal.pipes.loop import Pipe, PipeStatus, Retry, pipe

__all__ = ["Pipe", "PipeStatus", "Retry", "pipe"]
