"""PopFilters: the filter of a pop or a notification, from its expType and exp.

Runs on the loop thread of `remoting`, once for each request. Knows no request and no message.

Tested by tests/broker/pop/test_pop_services.py.
"""

from __future__ import annotations

from broker.filter.filter_factory import FilterFactory, is_tag_type
from broker.filter.message_filter import ExpressionMessageFilter
from broker.filter.selector import InvalidSelectorError
from broker.filter.subscription_filter import TagExpressions
from broker.pop.pop_message_reader import Wanted
from remoting.errors import RequestError
from remoting.response_code import ResponseCode


class PopFilters:
    """Expressions that were read before are kept. Owned by: the loop thread."""

    def __init__(self) -> None:
        self._tags = TagExpressions()
        self._factory = FilterFactory()

    def wanted(self, kind: str | None, expression: str | None) -> Wanted:
        """The filter that an expression of a type asks for. Raises RequestError."""
        if not expression:
            return None, None
        try:
            if is_tag_type(kind):
                return self._tags.codes(expression), None
            selector = self._factory.compile(kind or "", expression)
        except (ValueError, InvalidSelectorError) as error:
            raise RequestError(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED, "parse the consumer's subscription failed"
            ) from error
        return None, ExpressionMessageFilter(selector)
