"""Topic configuration: body of 18, 21 and 351, part of 103, file config/topics.json; topic lists.

Pure data, any thread.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import StrEnum

from remoting.body.data_version import DataVersion
from remoting.body.json_bean import JsonBean
from remoting.body.topic_queue_mapping import TopicQueueMappingDetail, TopicQueueMappingInfo
from remoting.command_custom_header import Int32


class TopicFilterType(StrEnum):
    """How many tags a message may have (Java: TopicFilterType)."""

    SINGLE_TAG = "SINGLE_TAG"
    MULTI_TAG = "MULTI_TAG"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig(JsonBean):
    """One topic. perm: 4 read, 2 write, 1 inherit. attributes exist in 5.x only."""

    topic_name: str
    read_queue_nums: Int32 = 16
    write_queue_nums: Int32 = 16
    perm: Int32 = 6
    topic_filter_type: TopicFilterType = TopicFilterType.SINGLE_TAG
    topic_sys_flag: Int32 = 0
    order: bool = False
    attributes: dict[str, str] | None = None

    @property
    def has_batch_queues(self) -> bool:
        """Whether its consume queues are batch consume queues (5.x)."""
        return self.attributes is not None and self.attributes.get("queue.type") == "BatchCQ"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfigAndQueueMapping(TopicConfig):
    """Answer to GET_TOPIC_CONFIG (351); with the mapping of a static topic if lo=true was asked."""

    mapping_detail: TopicQueueMappingDetail | None = None

    @classmethod
    def of(cls, config: TopicConfig, detail: TopicQueueMappingDetail) -> TopicConfigAndQueueMapping:
        """A topic with its mapping."""
        members = {each.name: getattr(config, each.name) for each in fields(config)}
        return cls(**members, mapping_detail=detail)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfigSerializeWrapper(JsonBean):
    """Body of GET_ALL_TOPIC_CONFIG (21), part of 103, and config/topics.json.

    The last three are of static topics (5.x): the infos go with 103, the details and their version
    with 21 (Java: TopicConfigAndMappingSerializeWrapper).
    """

    data_version: DataVersion = field(default_factory=DataVersion)
    topic_config_table: dict[str, TopicConfig] = field(default_factory=dict)
    topic_queue_mapping_info_map: dict[str, TopicQueueMappingInfo] | None = None
    topic_queue_mapping_detail_map: dict[str, TopicQueueMappingDetail] | None = None
    mapping_data_version: DataVersion | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopicListRequestBody(JsonBean):
    """Body of UPDATE_AND_CREATE_TOPIC_LIST (18, 5.x)."""

    topic_config_list: list[TopicConfig] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopicListRequestBody(JsonBean):
    """Body of DELETE_TOPIC_IN_BROKER_LIST (5002, 5.5.1)."""

    topic_list: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicList(JsonBean):
    """Body of 206, 224, 304, 305, 311-313, 343; broker_addr in answers to 304 only."""

    topic_list: list[str] = field(default_factory=list)
    broker_addr: str | None = None
