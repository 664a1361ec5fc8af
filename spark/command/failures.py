"""What the commands without Spark do with bad input: the lines that say it, and exit code 3.

Called on the main thread by the commands of mqreport (verify, sign, exclude, import, compact,
openslo, rules). Errors of the arguments (UsageError) and of sla.yaml (SlaError) and bugs are the
business of spark/command/command_line.py, which ends every command.
"""

from __future__ import annotations

from collections.abc import Callable

from spark.command.output import complain
from spark.config.exclusion_log import LogError
from spark.config.openslo_reader import OpenSloError
from spark.evidence.signatures import KeyFileError
from spark.figures.report_data import EXIT_ERROR
from spark.prometheus_import.response import ResponseError


def exit_code_of(command: Callable[[], int]) -> int:
    """The command's own, or 3 after a line for each thing that is wrong. Raises UsageError."""
    try:
        return command()
    except OpenSloError as error:
        texts = list(error.problems)
    except (LogError, KeyFileError, ResponseError) as error:
        texts = [str(error)]
    except OSError as error:
        texts = [os_error_text(error)]
    for text in texts:
        complain(text)
    return EXIT_ERROR


def os_error_text(error: OSError) -> str:
    """The file, and the system's reason."""
    reason = error.strerror or str(error)
    return reason if error.filename is None else f"{error.filename}: {reason}"
