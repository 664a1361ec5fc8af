"""YAML of a file with settings or accounts, as nodes.

Any thread. Nodes keep their line numbers, and no object is constructed of them, so YAML tags are
harmless. Imported where there is YAML to read: most brokers have none, and what is imported stays
in every process. Does not know what the keys mean.

Tested by tests/broker/acl/test_plain_acl_file.py.
"""

from __future__ import annotations

import yaml

from conf.errors import ConfigError


def compose_yaml(text: str, name: str) -> yaml.Node | None:
    """The root of the file `name`; None: it is empty. Raises ConfigError: it is no YAML."""
    try:
        return yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ConfigError([f"{name}{line}: not YAML: {error.problem}"]) from error
    except yaml.YAMLError as error:
        raise ConfigError([f"{name}: not YAML: {error}"]) from error
    except RecursionError as error:
        raise ConfigError([f"{name}: nested too deeply"]) from error


def scalar_text(node: yaml.ScalarNode) -> str:
    """A scalar as it is written, without blanks around it; null is empty."""
    is_null = node.tag == "tag:yaml.org,2002:null"
    return "" if is_null else str(node.value).strip()
