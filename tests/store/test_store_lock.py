from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from store.errors import StoreError, StoreLockedError
from store.store_lock import StoreLock

REPO = Path(__file__).parents[2]
TRY = """
import sys
from pathlib import Path
from store.store_lock import StoreLock
with StoreLock(Path(sys.argv[1])):
    print("locked")
"""
HOLD = "import sys; print('ready', flush=True); sys.stdin.read()"


def try_elsewhere(root: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", TRY, str(root)], capture_output=True, text=True, cwd=REPO, timeout=60
    )


def test_two_processes_and_the_content(tmp_path: Path) -> None:
    with StoreLock(tmp_path / "store") as lock:
        assert lock.path.read_bytes() == b"lock"
        refused = try_elsewhere(tmp_path / "store")
        assert "Lock failed,MQ already started" in refused.stderr
        assert str(tmp_path / "store") in refused.stderr
    assert try_elsewhere(tmp_path / "store").stdout == "locked\n"


def test_two_locks_in_one_process(tmp_path: Path) -> None:
    with StoreLock(tmp_path) as first:
        first.acquire()
        with pytest.raises(StoreLockedError, match="mqshutdown"):
            StoreLock(tmp_path).acquire()
        # A record lock of the classic kind would be lost by this close.
        first.path.open("rb").close()
        with pytest.raises(StoreLockedError):
            StoreLock(tmp_path).acquire()
    with StoreLock(tmp_path):
        pass


def test_a_child_that_inherits_it_holds_it(tmp_path: Path) -> None:
    lock = StoreLock(tmp_path)
    lock.acquire()
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=[lock.fileno()],
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        lock.release()
        lock.release()
        with pytest.raises(StoreLockedError):
            StoreLock(tmp_path).acquire()
    finally:
        child.communicate(timeout=30)
    with StoreLock(tmp_path):
        pass


def test_a_place_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="cannot be opened"):
        StoreLock(tmp_path / "file").acquire()


JAVA = """
import java.io.RandomAccessFile;
import java.nio.channels.FileLock;
public class TryLock {
    public static void main(String[] a) throws Exception {
        RandomAccessFile file = new RandomAccessFile(a[0], "rw");
        FileLock lock = file.getChannel().tryLock(0, 1, false);
        System.out.println(lock == null ? "refused" : "locked");
        System.out.flush();
        if (lock != null) System.in.read();
    }
}
"""


@pytest.mark.interop
@pytest.mark.skipif(shutil.which("java") is None, reason="needs java")
def test_java_and_we_exclude_each_other(tmp_path: Path) -> None:
    source = tmp_path / "TryLock.java"
    source.write_text(JAVA)
    root = tmp_path / "store"
    command = ["java", str(source), str(root / "lock")]
    environment = {**os.environ}
    with StoreLock(root):
        found = subprocess.run(
            command, capture_output=True, text=True, timeout=60, env=environment, check=True
        )
        assert found.stdout == "refused\n"
    java = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert java.stdout is not None
        assert java.stdout.readline() == "locked\n"
        with pytest.raises(StoreLockedError):
            StoreLock(root).acquire()
    finally:
        java.communicate("\n", timeout=60)
    with StoreLock(root):
        pass
