"""A headless Chromium with one page, driven by the messages of its DevTools protocol over two pipes, and a server of
static files. No package is needed for either.
"""

import base64
import fcntl
import itertools
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from patience import wait_until

# Chromium reads commands from file descriptor 3 and writes results to 4.
START = """import os, sys
commands, results, program = sys.argv[1:4]
os.dup2(int(commands), 3)
os.dup2(int(results), 4)
os.execvp(program, sys.argv[3:])"""
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--no-first-run")
OFFLINE = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"  # no other host can be reached
HIGH = 16  # descriptors above those that are replaced
KEYS = {" ": ("Space", 32), "ArrowLeft": ("ArrowLeft", 37), "ArrowUp": ("ArrowUp", 38), "Enter": ("Enter", 13)}
KEYS |= {"Escape": ("Escape", 27), "+": ("Equal", 187), "-": ("Minus", 189)}
KEYS |= {"ArrowRight": ("ArrowRight", 39), "ArrowDown": ("ArrowDown", 40), "Tab": ("Tab", 9), "Delete": ("Delete", 46)}
TEXTS = {" ": " ", "Enter": "\r"}


class Page:
    """The page of a browser: commands, JavaScript, and what a user does."""

    def __init__(self, commands: int, results: int, downloads: Path) -> None:
        self.commands, self.results, self.downloads = commands, results, downloads
        self.received = b""
        self.numbers, self.messages = itertools.count(1), list[str]()
        self.session: str | None = None
        self.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(downloads))
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """The result of a command; what the page writes to its console meanwhile is kept."""
        number = next(self.numbers)
        command = {"id": number, "method": method, "params": params}
        command |= {"sessionId": self.session} if self.session else {}
        os.write(self.commands, json.dumps(command).encode() + b"\0")
        while (message := self._next()).get("id") != number:
            self._keep(message)
        assert "error" not in message, message
        return message["result"]

    def run(self, script: str) -> Any:
        """The value of an expression in the page, awaited if it is a promise."""
        result = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def wait(self, condition: str) -> None:
        """Return when an expression in the page is true."""
        wait_until(lambda: self.run(condition))

    def open(self, address: str) -> None:
        self.call("Page.navigate", url=address)
        self.wait("document.readyState === 'complete'")

    def click(self, selector: str) -> None:
        x, y = self.run(
            f"(() => {{ const e = document.querySelector({selector!r}); e.scrollIntoView({{block: 'center'}});"
            "const b = e.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        self.drag([(x, y)])

    def drag(self, points: Sequence[tuple[float, float]]) -> None:
        """Press the mouse at the first point, move it through all, and release it."""
        kinds = ["mousePressed", *["mouseMoved"] * len(points), "mouseReleased"]
        button = {"button": "left", "buttons": 1, "clickCount": 1}
        for kind, (x, y) in zip(kinds, [points[0], *points, points[-1]], strict=True):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **button)

    def swipe(self, points: Sequence[tuple[float, float]]) -> None:
        """The same with a finger."""
        for kind, place in [("touchStart", points[0]), *(("touchMove", p) for p in points), ("touchEnd", None)]:
            touches = [] if place is None else [{"x": place[0], "y": place[1]}]
            self.call("Input.dispatchTouchEvent", type=kind, touchPoints=touches)

    def choose(self, selector: str, file: Path) -> None:
        """Choose a file in a file input."""
        root = self.call("DOM.getDocument")["root"]["nodeId"]
        node = self.call("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.call("DOM.setFileInputFiles", nodeId=node, files=[str(file)])

    def text(self, selector: str) -> str:
        """The visible text of an element."""
        return self.run(f"document.querySelector({selector!r}).innerText.trim()")

    def press(self, *keys: str) -> None:
        for key in keys:
            code, number = KEYS[key]
            values = {"key": key, "code": code, "windowsVirtualKeyCode": number}
            self.call("Input.dispatchKeyEvent", type="keyDown", text=TEXTS.get(key, ""), **values)
            self.call("Input.dispatchKeyEvent", type="keyUp", **values)

    def look(self, width: int, dark: bool, height: int = 900) -> None:
        """Give the window a width in pixels, that of a phone if it is narrow, and a colour scheme."""
        phone = width < 600
        size = {"width": width, "height": height, "deviceScaleFactor": 2 if phone else 1, "mobile": phone}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        self.call("Emulation.setTouchEmulationEnabled", enabled=phone)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def picture(self, path: Path) -> None:
        """A PNG file of the whole page."""
        found = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(found["data"]))

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self.received:
            part = os.read(self.results, 1 << 20)
            assert part, "Chromium has ended"
            self.received += part
        message, _, self.received = self.received.partition(b"\0")
        return json.loads(message)

    def _keep(self, message: dict[str, Any]) -> None:
        values = message.get("params", {})
        if message.get("method") == "Log.entryAdded":
            entry = values["entry"]
            self.messages.append(f"{entry['level']}: {entry['text']} {entry.get('url', '')}")
        elif message.get("method") == "Runtime.exceptionThrown":
            self.messages.append(str(values["exceptionDetails"]))


@contextmanager
def browser(program: str, profile: Path) -> Iterator[Page]:
    """A page of a new Chromium, whose downloads go to `profile / "downloads"`."""
    (to_read, commands), (results, to_write) = os.pipe(), os.pipe()
    child = [fcntl.fcntl(end, fcntl.F_DUPFD, HIGH) for end in (to_read, to_write)]
    words = [sys.executable, "-c", START, *map(str, child), program, *FLAGS, OFFLINE, f"--user-data-dir={profile}"]
    with subprocess.Popen(words, pass_fds=child, stderr=subprocess.DEVNULL) as process:
        for end in (to_read, to_write, *child):
            os.close(end)
        page = Page(commands, results, profile / "downloads")
        try:
            yield page
        finally:
            process.terminate()
            for end in (commands, results):
                os.close(end)


class QuietHandler(SimpleHTTPRequestHandler):
    """Static files as any server gives them. The names of what is missing are kept."""

    extensions_map = SimpleHTTPRequestHandler.extensions_map | {".mjs": "text/javascript", ".wasm": "application/wasm"}

    def log_message(self, *_: object) -> None:
        """Requests are not printed."""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a server of the files in this folder."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()
