"""broker.wiring.start_of_role: in which order a master's parts are opened."""

from __future__ import annotations

from unittest import mock

from broker.settings.startup_options import StartupOptions
from broker.wiring.start_of_role import open_log


def test_unpublished_timers_are_settled_when_the_log_is_open_and_before_anything_is_put() -> None:
    """With enableRemoteEscape timers begin later, when sends have let the log grow."""
    parts = mock.Mock()
    role = mock.Mock(changes=False, is_slave=False)
    options = StartupOptions.from_settings({})
    open_log(role, options, parts.store, parts.tables, parts.pop, parts.messages)
    called = [name for name, _arguments, _options in parts.mock_calls]
    assert called.index("messages.timers.log_opened") == called.index("store.open_log") + 1


def test_a_slave_opens_no_log_and_forgets_what_it_did_as_a_master() -> None:
    parts = mock.Mock()
    role = mock.Mock(changes=False, is_slave=True)
    options = StartupOptions.from_settings({})
    open_log(role, options, parts.store, parts.tables, parts.pop, parts.messages)
    assert not parts.store.open_log.called
    assert not parts.messages.timers.log_opened.called
    assert parts.messages.follow.called
