"""Access files sent to a slave: body of GET_ACL_FILES (an extension of this broker). Pure data, any
thread."""

from __future__ import annotations

from dataclasses import dataclass, field

from remoting.body.json_bean import JsonBean


@dataclass(frozen=True, slots=True, kw_only=True)
class AclFileText(JsonBean):
    """One file: its path below conf (plain_acl.yml, acl/team.yml) and its whole text."""

    name: str
    text: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AclFiles(JsonBean):
    """Every access file in use on the responding broker. Contains secret keys."""

    files: list[AclFileText] = field(default_factory=list)
