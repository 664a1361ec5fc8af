"""MessageRequestModeSynchronize: a slave copies which groups pop which topics (402).

Runs after each round of SlaveSynchronize, on its thread. Older masters do not know the request;
that, like every failure, is logged once and tried again in the next round. Follows
SlaveSynchronize.syncMessageRequestMode of RocketMQ 5, but a table that was not read changes
nothing.
"""

from __future__ import annotations

import logging
from typing import Final

from broker.json_config_manager import parse_object
from broker.out.broker_outer_api import BrokerAnswerError, BrokerOuterAPI
from broker.subscription.message_request_mode_manager import MessageRequestModeManager
from remoting.body.message_request_mode import MessageRequestModeSerializeWrapper
from remoting.errors import RemotingError
from remoting.request_code import RequestCode

log = logging.getLogger(__name__)

_TIMEOUT_MS: Final = 3_000


class MessageRequestModeSynchronize:
    """See the module. Owned by: the thread of SlaveSynchronize."""

    def __init__(self, api: BrokerOuterAPI, modes: MessageRequestModeManager) -> None:
        self._api = api
        self._modes = modes
        self._last_problem = ""

    def sync(self, master: str) -> None:
        """Copy the table of the master at "ip:port"."""
        code = RequestCode.GET_ALL_MESSAGE_REQUEST_MODE
        try:
            tree = parse_object(self._api.get_table(master, code, _TIMEOUT_MS) or b"")
            if tree.get("messageRequestModeMap") is None:
                raise ValueError("has no messageRequestModeMap")
            self._modes.replace_all(MessageRequestModeSerializeWrapper.from_json(tree))
        except (RemotingError, BrokerAnswerError, ValueError) as error:
            problem = f"{type(error).__name__}: {error}"
            again, self._last_problem = problem == self._last_problem, problem
            log.log(
                logging.DEBUG if again else logging.WARNING,
                "master %s: message request modes not copied, keeping the local ones: %s",
                master,
                problem,
            )
        else:
            self._last_problem = ""
            self._modes.save_if_changed()
