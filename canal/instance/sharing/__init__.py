"""An Instance for other processes of this machine: where it listens, who may log in, entries over a connection."""
