"""The accounts of brokers with ACL: the file that names them, and who signs with what."""

from __future__ import annotations

from typing import Final

ACCOUNTS: Final = """
accounts:
- accessKey: application
  secretKey: application-secret
  defaultTopicPerm: PUB|SUB
  defaultGroupPerm: SUB
  topicPerms: [read-only=SUB]
  groupPerms: [closed=DENY]
- accessKey: operator
  secretKey: operator-secret
  admin: true
"""
SECRETS: Final = {
    "application": "application-secret",
    "operator": "operator-secret",
    "stranger": "stranger-secret",
}
"""By access key; the stranger has no account."""
