"""A headless browser for tests, driven over a pipe by the protocol of Chromium's developer tools."""

from __future__ import annotations

import base64
import json
import os
import platform
import subprocess
import time
from pathlib import Path
from typing import Any, Self

from tests.support.fix_spark import ROOT

TREE = ROOT / ".servers/chromium"


class Browser:
    """One page of a Chromium of its own."""

    def __init__(self, folder: Path, size: tuple[int, int] = (1100, 760)) -> None:
        libraries = TREE.resolve() / "usr/lib" / f"{platform.machine()}-linux-gnu"
        environment = {
            **os.environ,
            "LD_LIBRARY_PATH": f"{libraries}:{libraries}/pulseaudio:{TREE.resolve()}/lib/{libraries.name}",
            "FONTCONFIG_SYSROOT": str(TREE.resolve()),
            "HOME": str(folder),
        }
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()
        command = [
            str(TREE.resolve() / "usr/lib/chromium/chromium-headless-shell"),
            "--no-sandbox",
            "--disable-gpu",
            "--remote-debugging-pipe",
            f"--user-data-dir={folder}",
            f"--window-size={size[0]},{size[1]}",
            "about:blank",
        ]
        # It reads its 3 and writes its 4.
        shell = f'exec "$@" 3<&{theirs_in} 4>&{theirs_out} {theirs_in}<&- {theirs_out}>&-'
        with (folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                ["bash", "-c", shell, "bash", *command], pass_fds=(theirs_in, theirs_out), env=environment, stderr=log, stdout=log
            )
        os.close(theirs_in)
        os.close(theirs_out)
        self._in, self._out = os.fdopen(ours_in, "rb", 0), os.fdopen(ours_out, "wb", 0)
        self._left = b""
        self._number = 0
        self._session = ""
        self.messages: list[Any] = []
        (page,) = (one for one in self.call("Target.getTargets")["targetInfos"] if one["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> Any:
        """What the browser answers; events that come before it are kept in ``messages``."""
        self._number += 1
        request = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            request["sessionId"] = self._session
        self._out.write(json.dumps(request).encode() + b"\0")
        while True:
            while b"\0" not in self._left:
                read = self._in.read(1 << 16)
                assert read, "the browser has ended"
                self._left += read
            text, _, self._left = self._left.partition(b"\0")
            message = json.loads(text)
            if message.get("id") == self._number:
                assert "error" not in message, message
                return message["result"]
            self.messages.append(message)

    def evaluate(self, expression: str) -> Any:
        """The value of an expression in the page."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait(self, expression: str) -> Any:
        """The value of an expression when it is true."""
        deadline = time.monotonic() + 60
        while not (found := self.evaluate(expression)):
            assert time.monotonic() < deadline, f"{expression}: {self.evaluate('document.body.innerText')}"
            time.sleep(0.05)
        return found

    def picture(self) -> bytes:
        return base64.b64decode(self.call("Page.captureScreenshot")["data"])

    def complaints(self) -> list[Any]:
        """Errors of scripts, and what the policy of the page has forbidden."""
        kinds = ("Runtime.exceptionThrown", "Log.entryAdded")
        return [one["params"] for one in self.messages if one.get("method") in kinds]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._out.close()  # it ends with its pipe
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._in.close()
