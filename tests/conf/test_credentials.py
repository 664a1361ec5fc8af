"""conf.credentials: the account of conf/tools.yml."""

from __future__ import annotations

from pathlib import Path

import pytest

from conf.credentials import Credentials, find_credentials
from conf.errors import ConfigError


def test_no_file_no_account(tmp_path: Path) -> None:
    assert find_credentials(tmp_path) is None
    assert find_credentials(tmp_path / "missing") is None


def test_an_account_as_written(tmp_path: Path) -> None:
    (tmp_path / "tools.yml").write_text("# me\naccessKey: rocketmq2\nsecretKey: 0123456789\n")
    found = find_credentials(tmp_path)
    assert found == Credentials("rocketmq2", "0123456789")
    assert repr(found) == "Credentials(access_key='rocketmq2')", "a key is not for logs"


@pytest.mark.parametrize("text", ["", "accessKey: rocketmq2", "accessKey: a\nsecretKey:\n"])
def test_half_an_account_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "tools.yml").write_text(text)
    assert find_credentials(tmp_path) is None


def test_a_broken_file_names_its_line(tmp_path: Path) -> None:
    path = tmp_path / "tools.yml"
    path.write_text("accessKey: a\nsecretKey: [b]\n")
    with pytest.raises(ConfigError) as caught:
        find_credentials(tmp_path)
    assert (
        str(caught.value) == f"{path}:2: secretKey: expected one plain value, not a list or mapping"
    )
