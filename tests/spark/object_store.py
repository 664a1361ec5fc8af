"""An S3 server of one test: moto's, in a process of its own; spoken to by plain HTTP.

moto is in the extra `cluster`, which `bin/test --long` installs. It checks no signatures.
"""

from __future__ import annotations

import contextlib
import importlib.util
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlencode
from xml.sax.saxutils import unescape

from tests.support.deadline import wait_until
from tools.chaos.free_ports import free_port

_START_S: Final = 60.0
_REQUEST_S: Final = 30.0
CREDENTIALS: Final = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}


def missing() -> str | None:
    """Why there is no server, or None."""
    return None if importlib.util.find_spec("moto") else "moto is not installed (extra `cluster`)"


@dataclass(frozen=True)
class ObjectStore:
    """A running server with one bucket."""

    url: str
    bucket: str

    def upload(self, directory: Path, prefix: str) -> None:
        """Every file below a directory."""
        for path in sorted(directory.rglob("*")):
            if path.is_file():
                name = f"{prefix}/{path.relative_to(directory)}"
                self._ask("PUT", f"/{self.bucket}/{quote(name)}", path.read_bytes())

    def keys(self, prefix: str) -> list[str]:
        """Names of objects, all of them."""
        found: list[str] = []
        after = ""
        while True:
            names = urlencode({"prefix": prefix, "start-after": after})
            text = self._ask("GET", f"/{self.bucket}?list-type=2&{names}").decode()
            keys = [unescape(key) for key in re.findall(r"<Key>(.*?)</Key>", text)]
            if not keys:
                return found
            found += keys
            after = keys[-1]

    def read(self, key: str) -> bytes:
        """An object."""
        return self._ask("GET", f"/{self.bucket}/{quote(key)}")

    def _ask(self, method: str, path: str, body: bytes | None = None) -> bytes:
        request = urllib.request.Request(f"{self.url}{path}", body, method=method)
        request.add_header("Authorization", _AUTHORIZATION)
        # Without it urllib says that it is a form, and moto finds no content.
        request.add_header("Content-Type", "application/octet-stream")
        with urllib.request.urlopen(request, timeout=_REQUEST_S) as answer:
            return bytes(answer.read())


_AUTHORIZATION: Final = (
    "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request,"
    " SignedHeaders=host, Signature=0"
)


@contextlib.contextmanager
def object_store(log: Path, bucket: str) -> Iterator[ObjectStore]:
    """The server, with an empty bucket, until the end of the context."""
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    store = ObjectStore(f"http://127.0.0.1:{port}", bucket)
    with log.open("wb") as output:
        server = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        wait_until(lambda: _is_serving(store, server, log), _START_S)
        store._ask("PUT", f"/{bucket}", b"")
        yield store
    finally:
        server.kill()
        server.wait()


def _is_serving(store: ObjectStore, server: subprocess.Popen[bytes], log: Path) -> bool:
    assert server.poll() is None, log.read_text(errors="replace")[-2000:]
    try:
        store._ask("GET", "/")
    except OSError:
        return False
    return True
