"""What can go wrong between Spark and RocketMQ, as sentences that name the way out.

Pure data; driver and executors. Spark shows an exception's text with the traceback of a worker,
so no text may hold a secret.
"""

from __future__ import annotations


class SourceError(Exception):
    """A read or write cannot be done; the message is for the user of Spark."""


class OptionError(SourceError):
    """An option is missing, unknown or has a value that cannot be used."""


class NoNameServerError(SourceError):
    """None of the name servers answers."""


class NoTopicError(SourceError):
    """The name servers know no such topic, or nothing of it can be read."""


class NoRightError(SourceError):
    """A broker or name server refuses: the account lacks a right, or there is none."""


class UnavailableError(SourceError):
    """No broker of a name answered within the time that the options grant."""


class DataLossError(SourceError):
    """Messages that were to be read are gone: retention passed, or a log became shorter."""


class DamagedMessageError(SourceError):
    """A broker sent bytes that are no message, or a message that cannot be decoded."""
