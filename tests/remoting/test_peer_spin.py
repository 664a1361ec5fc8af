"""PeerSpin: after polls in vain some are left out."""

from __future__ import annotations

from remoting.peer_spin import PeerSpin


def left_out(spin: PeerSpin) -> int:
    """How many are left out before the next one."""
    count = 0
    while not spin.is_due():
        count += 1
    return count


def test_twice_as_many_are_left_out_after_each_one_in_vain_up_to_a_limit() -> None:
    spin = PeerSpin()
    found = []
    for _ in range(9):
        found.append(left_out(spin))
        spin.ended(in_vain=True)
    assert found == [0, 1, 2, 4, 8, 16, 32, 64, 64]


def test_one_that_paid_ends_it() -> None:
    spin = PeerSpin()
    for _ in range(5):
        left_out(spin)
        spin.ended(in_vain=True)
    assert left_out(spin) == 16
    spin.ended(in_vain=False)
    assert left_out(spin) == 0
    spin.ended(in_vain=True)
    assert left_out(spin) == 1
