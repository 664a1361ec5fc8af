"""`bin/test` in a clean clone, as a user of each Python that setup.cfg names would run it.

Long. An interpreter is looked for in PATH and among those of pyenv, then in the Debian release that
has it (debian_pythons.py); a version that cannot be had on this machine is skipped.
"""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.packaging import debian_pythons
from tests.packaging.whole_run import ROOT, TIMEOUT_S, assert_green, clone, command

pytestmark = [pytest.mark.long, pytest.mark.timeout(7200)]


def find_interpreter(version: str) -> str:
    """One that can make virtual environments; skips the test where there is none."""
    name = f"python{version}"
    works = f"import ensurepip, venv, sys; sys.exit('{version}' != '%d.%d' % sys.version_info[:2])"
    for path in (shutil.which(name), *Path.home().glob(f".pyenv/versions/{version}.*/bin/{name}")):
        if path and subprocess.run([path, "-c", works], capture_output=True).returncode == 0:
            return str(path)
    try:
        return str(debian_pythons.interpreter(version))
    except debian_pythons.NotToBeHadError as error:
        pytest.skip(f"no {name} with its venv module is on this machine: {error}")


def promised_versions() -> list[str]:
    """Those of setup.cfg's classifiers."""
    setup = configparser.ConfigParser(interpolation=None)
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    return re.findall(r"Python :: (3\.\d+)", setup["metadata"]["classifiers"])


@pytest.mark.parametrize("version", promised_versions())
def test_all_is_green_on(version: str, tmp_path: Path) -> None:
    interpreter = find_interpreter(version)
    clone(tmp_path / "checkout")
    ours = ("BROKER_", "ROCKETMQ_", "PYTHON", "PYTEST_", "VIRTUAL_ENV")
    environment = {key: text for key, text in os.environ.items() if not key.startswith(ours)}
    result = subprocess.run(
        ["/bin/sh", "-c", command()],
        cwd=tmp_path / "checkout",
        env={**environment, "BROKER_PYTHON": interpreter},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert_green(result, tmp_path / "printed.txt")
    assert f" with Python {version}." in result.stdout, "made with another interpreter"
