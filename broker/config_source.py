"""StartedConfigs: the settings this broker was started with, as code 26 shows them.

Plain values, any thread.
"""

from __future__ import annotations

from collections.abc import Mapping

from broker.startup_options import StartupOptions
from remoting.body.data_version import DataVersion


class StartedConfigs:
    """ConfigSource over the startup options."""

    def __init__(self, options: StartupOptions, started_ms: int) -> None:
        self._settings = options.settings()
        self._version = DataVersion(timestamp=started_ms)

    def all_configs(self) -> Mapping[str, str]:
        """Every key with its value as a settings file would have it."""
        return self._settings

    def data_version(self) -> DataVersion:
        """Raised by each change of a setting."""
        return self._version
