"""The file of haSharedSecretFile: what is taken from it, and which files are refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ha.shared_secret import SharedSecretError, read_shared_secret

SECRET = b"0123456789abcdef"


def make(directory: Path, content: bytes, mode: int = 0o600) -> str:
    path = directory / "secret"
    path.write_bytes(content)
    path.chmod(mode)
    return str(path)


@pytest.mark.parametrize("mode", [0o400, 0o600, 0o640, 0o440])
def test_the_bytes_without_white_space_around(tmp_path: Path, mode: int) -> None:
    assert read_shared_secret(make(tmp_path, b"\n " + SECRET + b"\r\n", mode)) == SECRET


@pytest.mark.parametrize("path", [None, ""])
def test_no_file_no_secret(path: str | None) -> None:
    assert read_shared_secret(path) is None


@pytest.mark.parametrize("mode", [0o604, 0o644, 0o660, 0o602, 0o777])
def test_a_file_that_others_may_read_or_change(tmp_path: Path, mode: int) -> None:
    with pytest.raises(SharedSecretError, match=r"haSharedSecretFile .*secret has mode .*chmod"):
        read_shared_secret(make(tmp_path, SECRET, mode))


@pytest.mark.parametrize("content", [b"", b"  \n", SECRET[:15] + b" \n", b"x" * 5_000])
def test_too_short_and_too_long(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(SharedSecretError, match=r"haSharedSecretFile .* bytes, 16 to 4096"):
        read_shared_secret(make(tmp_path, content))


def test_what_is_no_file(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o600)
    for path, words in (
        (tmp_path / "nowhere", "cannot be read: No such file"),
        (tmp_path, "haSharedSecretFile"),
        (pipe, "is not a file"),
    ):
        with pytest.raises(SharedSecretError, match=words):
            read_shared_secret(str(path))


def test_no_error_text_has_the_secret(tmp_path: Path) -> None:
    with pytest.raises(SharedSecretError) as raised:
        read_shared_secret(make(tmp_path, SECRET, 0o644))
    assert SECRET.decode() not in str(raised.value)
