"""What can go wrong in an operator's command, apart from remoting's own errors.

Pure data. `mqadmin` turns each into one line on stderr and an exit code; no other code catches all
of them.
"""

from __future__ import annotations

from remoting.response_code import response_code_name


class AdminError(Exception):
    """A command cannot do what was asked; the message is one line for the operator."""


class BrokerAnswerError(AdminError):
    """A peer answered a code that the command does not accept (Java: MQBrokerException)."""

    def __init__(self, address: str, code: int, remark: str | None) -> None:
        lines = (remark or "").strip().splitlines()
        self.address = address
        self.code = code
        self.remark = lines[0] if lines else ""
        name = response_code_name(code)
        super().__init__(f"{address} answered {name} ({code}): {self.remark or 'no remark'}")


class MessageDecodeError(AdminError):
    """The bytes of a stored message do not fit together; names the offset inside the answer."""
