"""Controllers by name: a look-up that fails or hangs changes nothing that is known."""

from __future__ import annotations

from broker.failover.controller_names import ControllerNames


class Dns:
    """What a resolver would say; None: the name is unknown."""

    def __init__(self, **hosts: list[str] | None) -> None:
        self.hosts = hosts
        self.asked: list[str] = []

    def resolve(self, host: str) -> list[str]:
        self.asked.append(host)
        found = self.hosts[host]
        if found is None:
            raise OSError(f"{host}: not known")
        return found


def names(dns: Dns, *listed: str, all_addresses: bool = False) -> ControllerNames:
    return ControllerNames(listed, all_addresses=all_addresses, resolve=dns.resolve)


def test_numeric_addresses_need_no_look_up() -> None:
    dns = Dns()
    found = names(dns, "127.0.0.1:1", "[::1]:2")
    assert found.known() == ("127.0.0.1:1", "[::1]:2")
    found.look_up()
    assert dns.asked == []


def test_a_name_counts_once_it_is_looked_up() -> None:
    found = names(Dns(c1=["10.0.0.1", "10.0.0.2"]), "127.0.0.1:1", "c1:2")
    assert found.known() == ("127.0.0.1:1",)
    found.look_up()
    assert found.known() == ("127.0.0.1:1", "10.0.0.1:2")
    assert found.find("c1:2") == "10.0.0.1:2"


def test_every_address_of_a_name() -> None:
    found = names(Dns(c=["10.0.0.1", "::1"]), "c:2", "10.0.0.1:2", all_addresses=True)
    found.look_up()
    assert found.known() == ("10.0.0.1:2", "[::1]:2")


def test_p30_a_name_that_resolves_to_nothing_is_tried_again() -> None:
    dns = Dns(c1=["10.0.0.1"], c2=None)
    found = names(dns, "c1:1", "c2:2")
    found.look_up()
    assert found.known() == ("10.0.0.1:1",)
    dns.hosts = {"c1": None, "c2": ["10.0.0.2"]}
    found.look_up()
    assert found.known() == ("10.0.0.1:1", "10.0.0.2:2"), "what was known stays"
    dns.hosts = {"c1": [], "c2": ["10.0.0.3"]}
    found.look_up()
    assert found.known() == ("10.0.0.1:1", "10.0.0.3:2")


def test_a_leader_that_another_controller_names_is_looked_up_next() -> None:
    found = names(Dns(c9=["10.0.0.9"]), "127.0.0.1:1")
    assert found.find("127.0.0.1:7") == "127.0.0.1:7"
    assert found.find("c9:9") is None
    assert found.find("c9:9") is None
    found.look_up()
    assert found.find("c9:9") == "10.0.0.9:9"
    assert found.known() == ("127.0.0.1:1",), "it gets no heartbeats: it is in no list"


def test_whoever_names_another_leader_each_time_has_one_looked_up() -> None:
    """Each name stayed for good, and had to be looked up before the list was through."""
    dns = Dns(c1=["10.0.0.1"], x99=["10.0.0.99"])
    found = names(dns, "c1:1")
    for number in range(100):
        assert found.find(f"x{number}:1") is None
    found.look_up()
    assert dns.asked == ["c1", "x99"]
    assert found.find("x99:1") == "10.0.0.99:1"
    assert found.find("c1:1") == "10.0.0.1:1"
