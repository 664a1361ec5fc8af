"""Identity files are those of a Java broker, byte for byte; wrong ones are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.failover.identity import Identity, IdentityError, decode_identity, encode_identity

GOLDEN = Path(__file__).parents[2] / "golden" / "controller-5.3.3"


@pytest.mark.parametrize("number", [0, 1, 2])
def test_files_of_java_come_back_byte_for_byte(number: int) -> None:
    data = (GOLDEN / f"cb{number}-brokerIdentity").read_bytes()
    identity = decode_identity(data, "CtlCluster", "cb")
    assert identity == Identity("CtlCluster", "cb", number + 1)
    assert encode_identity(identity) == data


def test_the_temporary_file_has_the_check_code() -> None:
    identity = Identity("CtlCluster", "cb", 2, "127.0.0.1:24410;1795391110917")
    data = encode_identity(identity)
    assert data == b"CtlCluster#cb#2#127.0.0.1:24410;1795391110917"
    assert decode_identity(data, "CtlCluster", "cb") == identity


@pytest.mark.parametrize(
    ("data", "named"),
    [
        *((b"Other#cb#1", "the identity of cb in Other"), (b"CtlCluster#x#1", "of x in")),
        *((b"CtlCluster#cb#0", "#0"), (b"CtlCluster#cb#-1", "#-1"), (b"", "b''")),
        *((b"CtlCluster#cb#1#", "#1#"), (b"a#b#1#c#d", "c#d"), (b"\xff#cb#1", "xff")),
        (b"x" * 5_000, "5000 bytes"),
    ],
)
def test_other_files_are_refused_by_name(data: bytes, named: str) -> None:
    with pytest.raises(IdentityError, match=named):
        decode_identity(data, "CtlCluster", "cb")


def test_names_that_the_format_cannot_hold() -> None:
    with pytest.raises(IdentityError, match="a#b"):
        encode_identity(Identity("a#b", "cb", 1))
