"""README's two commands on a machine that has nothing: Debian in a folder, made by debootstrap.

Long, as root, and needs the `debootstrap` package. A fresh machine has the newest libraries, an
OpenSSL, a Python and a /tmp of its own (in memory, on Debian 13), and no C compiler unless somebody
installs one. Each command runs in mount and process namespaces of its own, which end with it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.packaging.whole_run import TIMEOUT_S, assert_green, clone, command

CERTIFICATES: Final = Path("/etc/ssl/certs/ca-certificates.crt")
BASE: Final = ("python3", "python3-venv", "ca-certificates", "git", "procps")
COMPILER: Final = ("gcc", "libc6-dev", "python3-dev")
UNSHARE: Final = ("unshare", "--mount", "--pid", "--fork", "--kill-child")
ENTER: Final = """
mount --make-rprivate /
mount -t proc proc "$0/proc"
mount --rbind /dev "$0/dev"
mount -t tmpfs tmpfs "$0/tmp"
exec chroot "$0" /bin/bash -c "cd /root/checkout || exit; $1"
"""

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(7200),
    pytest.mark.skipif(os.getuid() != 0, reason="chroot needs root"),
    pytest.mark.skipif(
        not shutil.which("debootstrap"),
        reason="debootstrap is not installed (apt install debootstrap)",
    ),
]


@dataclass(frozen=True)
class Machine:
    """A Debian in a folder, with a clean clone of this checkout."""

    root: Path

    def run(self, command: str, timeout_s: float) -> subprocess.CompletedProcess[str]:
        """What a shell in the clone says to `command`."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if name.startswith(("PIP_", "SSL_", "FUZZ_", "COMPLEXITY_"))
            or name.lower().endswith("_proxy")
        }
        return subprocess.run(
            [*UNSHARE, "/bin/bash", "-ec", ENTER, str(self.root), command],
            env={
                **kept,
                "HOME": "/root",
                "LANG": "C.UTF-8",
                "PATH": os.defpath + ":/usr/sbin:/sbin",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout_s,
            check=False,
        )


@pytest.fixture(
    scope="module",
    params=[("bookworm", ()), ("trixie", ()), ("trixie", COMPILER)],
    ids=["debian-12", "debian-13", "debian-13-with-a-compiler"],
)
def machine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Machine]:
    release, more = request.param
    root = tmp_path_factory.mktemp("machine") / "root"
    packages = ",".join((*BASE, *more))
    debootstrap = ["debootstrap", "--variant=minbase", f"--include={packages}", release, str(root)]
    made = subprocess.run(debootstrap, capture_output=True, text=True, timeout=2400, check=False)
    assert made.returncode == 0, made.stdout[-2000:] + made.stderr[-2000:]
    for path in (CERTIFICATES, Path("/etc/resolv.conf"), Path("/etc/hosts")):
        if path.exists():
            shutil.copy(path, root / path.relative_to("/"))
    clone(root / "root/checkout")
    yield Machine(root)
    shutil.rmtree(root)  # 3 GB


def test_the_first_command(machine: Machine) -> None:
    """bin/mqbroker sets itself up and takes a message: ten seconds of a quiet machine, minutes of
    one that is shared. Its default ports must be free: the network is that of this machine."""
    said = machine.run(
        "bin/mqbroker > /root/said 2>&1 & "
        "for i in $(seq 3000); do grep -q 'boot success' /root/said && break; sleep 0.1; done; "
        "cat /root/said; bin/mqadmin updateTopic -c DefaultCluster -t Hello -r 1 -w 1; "
        "bin/mqadmin sendMessage -t Hello -p first; bin/mqshutdown broker",
        timeout_s=600,
    ).stdout
    assert "boot success" in said, said
    assert "SEND_OK" in said, said


def test_the_second_command(machine: Machine) -> None:
    result = machine.run(command(), TIMEOUT_S)
    assert_green(result, machine.root.parent / "printed.txt")
