"""Deletes a topic from a cluster, for deleteTopic and deleteSubGroup.

Runs in the command's main thread, after the operator has confirmed.
"""

from __future__ import annotations

from remoting.headers.namesrv import DeleteTopicFromNamesrvRequestHeader
from remoting.headers.topic import DeleteTopicRequestHeader
from remoting.request_code import RequestCode
from tools.admin_client import AdminClient


def delete_topic(admin: AdminClient, topic: str, cluster: str) -> list[str]:
    """Delete a topic at all masters of a cluster, then at all name servers; the masters."""
    targets = [master.address for master in admin.masters(cluster)]
    for target in targets:
        admin.call(
            target, RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic=topic)
        )
    header = DeleteTopicFromNamesrvRequestHeader(topic=topic, cluster_name=cluster)
    admin.ask_every_name_server(RequestCode.DELETE_TOPIC_IN_NAMESRV, header)
    return targets
