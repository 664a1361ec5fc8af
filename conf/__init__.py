"""conf: the shipped settings files, and the only code that reads and writes settings files.

Runs in every process, at its start and when a setting changes. Knows files, text and dataclasses;
it must not know what any setting means: each room declares its own frozen dataclass
(`config_fields`), which is filled here. Also here, because all rooms need them: atomic writes of
whole files (`atomic_file`), log handlers (`logging_setup`), pid files (`pid_file`).
"""
