"""A real browser for tests: Debian's chromium without a window, over its DevTools socket."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

from tests.support.waiting import wait_for

ANSWER_BYTES_MAX = 64 * 1024 * 1024
# Against hanging for ever, not a measure.
PATIENCE_S = 120.0
OPTIONS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
    *("--no-first-run", "--disable-background-networking", "--remote-debugging-port=0"),
)
FIND = (
    "((selector, text) => [...document.querySelectorAll(selector)]"
    ".find((one) => !text || one.textContent.includes(text)))"
)


class BrowserMissing(Exception):
    """There is no chromium on this machine."""


@contextmanager
def chromium() -> Iterator[Browser]:
    """A chromium process of one's own, ended afterwards."""
    program = shutil.which("chromium")
    if program is None:
        raise BrowserMissing("chromium is not installed; scripts/system-packages.sh installs it")
    folder = Path(tempfile.mkdtemp(prefix="hf-browser-"))
    process = subprocess.Popen(
        [program, *OPTIONS, f"--user-data-dir={folder}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        address = wait_for(lambda: _address(folder), "chromium to listen", timeout_s=PATIENCE_S)
        with connect(str(address), max_size=ANSWER_BYTES_MAX, compression=None) as socket:
            yield Browser(socket)
    finally:
        process.kill()
        process.wait(timeout=PATIENCE_S)
        shutil.rmtree(folder, ignore_errors=True)


def _address(folder: Path) -> str | None:
    """Where it listens; it writes port and path into its folder."""
    try:
        port, path = (folder / "DevToolsActivePort").read_text("utf-8").split()
    except (FileNotFoundError, ValueError):
        return None
    return f"ws://127.0.0.1:{port}{path}"


class Browser:
    """A running chromium; every page has cookies and storage of its own."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._number = 0
        self._pages: dict[str, Page] = {}

    @contextmanager
    def page(self, *, width: int, height: int) -> Iterator[Page]:
        """A page nobody has used; an error in its scripts that nobody caught fails the test."""
        context = self.ask("Target.createBrowserContext")["browserContextId"]
        target = self.ask(
            "Target.createTarget",
            {"url": "about:blank", "browserContextId": context, "width": width, "height": height},
        )["targetId"]
        attached = self.ask("Target.attachToTarget", {"targetId": target, "flatten": True})
        page = Page(self, attached["sessionId"])
        self._pages[page.session] = page
        try:
            page.prepare(width, height)
            yield page
        finally:
            del self._pages[page.session]
            self.ask("Target.disposeBrowserContext", {"browserContextId": context})
        assert page.errors == []

    def ask(
        self, method: str, parameters: dict[str, Any] | None = None, *, session: str | None = None
    ) -> dict[str, Any]:
        """One DevTools command and its answer; events that come before it reach their pages."""
        self._number += 1
        number = self._number
        command = {"id": number, "method": method, "params": parameters or {}}
        self._socket.send(json.dumps(command | ({"sessionId": session} if session else {})))
        while True:
            heard = json.loads(self._socket.recv(timeout=PATIENCE_S))
            if heard.get("id") == number:
                assert "error" not in heard, f"{method}: {heard.get('error')}"
                answer: dict[str, Any] = heard["result"]
                return answer
            page = self._pages.get(heard.get("sessionId", ""))
            if page is not None and "method" in heard:
                page.happened(heard["method"], heard["params"])


class Page:
    """One page; everything waits until it can be done."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self.session = session
        self.errors: list[str] = []

    def prepare(self, width: int, height: int) -> None:
        """What every page begins with."""
        for domain in ("Page", "Runtime", "Network"):
            self._ask(f"{domain}.enable")
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self._ask("Emulation.setDeviceMetricsOverride", size)

    def happened(self, method: str, parameters: dict[str, Any]) -> None:
        """Errors are kept."""
        if method == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(parameters["exceptionDetails"])[:2000])

    def goto(self, url: str) -> None:
        """Open an address."""
        self._ask("Page.navigate", {"url": url})
        self.wait("document.readyState === 'complete'", f"{url} to be loaded")

    def reload(self) -> None:
        """Load the page anew."""
        self.evaluate("window.isOld = true")
        self._ask("Page.reload")
        self.wait("!window.isOld && document.readyState === 'complete'", "a reload")

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression."""
        asked = {"expression": expression, "returnByValue": True, "awaitPromise": True}
        answer = self._ask("Runtime.evaluate", asked)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, expression: str, what: str) -> None:
        """Until a JavaScript expression is true."""
        wait_for(lambda: self._true(expression), f"{what} in the browser", timeout_s=PATIENCE_S)

    def see(self, selector: str, text: str = "") -> None:
        """Until there is such an element, with this text in it."""
        self.wait(f"Boolean({_found(selector, text)})", f"{selector} {text!r}")

    def miss(self, selector: str, text: str = "") -> None:
        """Until there is no such element."""
        self.wait(f"!{_found(selector, text)}", f"no {selector} {text!r}")

    def click(self, selector: str, text: str = "") -> None:
        """Click on an element as soon as it is there and may be clicked."""
        one = _found(selector, text)
        self.wait(f"{one} && !{one}.disabled", f"{selector} {text!r}")
        self.evaluate(f"{one}.click()")

    def write(self, selector: str, text: str) -> None:
        """Put text into a field as a keyboard would."""
        self.see(selector)
        self.evaluate(f"{_found(selector, '')}.focus()")
        self._ask("Input.insertText", {"text": text})

    def text(self, selector: str) -> str:
        """What an element shows."""
        self.see(selector)
        return str(self.evaluate(f"{_found(selector, '')}.innerText"))

    def offline(self, *, cut: bool) -> None:
        """Cut requests off from the network, or let them through again."""
        conditions = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
        self._ask("Network.emulateNetworkConditions", {"offline": cut, **conditions})

    def picture(self) -> bytes:
        """A PNG of what is seen."""
        return base64.b64decode(self._ask("Page.captureScreenshot", {"format": "png"})["data"])

    def _true(self, expression: str) -> bool:
        try:
            return bool(self.evaluate(expression))
        except AssertionError:
            return False  # the page was just being replaced

    def _ask(self, method: str, parameters: dict[str, Any] | None = None) -> dict[str, Any]:
        return self._browser.ask(method, parameters, session=self.session)


def _found(selector: str, text: str) -> str:
    return f"{FIND}({json.dumps(selector)}, {json.dumps(text)})"
