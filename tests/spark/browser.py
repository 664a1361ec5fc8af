"""A headless Chromium for tests, spoken to over its debugging pipe; nothing but the stdlib.

Commands and events are JSON texts that end with a zero byte, on the browser's descriptors 3 and 4
(`--remote-debugging-pipe`). So a test can resize the window, run a script in a page whose policy
forbids scripts, and see every request the page tries.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import json
import os
import re
import select
import shutil
import signal
import struct
import subprocess
import time
import zlib
from pathlib import Path
from typing import Any

from tests.support.deadline import wait_until

CHROMIUM = shutil.which("chromium")
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--no-first-run",
    "--disable-background-networking",
)


def _high_pipe() -> tuple[int, int]:
    """A pipe whose ends are not 3 or 4, where the browser wants its own."""
    low = os.pipe()
    high = tuple(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 64) for fd in low)
    for fd in low:
        os.close(fd)
    return high[0], high[1]


class Browser:
    """One browser with one page. `requests` are the addresses that the page asked for."""

    def __init__(self, profile: Path) -> None:
        to_browser, self._commands = _high_pipe()
        self._answers, from_browser = _high_pipe()
        # A shell puts the ends where the browser looks for them; dup2 would need a preexec_fn.
        self._process = subprocess.Popen(
            [
                "/bin/bash",
                "-c",
                f'exec "$@" 3<&{to_browser} 4>&{from_browser}',
                "chromium",
                str(CHROMIUM),
                *FLAGS,
                "--remote-debugging-pipe",
                f"--user-data-dir={profile}",
                "about:blank",
            ],
            pass_fds=(to_browser, from_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._poll = select.poll()  # select() refuses descriptors from 1024 on.
        self._poll.register(self._answers, select.POLLIN)
        self._rest = b""
        self._number = 0
        self._session: str | None = None
        self._events: list[dict[str, Any]] = []
        self.requests: list[str] = []
        wait_until(lambda: bool(self._pages()), 30.0)  # A busy machine takes its time.
        target = self._pages()[0]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def _pages(self) -> list[str]:
        targets = self.call("Target.getTargets")["targetInfos"]
        return [one["targetId"] for one in targets if one["type"] == "page"]

    def close(self) -> None:
        """Ends the browser and the processes it started."""
        os.close(self._commands)
        os.close(self._answers)
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """A command's result; AssertionError with what the browser says against it."""
        self._number += 1
        command = {"id": self._number, "method": method, "params": params}
        if self._session:
            command["sessionId"] = self._session
        os.write(self._commands, json.dumps(command).encode() + b"\0")
        while True:
            message = self._next()
            if message.get("id") == self._number:
                assert "error" not in message, f"{method}: {message['error']}"
                result: dict[str, Any] = message["result"]
                return result

    def open(self, path: Path, width: int, height: int = 900, *, dark: bool = False) -> None:
        """Shows a file in a window of that size (CSS px) and waits until it is loaded."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 500,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self._events.clear()
        self.requests.clear()
        self.call("Page.navigate", url=path.as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self._events):
            self._next()

    def complaints(self) -> list[str]:
        """What the page's console and the browser's log said since `open`."""
        return [
            json.dumps(event["params"])
            for event in self._events
            if event["method"] in {"Log.entryAdded", "Runtime.exceptionThrown"}
        ]

    def value(self, expression: str) -> Any:
        """What a script's expression gives in the page; promises are awaited."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def screenshot(self, *, top: float = 0, height: int, is_small: bool = False) -> bytes:
        """PNG of `height` px of the page from `top` on, also beyond the window's end. is_small: one
        to keep; otherwise one without filters, which cost `pixels` seconds to undo."""
        clip = {"x": 0, "y": top, "width": self.value("innerWidth"), "height": height, "scale": 1}
        answer = self.call(
            "Page.captureScreenshot",
            format="png",
            captureBeyondViewport=True,
            optimizeForSpeed=not is_small,
            clip=clip,
        )
        return base64.b64decode(answer["data"])

    def pdf(self) -> bytes:
        """The page as it is printed."""
        answer = self.call("Page.printToPDF", preferCSSPageSize=True)
        return base64.b64decode(answer["data"])

    def _next(self) -> dict[str, Any]:
        deadline = time.monotonic() + 60
        while b"\0" not in self._rest:
            left_ms = max(0.0, deadline - time.monotonic()) * 1000
            assert self._poll.poll(left_ms), "the browser said nothing for 60 s"
            part = os.read(self._answers, 1 << 20)
            assert part, f"the browser ended with {self._process.wait()}"
            self._rest += part
        text, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        if "method" in message:
            self._events.append(message)
            if message["method"] == "Network.requestWillBeSent":
                self.requests.append(message["params"]["request"]["url"])
        return message


_DIGEST_KEY = b"page-sha256\0"
_END_OF_HEADER = 33
"""Of a PNG: its signature and its first chunk."""


def with_digest_of_page(png: bytes, page: bytes) -> bytes:
    """The PNG, with the digest of the page that it shows as a tEXt chunk."""
    body = b"tEXt" + _DIGEST_KEY + hashlib.sha256(page).hexdigest().encode()
    chunk = struct.pack(">I", len(body) - 4) + body + struct.pack(">I", zlib.crc32(body))
    return png[:_END_OF_HEADER] + chunk + png[_END_OF_HEADER:]


def digest_of_page(png: bytes) -> str | None:
    """What `with_digest_of_page` wrote."""
    found = re.search(re.escape(b"tEXt" + _DIGEST_KEY) + rb"([0-9a-f]{64})", png)
    return found[1].decode() if found else None


def size_of(png: bytes) -> tuple[int, int]:
    """Width and height."""
    return struct.unpack(">II", png[16:24])


def pixels(png: bytes) -> tuple[int, int, bytes]:
    """(width, height, RGB bytes) of an 8-bit RGB or RGBA PNG that is not interlaced."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    at, data, width, height, channels = 8, b"", 0, 0, 3
    while at < len(png):
        length, kind = struct.unpack(">I4s", png[at : at + 8])
        body = png[at + 8 : at + 8 + length]
        if kind == b"IHDR":
            width, height, depth, colour = struct.unpack(">IIBB", body[:10])
            assert (depth, body[12]) == (8, 0), "8 bits a channel, not interlaced"
            channels = {2: 3, 6: 4}[colour]
        elif kind == b"IDAT":
            data += body
        at += length + 12
    rows = _unfiltered(zlib.decompress(data), width * channels, channels)
    if channels == 4:
        flat = b"".join(rows)
        rgb = bytearray(width * height * 3)
        for channel in range(3):
            rgb[channel::3] = flat[channel::4]
        return width, height, bytes(rgb)
    return width, height, b"".join(rows)


def _unfiltered(data: bytes, stride: int, step: int) -> list[bytes]:
    """The rows of a PNG with each row's filter undone (PNG specification, section 9)."""
    rows: list[bytes] = []
    above = bytes(stride)
    for start in range(0, len(data), stride + 1):
        kind, row = data[start], bytearray(data[start + 1 : start + 1 + stride])
        for i in range(stride) if kind else ():
            left = row[i - step] if i >= step else 0
            up = above[i]
            if kind == 1:
                row[i] = (row[i] + left) & 255
            elif kind == 2:
                row[i] = (row[i] + up) & 255
            elif kind == 3:
                row[i] = (row[i] + (left + up) // 2) & 255
            else:
                row[i] = (row[i] + _paeth(left, up, above[i - step] if i >= step else 0)) & 255
        above = bytes(row)
        rows.append(above)
    return rows


def _paeth(left: int, up: int, corner: int) -> int:
    guess = left + up - corner
    distances = abs(guess - left), abs(guess - up), abs(guess - corner)
    if distances[0] <= distances[1] and distances[0] <= distances[2]:
        return left
    return up if distances[1] <= distances[2] else corner
