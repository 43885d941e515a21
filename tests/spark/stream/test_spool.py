"""The spool of a query: what is removed of others' spools, and who may write there."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from canal.errors import ConfigError
from canal.spool.spool import Spool
from tests.support.engine import Engine
from tests.support.shop import Shop

# -- the spool -------------------------------------------------------------------------------------------------------------------


def test_what_a_killed_runner_left_is_removed_and_a_living_one_is_left_alone(
    shop: Shop, query: Callable[..., Engine], tmp_path: Path
) -> None:
    with query() as one:
        one.start()
        one.step()
        root = tmp_path / "spool"
        (alive,) = (path for path in root.iterdir() if path.is_dir())
        dead = root / f"{alive.name.rpartition('-')[0]}-dead"
        dead.mkdir()
        (dead / "00000001").write_bytes(b"x")
        dead.with_name(dead.name + ".lock").touch()
        with query() as two:
            two.start()
            two.step()
            assert not dead.exists()
            assert alive.exists()
        shop.insert(1)
        one.until(1)


def test_what_a_killed_runner_left_under_another_host_name_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At once where only this machine can have made it, else when nobody has touched it for a day: it may live elsewhere."""
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    shared = tmp_path / "shared"
    for root in (None, str(shared)):
        Spool(root).close()
        parent = Path(root or tmp_path / f"canal-spool-{os.getuid()}")
        left = [parent / f"{name}-77-abc" for name in ("old-name", "old-name-too")]
        for directory in left:
            directory.mkdir()
            directory.with_name(directory.name + ".lock").touch()
        if root:
            os.utime(f"{left[0]}.lock", (0, 0))
        spool = Spool(root)
        assert [directory.exists() for directory in left] == [False, root is not None]
        os.utime(f"{spool.directory}.lock", (0, 0))
        spool._touched -= 7200
        spool.release(0)  # as every poll does
        monkeypatch.setattr("socket.gethostname", lambda: "new-name")
        Spool(root).close()
        assert spool.directory.exists()
        spool.close()


def test_the_spool_is_private(shop: Shop, query: Callable[..., Engine], tmp_path: Path) -> None:
    with query() as engine:
        engine.start()
        engine.step()
        assert os.stat(tmp_path / "spool").st_mode & 0o77 == 0


@pytest.mark.parametrize("kind", ["open to all", "a link"])
def test_a_spool_where_others_can_write_is_refused(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    parent = tmp_path / f"canal-spool-{os.getuid()}"
    Spool(None).close()
    parent.rmdir()
    if kind == "a link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        parent.symlink_to(tmp_path / "elsewhere")
    else:
        parent.mkdir()
        parent.chmod(0o777)
    with pytest.raises(ConfigError, match="not this user's alone"):
        Spool(None)
