"""What registrations may make the name server keep.

Called by RouteInfoManager under its lock, before a registration changes anything. RocketMQ keeps
whatever is registered: one connection may make as many broker names as it likes, with topics of any
number and length. A registration beyond a limit is refused whole; brokers that are registered
already are not affected by those that come later. Knows no request and no table.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from namesrv.registrations import BrokerLiveInfo, BrokerRegistration
from remoting.control_characters import holds_control
from remoting.errors import RequestError
from remoting.response_code import ResponseCode

log = logging.getLogger(__name__)

MAX_BROKERS: Final = 2_000
"""Broker names, and addresses. The largest clusters have a tenth of it."""
MAX_BROKERS_OF_A_CONNECTION: Final = 100
"""A broker registers itself alone; a broker container of 5.x its dozens over one connection."""
MAX_FILTER_SERVERS: Final = 100
MAX_LOGIC_QUEUES: Final = 100_000
"""Of the static topics of a registration."""
LONGEST_NAME: Final = 255
"""Characters of each name and address. RocketMQ's brokers create no topic of more than 127."""


def check_size(registration: BrokerRegistration) -> None:
    """Raises RequestError for names that are too long, names and addresses of brokers that hold
    control characters (they end log lines and tables), too many filter servers or logic queues, and
    a broker id below 0: it would be smaller than that of a live master, and decide on its topics.
    """
    if registration.broker_id < 0:
        refuse(registration, f"brokerId {registration.broker_id}: 0 is a master, more a slave")
    servers = registration.filter_servers
    own = [
        registration.cluster_name,
        registration.broker_name,
        registration.broker_addr,
        registration.ha_server_addr,
        registration.zone_name or "",
        *servers,
    ]
    texts = [*own, *registration.topic_configs]
    for info in registration.topic_queue_mappings.values():
        texts += (info.topic, info.scope, info.bname)
    texts += [config.topic_name or "" for config in registration.topic_configs.values()]
    longest = max(map(len, texts))
    if longest > LONGEST_NAME:
        refuse(registration, f"a name of {longest} characters, over the limit of {LONGEST_NAME}")
    broken = next(filter(holds_control, own), None)
    if broken is not None:
        refuse(registration, f"the name {broken[:100]!a}, with a control character")
    logic_queues = sum(len(info.curr_id_map) for info in registration.topic_queue_mappings.values())
    if logic_queues > MAX_LOGIC_QUEUES:
        refuse(registration, f"{logic_queues} logic queues, over the limit of {MAX_LOGIC_QUEUES}")
    if len(servers) > MAX_FILTER_SERVERS:
        refuse(
            registration, f"{len(servers)} filter servers, over the limit of {MAX_FILTER_SERVERS}"
        )


def check_room(
    registration: BrokerRegistration,
    connection_id: int,
    live: Mapping[str, BrokerLiveInfo],
    names: Mapping[str, Mapping[int, str]],
) -> None:
    """Raises RequestError if a new broker is one too many. names: address by id, by broker name."""
    address, name = registration.broker_addr, registration.broker_name
    if address in live and name in names:
        return
    if max(len(live), len(names)) >= MAX_BROKERS:
        refuse(registration, f"a new broker, over the limit of {MAX_BROKERS}")
    own = {addr for addr, info in live.items() if info.connection.connection_id == connection_id}
    own_names = sum(not own.isdisjoint(addrs.values()) for addrs in names.values())
    if max(len(own), own_names) >= MAX_BROKERS_OF_A_CONNECTION:
        refuse(
            registration,
            f"a new broker, over the limit of {MAX_BROKERS_OF_A_CONNECTION} of one connection",
        )


def check_topics(broker_name: str, kept: int, new: int, most: int) -> None:
    """Raises RequestError if `new` topics beside `kept` ones are too many."""
    if kept + new > most:
        text = (
            f"{new} new topics of broker {broker_name} beside {kept} of all brokers, over the "
            f"limit of {most}: raise registerMaxTopics of this name server"
        )
        log.warning("not registered: %s", text)
        raise RequestError(ResponseCode.SYSTEM_ERROR, text)


def refuse(registration: BrokerRegistration, text: str) -> None:
    """Log and raise RequestError."""
    log.warning(
        "broker %.255r at %.255r: not registered: %s",
        registration.broker_name,
        registration.broker_addr,
        text,
    )
    raise RequestError(ResponseCode.SYSTEM_ERROR, f"the registration has {text}")
