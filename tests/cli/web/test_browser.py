"""The page in a real browser: what a user sees of it, and that it follows what happens.

``CANAL_PICTURE=FILE`` keeps a picture of it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import canal
from canal.cli import web
from canal.snapshot.copies import copying
from canal.targets import SQLiteTarget
from canal.testing import FakeBinlog
from tests.support.browser import TREE, Browser
from tests.support.waiting import until
from tests.support.web import NASTY, Refuse, served

pytestmark = pytest.mark.nightly


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    if not TREE.is_dir():
        if os.environ.get("CI") and os.environ.get("CANAL_TEST_SERVERS") != "skip":
            pytest.fail("there is no browser: run tests/servers/setup.sh chromium", pytrace=False)
        pytest.skip("NO BROWSER: run tests/servers/setup.sh chromium")
    folder = tmp_path / "browser"
    folder.mkdir()
    with Browser(folder) as browser:
        yield browser


def test_the_page_shows_what_happens(browser: Browser, tmp_path: Path) -> None:
    fake, broken = FakeBinlog(), FakeBinlog()
    orders = fake.table("shop", "orders", "id INT PRIMARY KEY, note VARCHAR(40)")
    broken.table("shop", "orders", "id INT PRIMARY KEY").insert({"id": 1})
    quiet: Any = lambda destination, text: None  # noqa: E731
    configs = [
        canal.InstanceConfig(destination="orders", source=fake, start="earliest", alarm=quiet),
        canal.InstanceConfig(destination="parcels", source=broken, start="earliest", alarm=quiet, hooks=[Refuse()]),
        canal.InstanceConfig(destination="idle", source=FakeBinlog(), alarm=quiet),
    ]
    with canal.Server(configs) as server:
        instance = server.instance("orders")
        instance.subscribe()
        server.instance("parcels").subscribe()
        until(lambda: server.status()["parcels"].state is canal.State.FAILED)
        pipe = canal.pipe(instance, SQLiteTarget(tmp_path / "copy.db"), client_id=7)
        with served(web.app(server, pipes=[pipe], allow=["start"], interval=0.05, idle=["idle"])) as address:
            browser.call("Page.navigate", url=address)
            browser.wait("document.querySelectorAll('section').length >= 4")
            text = browser.evaluate("document.body.innerText")
            assert "1 not well" in text
            assert NASTY in text
            assert browser.evaluate("document.images.length") == 0, "what an error says is no HTML"

            for number in range(50):
                orders.insert({"id": number, "note": "x"})
            rows = "[...document.querySelectorAll('[data-destination=orders] tr')].map(row => row.innerText).join('\\n')"
            browser.wait(f"({rows}).includes('50 row changes')")
            browser.wait(f"({rows}).includes('50 entries') || ({rows}).includes('150 entries')")
            while message := instance.get_without_ack(1000, timeout=0.5):
                instance.ack(message.id)
            browser.wait(f"/0 entries, 0 batches/.test({rows})")
            browser.wait(f"/client/.test({rows}) && ({rows}).includes(new Date().toISOString().slice(0, 10))")
            if os.environ.get("CANAL_PICTURE"):
                Path(os.environ["CANAL_PICTURE"]).write_bytes(browser.picture())

            with copying("orders", "shop.orders", 400) as tell:
                tell(150)
                browser.wait("document.body.innerText.includes('shop.orders\\t150 of about 400 rows')")
            browser.wait("!document.body.innerText.includes('snapshots')")

            browser.evaluate("window.confirm = () => true")
            idle = "[...document.querySelectorAll('h2')].find(one => one.innerText.startsWith('idle'))"
            browser.evaluate(f"{idle}.querySelector('button').click()")
            browser.wait("!document.body.innerText.includes('not started')")
            assert "idle" in server.destinations()
        browser.wait("document.getElementById('health').innerText === 'the process does not answer'")
    assert [one for one in browser.complaints() if "favicon" not in str(one) and "ERR_" not in str(one)] == []
