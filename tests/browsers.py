"""A real browser, spoken to over its own pipe: no driver, no package, no port."""

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

CHROMIUM = next((p for n in ("chromium", "chromium-browser", "google-chrome")
                 if (p := shutil.which(n))), None)  # fmt: skip

# The browser reads commands on descriptor 3 and answers on 4; this puts our pipes there.
_LAUNCH = """
import os, sys
read, write = os.dup(int(sys.argv[1])), os.dup(int(sys.argv[2]))
while min(read, write) < 5:
    read, write = os.dup(read), os.dup(write)
os.dup2(read, 3), os.dup2(write, 4)
os.execvp(sys.argv[3], sys.argv[3:])
"""


class Browser:
    """Headless Chromium over --remote-debugging-pipe: commands out, answers and events in."""

    def __init__(self, profile: Path) -> None:
        (theirs_in, self._out), (self._in, theirs_out) = os.pipe(), os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-c", _LAUNCH, str(theirs_in), str(theirs_out), CHROMIUM,
             "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
             "--disable-background-networking", "--disable-dev-shm-usage", "--no-first-run",
             "--remote-debugging-pipe", f"--user-data-dir={profile}"],
            pass_fds=(theirs_in, theirs_out),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(theirs_in)
        os.close(theirs_out)
        self._buffer, self._count = b"", 0
        self.events: list[dict] = []

    def call(self, method: str, session: str | None = None, **params: object) -> dict:
        self._count += 1
        message = {"id": self._count, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._count:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def _receive(self, timeout: float = 300) -> dict:
        deadline = time.monotonic() + timeout
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], max(0, deadline - time.monotonic()))
            data = os.read(self._in, 1 << 20) if ready else b""
            if not data:
                raise RuntimeError("The browser did not answer.")
            self._buffer += data
        text, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(text)

    def open(self, path: Path, *, width: int, height: int = 900) -> "Tab":
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        tab = Tab(browser=self, session=session)
        for domain in ("Page", "Runtime", "Network", "Log"):
            tab.call(f"{domain}.enable")
        tab.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                 deviceScaleFactor=1, mobile=width < 600)  # fmt: skip
        self.events.clear()
        tab.call("Page.navigate", url=path.as_uri())
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline:
            if tab.run("document.readyState === 'complete' && location.protocol === 'file:'"):
                tab.run("window.drawn")
                return tab
            time.sleep(0.05)
        raise RuntimeError("The page did not load.")

    def close(self) -> None:
        try:
            self.call("Browser.close")
            self._process.wait(10)
        except (RuntimeError, OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        os.close(self._out)
        os.close(self._in)


@dataclass(frozen=True, kw_only=True)
class Tab:
    """One open page; what it asked the network for, and what it complained of."""

    browser: Browser
    session: str

    def call(self, method: str, **params: object) -> dict:
        return self.browser.call(method, self.session, **params)

    def run(self, script: str) -> object:
        """The value of an expression in the page, promises awaited."""
        answer = self.call("Runtime.evaluate", expression=script, awaitPromise=True,
                           returnByValue=True)  # fmt: skip
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def _events(self, method: str) -> list[dict]:
        return [
            e["params"]
            for e in self.browser.events
            if e.get("method") == method and e.get("sessionId") == self.session
        ]

    @property
    def requests(self) -> list[str]:
        return [e["request"]["url"] for e in self._events("Network.requestWillBeSent")]

    @property
    def complaints(self) -> list[str]:
        said = [json.dumps([a.get("value", a.get("description")) for a in e["args"]])
                for e in self._events("Runtime.consoleAPICalled")
                if e["type"] in ("error", "warning", "assert")]  # fmt: skip
        logged = [e["entry"]["text"] for e in self._events("Log.entryAdded")
                  if e["entry"]["level"] in ("error", "warning")]  # fmt: skip
        thrown = [json.dumps(e) for e in self._events("Runtime.exceptionThrown")]
        return [*said, *logged, *thrown]

    def picture(self, path: Path) -> None:
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        data = self.call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)["data"]
        path.write_bytes(base64.b64decode(data))
