"""Where a Java mqadmin prints something else against ours than against a Java broker, and why.

Pure data. test_mqadmin_side_by_side.py holds it against what is printed, in both directions;
docs/mqadmin.md shows it (`as_markdown`).
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

RELEASES: Final = {"4.9": "4.9.8", "5.3": "5.3.3", "5.5": "5.5.0"}
"""Line to the release of the tool."""

_DATA_VERSION: Final = (
    "a higher counter of the topics' data version: each registration of new topics has a version "
    "of its own, as name servers ignore a second one of the same version"
)
_REVIVE: Final = "a row more: the topic of pop's check points, which 5.x has"
_SETTINGS: Final = "the settings that there are: none of Netty or of the JVM, some of our own"
_OF_5: Final = {
    "brokerStatus": "the rows of 4.9, and `haProtocol`: none of acknowledgements and lite pulls",
    "clusterList": "`N` for the queue of lite pulls, which 4.9 does not have",
    "exportConfigs": "`filterServerNums`, which 4.9 has",
    "exportMetadata": f"{_DATA_VERSION}; `order` is not kept, as in 4.9",
    "getBrokerConfig": _SETTINGS,
    "getNamesrvConfig": _SETTINGS,
    "resetOffsetByTime": "as 4.9: the tool computes and sets the offsets, not the broker",
    "skipAccumulatedMessage": "as 4.9: the tool computes and sets the offsets, not the broker",
    "startMonitoring": (
        "as 4.9: a pull outside of a queue is told (`reportDeleteMsgsEvent`), of which a 5.x "
        "broker writes nothing"
    ),
}
_OF_5_5: Final = {
    "getBrokerLiteInfo": (
        "smaller counts of what is out (what is wholly acknowledged is forgotten), of queues "
        "(those with messages, not all that were asked for) and of offsets (none in a lite topic "
        "without messages)"
    ),
}
DIFFERS: Final[Mapping[str, Mapping[str, str]]] = {
    "4.9": {
        "brokerStatus": (
            "eight rows more: `brokerActive`, `getTransferredTps` and five of timers, which 5.x "
            "reads, and `haProtocol`, which our slaves read; one more, `loopLongestTurn`, once a "
            "turn of the loop took a millisecond"
        ),
        "deleteAclConfig": "the refusal of an unknown account says why, behind the same words",
        "exportMetadata": _DATA_VERSION,
        "getBrokerConfig": _SETTINGS,
        "getNamesrvConfig": _SETTINGS,
        "statsAll": _REVIVE,
        "topicList": _REVIVE,
    },
    "5.3": _OF_5,
    "5.5": {**_OF_5, **_OF_5_5},
}
"""Line to command to what is different."""

_CONTAINER: Final = "broker containers: [one](container.md) takes them, a broker does not"
_CONTROLLER: Final = "the controller"
NOTHING_FOR: Final[Mapping[str, str]] = {
    "addBroker": _CONTAINER,
    "removeBroker": _CONTAINER,
    "getSyncStateSet": _CONTROLLER,
    "getControllerMetaData": _CONTROLLER,
    "getControllerConfig": _CONTROLLER,
    "updateControllerConfig": _CONTROLLER,
    "electMaster": _CONTROLLER,
    "cleanBrokerMetadata": _CONTROLLER,
}
"""Command of 5.3.3 to what it is for, that a 4.9 broker has not: it ends with a refusal."""

_USERS: Final = "The authenticationMetadataProvider is not configured"
_ACLS: Final = "The authorizationMetadataProvider is not configured"
ANSWERED: Final = {
    "setConsumeMode": "set consume mode to .* success",
    "updateStaticTopic": "The new mapping data is written to file",
    "remappingStaticTopic": "Mapping info should not be null in broker broker-a",
    "exportPopRecord": "Export broker records, brokerName=",
    "getBrokerEpoch": "this request only for controllerMode",
    "resetMasterFlushOffset": "reset master flush offset to 0 success",
    "rocksDBConfigToJson": "export done",
    "checkRocksdbCqWriteProgress": "check doing, please wait and get the result from log",
    "switchTimerEngine": "switchTimerEngine to FILE_TIME_WHEEL success",
    # As configured; test_auth.py asks brokers that have both.
    **dict.fromkeys(
        ("createUser", "updateUser", "deleteUser", "getUser", "listUser", "copyUser"), _USERS
    ),
    **dict.fromkeys(("createAcl", "updateAcl", "deleteAcl", "getAcl", "listAcl", "copyAcl"), _ACLS),
}
"""Command of 5.x that a 4.9 broker has not and ours has, to what is printed."""
SAME_WORDS: Final = (
    "setConsumeMode",
    "getSyncStateSet",
    "getControllerMetaData",
    "getControllerConfig",
    "updateControllerConfig",
    "electMaster",
    "cleanBrokerMetadata",
    "switchTimerEngine",
)
"""Those of these commands to which a Java broker (without a controller) says the same."""
REFUSAL: Final = r"request type \d+ not supported"
LOCAL: Final = ("dumpCompactionLog", "exportMetadataInRocksDB")
"""Commands of 5.3.3 that read files and ask nobody."""


def as_markdown() -> str:
    """The lists of docs/mqadmin.md."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    for releases, commands in (
        ("4.9.8", DIFFERS["4.9"]),
        ("5.3.3 and 5.5.0", _OF_5),
        ("5.5.0 alone", _OF_5_5),
    ):
        yield f"What mqadmin {releases} shows of ours:"
        yield ""
        for reason in dict.fromkeys(commands.values()):
            yield from _bullet([name for name, what in commands.items() if what == reason], reason)
        yield ""
    yield "Commands of 5.x that are refused, and what they are for:"
    yield ""
    for purpose in dict.fromkeys(NOTHING_FOR.values()):
        yield from _bullet([name for name, what in NOTHING_FOR.items() if what == purpose], purpose)


def _bullet(names: Iterable[str], text: str) -> list[str]:
    words = f"- {', '.join(f'`{name}`' for name in names)}: {text}"
    return textwrap.wrap(words, 100, subsequent_indent="  ", break_on_hyphens=False)
