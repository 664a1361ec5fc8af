"""AclSynchronize: a slave with ACL holds the access files of its master.

Runs in process `remoting` of a slave, at the end of a round of SlaveSynchronize: on its thread, and
only after a master whose log belongs to ours. The request is ours (GET_ACL_FILES) and signed like
all of them with conf/tools.yml; a master without ACL, of Java, or with another opinion of who is an
admin does not answer it with files, and then ours stay. The original never copies these files: a
slave that is promoted there knows none of the changes.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final, Protocol

from broker.out.broker_outer_api import BrokerAnswerError
from conf.errors import ConfigError
from remoting.body.acl_files import AclFiles
from remoting.errors import RemotingError, RequestError
from remoting.request_code import RequestCode

log = logging.getLogger(__name__)

TIMEOUT_MS: Final = 3_000
_TROUBLE: Final = (
    RemotingError,
    BrokerAnswerError,
    RequestError,
    ConfigError,
    ValueError,
    OSError,
)
"""What a network, another broker's answer and a disk can do."""


class FileSource(Protocol):
    """What is needed of BrokerOuterAPI."""

    def get_table(self, broker: str, code: RequestCode, timeout_ms: int) -> bytes | None:
        """A table of another broker. Raises RemotingError, BrokerAnswerError."""
        ...


class FileHolder(Protocol):
    """What is needed of PlainPermissionManager."""

    def replace_files(self, texts: Mapping[str, str]) -> bool:
        """Whether that changed anything. Raises ConfigError, ValueError, OSError."""
        ...


class AclSynchronize:
    """Owned by: the thread of the round."""

    def __init__(self, api: FileSource, files: FileHolder) -> None:
        self._api = api
        self._files = files
        self._last_problem = ""

    def sync(self, master: str) -> None:
        """Hold what the master at "ip:port" holds; what goes wrong is said once, and tried again
        in the next round."""
        try:
            body = self._api.get_table(master, RequestCode.GET_ACL_FILES, TIMEOUT_MS)
            files = AclFiles.from_json_bytes(body or b"{}").files
            changed = self._files.replace_files({file.name: file.text for file in files})
        except _TROUBLE as error:
            problem = f"{type(error).__name__}: {error}"
            again, self._last_problem = problem == self._last_problem, problem
            log.log(
                logging.DEBUG if again else logging.WARNING,
                "master %s: access files not taken over, ours stay: %s",
                master,
                problem,
            )
        else:
            if changed or self._last_problem:
                log.info("master %s: its %s access files are ours now", master, len(files))
            self._last_problem = ""
