"""Many topics or groups at once: updateTopicList, updateSubGroupList.

(Java: UpdateTopicListSubCommand, UpdateSubGroupListSubCommand.)
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeVar

import click

from remoting.body.json_bean import JsonBean
from remoting.body.subscription_group_config import SubscriptionGroupConfig, SubscriptionGroupList
from remoting.body.topic_config import CreateTopicListRequestBody, TopicConfig
from remoting.remoting_serializable import JsonError, loads_lenient
from remoting.request_code import RequestCode
from tools.broker_changes import MASTERS, Change, change
from tools.errors import AdminError

_Bean = TypeVar("_Bean", bound=JsonBean)

_File = Annotated[
    Path,
    "-f --filename",
    "A JSON file: a list of what config/*.json has.",
    click.Path(path_type=Path),
]


_SAID = "submit batch of %s to {} success, please check the result later."


@change("updateTopicList", MASTERS, _SAID % "topic config")
def update_topic_list(path: _File) -> Change:
    """Create or change the topics of a file."""
    topics = _read(path, TopicConfig)
    body = CreateTopicListRequestBody(topic_config_list=topics).to_json_bytes()
    names = [topic.topic_name for topic in topics]
    return Change(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=body, data={"names": names})


@change("updateSubGroupList", MASTERS, _SAID % "group config")
def update_sub_group_list(path: _File) -> Change:
    """Create or change the groups of a file."""
    groups = _read(path, SubscriptionGroupConfig)
    body = SubscriptionGroupList(group_config_list=groups).to_json_bytes()
    names = [group.group_name for group in groups]
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
    return Change(code, body=body, data={"names": names})


def _read(path: Path, kind: type[_Bean]) -> list[_Bean]:
    """The file's list. AdminError when it is not one, or empty."""
    try:
        rows = loads_lenient(path.read_bytes())
    except (OSError, JsonError) as error:
        raise AdminError(f"{path} cannot be read: {error}") from error
    if not isinstance(rows, list) or not rows:
        raise AdminError(f"{path} holds no list, or an empty one")
    found = []
    for number, row in enumerate(rows, start=1):
        try:
            found.append(kind.from_json(row))
        except ValueError as error:
            raise AdminError(f"{path}, row {number}: {error}") from error
    return found
