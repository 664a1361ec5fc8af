"""conf.file_permissions: the mask, and files with secrets that others may read."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from conf.file_permissions import (
    FilePermissionConfig,
    exposure_warnings,
    parse_umask,
    set_umask,
    without_others,
)


@pytest.fixture
def kept_umask() -> Iterator[None]:
    old = os.umask(0o022)
    yield
    os.umask(old)


@pytest.mark.parametrize(
    ("text", "mask"), [("0077", 0o077), ("077", 0o077), ("27", 0o027), ("0022", 0o022), ("0", 0)]
)
def test_masks(text: str, mask: int) -> None:
    assert parse_umask(text) == mask


@pytest.mark.parametrize("text", ["", "0o77", "0088", "-1", "077 ", "1077", "u=rwx", "٧٧", "00077"])
def test_what_is_no_mask(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected an octal number such as 0077 or 0027"):
        parse_umask(text)


@pytest.mark.parametrize("text", ["0777", "0277", "400", "100"])
def test_a_mask_that_shuts_the_broker_out(text: str) -> None:
    with pytest.raises(ValueError, match="own user needs all rights"):
        parse_umask(text)


@pytest.mark.parametrize(
    ("config", "directory", "file"),
    [
        (FilePermissionConfig(), 0o700, 0o600),
        (FilePermissionConfig(umask="0027"), 0o750, 0o640),
        (FilePermissionConfig(umask="0022"), 0o755, 0o644),
    ],
)
def test_what_is_created(
    tmp_path: Path, kept_umask: None, config: FilePermissionConfig, directory: int, file: int
) -> None:
    set_umask(config)
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "f").write_text("")
    assert stat.S_IMODE((tmp_path / "d").stat().st_mode) == directory
    assert stat.S_IMODE((tmp_path / "d" / "f").stat().st_mode) == file


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o640, 0o700])
def test_a_file_that_is_kept(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "secret"
    path.write_text("")
    path.chmod(mode)
    assert exposure_warnings([path, tmp_path / "none"]) == ()


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o602, 0o660, 0o666])
def test_a_file_that_others_read_or_change(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "secret"
    path.write_text("")
    path.chmod(mode)
    assert exposure_warnings([path, path]) == (
        f"{path} holds secrets and has mode {mode:04o}: other users of this machine may read or "
        f"change it; chmod 600 {path} (0640 lets a group read)",
    )


def test_bits_of_other_users() -> None:
    modes = (0o100644, 0o640, 0o666, 0o600)
    assert [without_others(mode) for mode in modes] == [0o640, 0o640, 0o660, 0o600]
