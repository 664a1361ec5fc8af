"""conf: the shipped settings, and the only code that reads or safely writes settings files.

Runs in every process, at its start and when a setting changes. Knows files, text and dataclasses;
it must not know what any setting means: each room declares its own frozen dataclass and gets it
filled. Also here, because every room above needs them and they are about files beside the data:
whole-file writes (`atomic_file`), log handlers (`logging_setup`), pid files (`pid_file`).
"""
