"""The limit of descriptors: raised as far as permitted, said when that is little."""

from __future__ import annotations

import resource

import pytest

from broker.supervisor.descriptor_limit import raise_descriptor_limit

FEW = (
    "this broker may have 4096 descriptors, one for each client and each file: more clients "
    "than that cannot connect; raise the hard limit (ulimit -Hn, or LimitNOFILE of systemd)"
)


class Limits:
    """What the kernel would say."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, soft: int, hard: int) -> None:
        self.soft, self.hard = soft, hard
        self.refuses = False
        self.sets = 0
        monkeypatch.setattr(resource, "getrlimit", lambda _kind: (self.soft, self.hard))
        monkeypatch.setattr(resource, "setrlimit", self.set)

    def set(self, kind: int, limits: tuple[int, int]) -> None:
        assert kind == resource.RLIMIT_NOFILE
        self.sets += 1
        if self.refuses:
            raise ValueError("not allowed to raise maximum limit")
        self.soft, self.hard = limits


def test_the_soft_limit_becomes_the_hard_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    limits = Limits(monkeypatch, 1_024, 524_288)
    assert raise_descriptor_limit() == 524_288
    assert (limits.soft, limits.hard) == (524_288, 524_288)
    assert raise_descriptor_limit() == 524_288
    assert limits.sets == 1
    assert caplog.messages == []


def test_no_limit_is_none(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    Limits(monkeypatch, 1_024, resource.RLIM_INFINITY)
    assert raise_descriptor_limit() == resource.RLIM_INFINITY
    assert caplog.messages == []


def test_few_are_said(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    Limits(monkeypatch, 1_024, 4_096)
    assert raise_descriptor_limit() == 4_096
    assert caplog.messages == [FEW]


def test_a_refusal_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    Limits(monkeypatch, 4_096, 524_288).refuses = True
    assert raise_descriptor_limit() == 4_096
    assert caplog.messages == [
        "the limit of 4096 descriptors could not be raised: not allowed to raise maximum limit",
        FEW,
    ]
