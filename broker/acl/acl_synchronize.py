"""AclSynchronize: a slave with ACL copies the access files of its master.

Runs in process `remoting` of a slave, on the thread of SlaveSynchronize at the end of a round, and
only if the master's log matches ours. The request (GET_ACL_FILES) is an extension of this broker
and is signed with conf/tools.yml like all outgoing requests. If the master is a Java broker, has no
ACL, or does not accept the signer as an admin, it returns no files and the local ones are kept.
RocketMQ never copies these files, so a slave promoted there has none of the changes.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from broker.out.broker_outer_api import BrokerAnswerError
from conf.errors import ConfigError
from remoting.body.acl_files import AclFiles
from remoting.errors import RemotingError, RequestError
from remoting.request_code import RequestCode

if TYPE_CHECKING:
    from broker.acl.plain_permission_manager import PlainPermissionManager
    from broker.out.broker_outer_api import BrokerOuterAPI

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
"""Errors of the network, of the master's response and of the disk."""


class AclSynchronize:
    """Owned by: the thread that runs the synchronization round."""

    def __init__(self, api: BrokerOuterAPI, files: PlainPermissionManager) -> None:
        self._api = api
        self._files = files
        self._last_problem = ""

    def sync(self, master: str) -> None:
        """Copy the files of the master at "ip:port". A failure is logged once and retried in the
        next round."""
        try:
            body = self._api.get_table(master, RequestCode.GET_ACL_FILES, TIMEOUT_MS)
            files = AclFiles.from_json_bytes(body or b"{}").files
            changed = self._files.replace_files({file.name: file.text for file in files})
        except _TROUBLE as error:
            problem = f"{type(error).__name__}: {error}"
            again, self._last_problem = problem == self._last_problem, problem
            log.log(
                logging.DEBUG if again else logging.WARNING,
                "master %s: access files not copied, keeping the local ones: %s",
                master,
                problem,
            )
        else:
            if changed or self._last_problem:
                log.info("master %s: adopted %s access files", master, len(files))
            self._last_problem = ""
