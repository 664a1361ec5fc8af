"""Writes console/broker_settings.json: what the console knows of the settings of brokers.

The console may not import the broker, so it has this file, which is made from the declarations of
the settings; Java's defaults are facts about RocketMQ's sources, by what differs from ours.
`.venv/bin/python -m tests.broker.known_settings_file` writes it anew; a test compares the text.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from broker import broker_startup
from conf.config_fields import field_specs
from tests.broker.settings_document import known_keys

FILE: Final = Path(__file__).parents[2] / "console" / "broker_settings.json"
COMMAND: Final = ".venv/bin/python -m tests.broker.known_settings_file"

JAVA_498: Final[Mapping[str, str | None]] = {
    "adminBrokerThreadPoolNums": "16",
    "configBlackList": "configBlackList;configStorePath;kvConfigPath",
    "haTransferBatchSize": "32768",
    **dict.fromkeys(("namesrvAddr", "queryMessageThreadPoolNums", "rocketmqHome")),
    **dict.fromkeys(("rmqAddressServerDomain", "rmqAddressServerSubGroup", "storePathCommitLog")),
}
"""Where 4.9.8 has another default than ours; None: it depends on the host, or is not known."""
_NOT_KNOWN_OF_533: Final = (
    *("accessMessageInMemoryHotRatio", "authenticationEnabled"),
    *("authenticationMetadataProvider", "authenticationProvider"),
    *("authenticationStrategy", "authenticationWhitelist", "authorizationEnabled"),
    *("authorizationMetadataProvider", "authorizationProvider", "authorizationStrategy"),
    *("authorizationWhitelist", "coldDataFlowControlEnable", "coldDataScanEnable"),
    *("compactionCqMappedFileSize", "compactionMappedFileSize"),
    *("compactionScheduleInternal", "dataReadAheadEnable", "defaultPopShareQueueNum"),
    *("enableLmqStats", "enableNotifyAfterPopOrderLockRelease"),
    *("fetchControllerAddrByDnsLookup", "initAuthenticationUser"),
    *("innerClientAuthenticationCredentials", "mapperFileSizeBatchConsumeQueue"),
    *("maxOffsetMapSize", "migrateAuthFromV1Enabled"),
    *("popResponseReturnActualRetryTopic", "sampleSteps", "skipWhenCKRePutReachMaxTimes"),
    *("storePathBrokerIdentity", "storePathEpochFile", "timerColdDataCheckIntervalMs"),
    *("usePIDColdCtrStrategy"),
)
JAVA_533: Final[Mapping[str, str | None]] = {
    "autoDeleteUnusedStats": "true",
    "enablePopBufferMerge": "false",
    "fetchNamesrvAddrInterval": "10000",
    "inSyncReplicas": "1",
    "registerBrokerTimeoutMills": "24000",
    "reviveInterval": "1000",
    "transactionCheckInterval": "30000",
    "useServerSideResetOffset": "true",
    "configBlackList": None,
    **dict.fromkeys(_NOT_KNOWN_OF_533),
}
"""The same of 5.3.3, beside what is in JAVA_498."""


def text() -> str:
    """A line for each key. default, java4, java5: those of ours, 4.9 and 5.x; null where it depends
    on the host, or is not known. changeable: null where a request cannot change it."""
    keys = known_keys()
    lines: dict[str, str] = {}
    for cls in broker_startup.KEYS.classes:
        computed = {
            field.name for field in dataclasses.fields(cls) if field.default is dataclasses.MISSING
        }
        for spec in field_specs(cls):
            key = spec.key
            shown = broker_startup.PROGRAM_DEFAULTS.get(key, spec.shown_default)
            of_host = spec.name in computed or spec.env or shown.startswith("~")
            default = None if of_host else shown
            java4 = JAVA_498.get(key, default)
            has4, has5 = (key in keys[f"broker {release}"] for release in ("4.9.8", "5.3.3"))
            row = {
                "default": default,
                "changeable": spec.changeable and spec.changeable.value,
                "java4": java4 if has4 else None,
                "java5": JAVA_533.get(key, java4) if has4 or has5 else None,
            }
            lines.setdefault(key, f"{json.dumps(key)}: {json.dumps(row)}")
    return "{\n" + ",\n".join(lines[key] for key in sorted(lines)) + "\n}\n"


def main() -> None:
    """Write it."""
    FILE.write_text(text(), encoding="utf-8")
    print(f"written: {FILE.name}")


if __name__ == "__main__":
    main()
