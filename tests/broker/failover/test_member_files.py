"""The files of a member: Java's bytes, and what cannot be used is named."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from broker.failover.identity import Identity, encode_identity
from broker.failover.member_files import MemberFileError, MemberFiles
from ha.epochs import EpochList, epoch_list

GOLDEN = Path(__file__).parents[2] / "golden" / "controller-5.3.3"
CHECK_CODE = "127.0.0.1:24410;1795391110917"


class Store:
    """A store's root with a member's files."""

    def __init__(self, root: Path) -> None:
        self.identity, self.temporary = root / "brokerIdentity", root / "brokerIdentity-temp"
        self.epochs = root / "epochFileCheckpoint"
        self.files = MemberFiles(self.identity, self.epochs)

    def read(self) -> tuple[Identity | None, Identity | None, EpochList]:
        found = self.files.read("CtlCluster", "cb", 7)
        assert found.confirm_offset == 7
        return found.temporary, found.identity, found.epochs


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def test_an_empty_store(store: Store) -> None:
    assert store.read() == (None, None, EpochList())


def test_files_that_java_left(store: Store) -> None:
    shutil.copy(GOLDEN / "cb1-brokerIdentity", store.identity)
    shutil.copy(GOLDEN / "cb1-epochFileCheckpoint", store.epochs)
    _, identity, epochs = store.read()
    assert identity == Identity("CtlCluster", "cb", 2)
    assert epochs.entries[:2] == ((1, 0), (2, 693))


def test_a_damaged_list_of_epochs_is_read_from_its_backup(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copy(GOLDEN / "after-cut-epochFileCheckpoint.bak", f"{store.epochs}.bak")
    store.epochs.write_bytes(b"1\n5\n1-0\n")
    backup = (GOLDEN / "after-cut-epochFileCheckpoint.bak").read_text().splitlines()[2:]
    with caplog.at_level("ERROR"):
        assert [f"{epoch}-{start}" for epoch, start in store.read()[2].entries] == backup
    assert f"{store.epochs}: damaged; the list before it is used" in caplog.text
    assert store.files.read("CtlCluster", "cb", 7).list_is_old
    store.files.write_epochs(epoch_list([(1, 0)]))
    assert not store.files.read("CtlCluster", "cb", 7).list_is_old


def test_an_id_that_is_applied_for_and_then_held(store: Store) -> None:
    applied = Identity("CtlCluster", "cb", 3, CHECK_CODE)
    store.files.write_temporary_identity(encode_identity(applied))
    assert store.read()[:2] == (applied, None)
    store.files.write_identity(b"CtlCluster#cb#3")
    assert store.read()[:2] == (None, Identity("CtlCluster", "cb", 3))
    assert store.identity.read_bytes() == b"CtlCluster#cb#3"
    assert not store.temporary.exists()


def test_a_list_is_read_back_and_the_one_before_it_is_kept(store: Store) -> None:
    first, second = epoch_list([(1, 0)]), epoch_list([(1, 0), (2, 693)])
    store.files.write_epochs(first)
    assert store.epochs.read_bytes() == b"1\n1725254278\n1-0\n", "as Java wrote this one"
    store.files.write_epochs(second)
    assert store.read()[2] == second
    store.epochs.write_bytes(b"")
    assert store.read()[2] == first


@pytest.mark.parametrize(
    ("name", "data", "named"),
    [
        ("brokerIdentity", b"CtlCluster#other#1", "the identity of other in CtlCluster"),
        ("brokerIdentity", b"", "not an identity"),
        ("brokerIdentity", b"CtlCluster#cb#1#a;1", "not what belongs into this file"),
        ("brokerIdentity-temp", b"CtlCluster#cb#1", "not what belongs into this file"),
        ("brokerIdentity-temp", b"CtlCluster#cb#0#a;1", "not an identity"),
        ("epochFileCheckpoint", b"1\n5\n1-0\n", "is a list of epochs"),
    ],
)
def test_files_that_cannot_be_used_are_named(
    store: Store, name: str, data: bytes, named: str
) -> None:
    (store.identity.parent / name).write_bytes(data)
    with pytest.raises(MemberFileError, match=named) as caught:
        store.read()
    assert str(store.identity.parent / name) in str(caught.value)


@pytest.mark.parametrize("left", [b"CtlCluster#cb#3#a;1", b"CtlCluster#other#3#a;1", b"torn"])
def test_a_death_before_the_temporary_identity_is_gone(store: Store, left: bytes) -> None:
    """Whoever then moves the identity away, for a new id, got the old one back."""
    store.files.write_identity(b"CtlCluster#cb#3")
    store.temporary.write_bytes(left)
    assert store.read()[:2] == (None, Identity("CtlCluster", "cb", 3))
    store.identity.unlink()
    assert store.read()[:2] == (None, None)


def test_a_temporary_identity_that_is_a_link_loses_the_link_only(store: Store) -> None:
    elsewhere = store.identity.with_name("elsewhere")
    elsewhere.write_bytes(b"something else")
    store.files.write_identity(b"CtlCluster#cb#3")
    store.temporary.symlink_to(elsewhere)
    store.read()
    assert elsewhere.read_bytes() == b"something else"
    assert not store.temporary.is_symlink()


def test_the_list_comes_back_when_its_log_was_not_cut(store: Store) -> None:
    """The shorter list is written before the cut. After one that process store refused, the bytes
    behind it counted as of the epoch before, and no slave that had them saw a difference."""
    whole = epoch_list([(1, 0), (2, 300), (4, 500)])
    store.files.write_epochs(whole)
    store.files.write_epochs(whole.cut(300))
    store.files.put_back_epochs(300)
    assert store.read()[2] == whole
    store.files.put_back_epochs(300)
    assert store.read()[2] == whole, "and only once"


@pytest.mark.parametrize("after", [[(1, 0), (3, 300)], [(1, 0), (2, 200)], [(1, 0), (2, 300)]])
def test_a_list_that_was_written_since_stays(store: Store, after: list[tuple[int, int]]) -> None:
    store.files.write_epochs(epoch_list([(1, 0), (2, 300), (4, 500)]))
    store.files.write_epochs(epoch_list(after))
    store.files.put_back_epochs(300)
    assert store.read()[2] == epoch_list(after)


def test_without_a_backup_or_a_list_nothing_comes_back(store: Store) -> None:
    store.files.put_back_epochs(300)
    store.files.write_epochs(epoch_list([(1, 0)]))
    store.files.put_back_epochs(300)
    assert store.read()[2] == epoch_list([(1, 0)])
