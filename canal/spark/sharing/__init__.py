"""An Instance that a driver shares, and its queries: how they find it, and how they talk."""

from canal.spark.sharing.server import share as share
from canal.spark.sharing.server import unshare as unshare
