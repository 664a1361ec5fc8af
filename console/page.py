"""What a view is: a function from what is known to a page; and an action: what changes something.

Pure data; any thread. console/app.py makes routes of these. Must not know Starlette.

Tested by tests/console/test_app.py.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Protocol, TypeVar

from console.checked_client import CheckedClient
from console.errors import ConsoleError as ConsoleError
from console.history import History
from console.jobs import Jobs
from console.kept_answers import Answer
from console.laned_client import LanedClient, Reading
from console.lanes import Lanes, Question
from console.snapshot import ClusterSnapshot
from console.tables import Table
from tools.admin_client import AdminClient
from tools.errors import AdminError

T = TypeVar("T")

MAX_QUERY_TEXT: Final = 1_000
LOOKS: Final = "looks of"
"""Begins the names of lanes of what asks several brokers: one an account, one for all guests."""
LOOK_AGE_MS: Final = 3_000
LOOK_PATIENCE_MS: Final = 8_000


class Query:
    """The query of a URL or the fields of a form. Every method raises ConsoleError in words."""

    def __init__(self, fields: Mapping[str, str]) -> None:
        self.fields = fields

    def text(self, name: str, default: str = "") -> str:
        """A text, cut of blanks; longer than 1,000 characters is refused."""
        value = self.fields.get(name, default).strip()
        if len(value) > MAX_QUERY_TEXT:
            raise ConsoleError(f"{name} is longer than {MAX_QUERY_TEXT} characters")
        return value

    def words(self, name: str, most: int) -> list[str]:
        """Words between blanks or commas, each once."""
        found = list(dict.fromkeys(self.fields.get(name, "").replace(",", " ").split()))
        if len(found) > most or any(len(word) > MAX_QUERY_TEXT for word in found):
            raise ConsoleError(f"{name} may have {most} words of {MAX_QUERY_TEXT} characters")
        return found

    def time_ms(self, name: str) -> int | None:
        """A time: milliseconds since 1970, or as a form's field has it, in UTC; None: not said."""
        text = self.text(name)
        if not text:
            return None
        if text.isascii() and text.isdigit() and len(text) <= 15:
            return int(text)
        try:
            moment = datetime.fromisoformat(text)
        except ValueError as error:
            raise ConsoleError(f"{name} is no time: {text[:40]!r}; 2026-11-28T07:30 is") from error
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return int(moment.timestamp() * 1000)

    def needed(self, name: str) -> str:
        """A text that must be there."""
        value = self.text(name)
        if not value:
            raise ConsoleError(f"{name} is missing")
        return value

    def number(self, name: str, default: int, low: int, high: int) -> int:
        """A whole number within bounds."""
        text = self.text(name)
        if not text:
            return default
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) <= 19):
            raise ConsoleError(f"{name} is not a whole number: {text[:40]!r}")
        value = int(text)
        if not low <= value <= high:
            raise ConsoleError(f"{name} is {value}; it must be between {low} and {high}")
        return value

    def choice(self, name: str, allowed: Sequence[str]) -> str:
        """One of some words; the first is the default."""
        value = self.text(name) or allowed[0]
        if value not in allowed:
            raise ConsoleError(f"{name} must be one of {', '.join(allowed)}")
        return value


class AccountLike(Protocol):
    """Who is signed in."""

    @property
    def name(self) -> str:
        """As it is shown."""

    @property
    def key(self) -> Hashable:
        """Names the account's answers and client."""


@dataclass(frozen=True, slots=True)
class Reader:
    """What a view may use: what is known, and a way to ask for more."""

    snapshot: ClusterSnapshot
    history: History
    lanes: Lanes
    jobs: Jobs
    client_of: Callable[[Hashable], AdminClient]
    name_servers: tuple[str, ...]
    now_ms: int
    """Wall clock."""
    clock_ms: int
    """Monotonic: how old is what the snapshot has."""
    account: AccountLike | None = None
    may_change: bool = False
    address: str = ""
    """From where the reader asks."""
    check_address: Callable[[str], None] | None = None
    """For a reader who signed in: raises ConsoleError for a broker that does not check accounts."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Where mqreport's pages are, and the like."""

    @property
    def account_key(self) -> Hashable:
        """Of the answers that this reader may see."""
        return None if self.account is None else self.account.key

    def ask(
        self, address: str, question: Question[T], max_age_ms: int, *, is_later: bool = False
    ) -> Answer[T]:
        """Ask a broker, with the reader's own account, or the console's if nobody signed in.
        `is_later`: do not wait; what is not known yet is there when the page is loaded again."""
        if not is_later:
            return self.lanes.ask(address, question, max_age_ms, self.account_key)
        return self.lanes.ask(address, question, max_age_ms, self.account_key, 0, is_later=True)

    def laned(self, max_age_ms: int, *, is_later: bool = False) -> AdminClient:
        """A client for functions of tools that read: it costs the brokers what `ask` costs."""
        reading = Reading(self.account_key, max_age_ms, is_later)
        return LanedClient(self.client_of(None), self.lanes, reading)

    def look(self, question: Question[T], max_age_ms: int = LOOK_AGE_MS) -> T:
        """A peek at messages, which asks brokers many things at once. It is its reader's own doing
        and not counted as the console's, but each account has one at a time, and at most one a
        second in the long run. It looks only at brokers that check accounts, as an action does.
        ConsoleError when it has not ended in eight seconds, or failed."""
        if self.check_address is not None:
            question = _checked(question, self.check_address)
        whose = "guests" if self.account is None else f"account {self.account.name}"
        answer = self.lanes.ask(
            f"{LOOKS} {whose}", question, max_age_ms, self.account_key, LOOK_PATIENCE_MS
        )
        if answer.error is not None or answer.value is None:
            raise ConsoleError(answer.error or "nothing was answered", 502)
        return answer.value

    def ask_name_server(self, question: Question[T], max_age_ms: int) -> Answer[T]:
        """Ask the first name server that answers."""
        answer: Answer[T] = Answer(error="no name server is named")
        for address in self.name_servers:
            answer = self.lanes.ask(address, question, max_age_ms, self.account_key)
            if answer.at_ms:
                return answer
        return answer

    def client(self) -> AdminClient:
        """The client of the reader's own account, for what a reader does once (an action). It
        refuses to ask a broker that does not check accounts, with a ConsoleError."""
        client = self.client_of(self.account_key)
        if self.check_address is None:
            return client
        return CheckedClient(client, self.check_address)

    def must_sign_in(self, for_what: str) -> None:
        """Message bodies and accounts are for those who signed in."""
        if self.account is None:
            raise ConsoleError(f"Sign in to see {for_what}.", 401)


def _checked(question: Question[T], check: Callable[[str], None]) -> Question[T]:
    def run(client: AdminClient, address: str) -> T:
        try:
            return question.run(CheckedClient(client, check), address)
        except ConsoleError as error:  # a lane's questions fail with errors of peers
            raise AdminError(str(error)) from error

    return Question(question.key, run, question.most_bytes)


@dataclass(frozen=True, slots=True)
class Page:
    """What a view gives: its template's context, its tables, and its JSON if that is not theirs."""

    context: Mapping[str, Any] = field(default_factory=dict)
    tables: Sequence[Table] = ()
    data: Any = None
    """None: an object of the tables' rows, or the rows when there is one table."""
    title: str | None = None

    def json_data(self) -> Any:
        """What PATH.json shows."""
        if self.data is not None:
            return self.data
        if len(self.tables) == 1:
            return self.tables[0].data()
        return {table.name: table.data() for table in self.tables}


@dataclass(frozen=True, slots=True)
class View:
    """One page of the console. `path` may have parameters, as {topic}; they come in the query."""

    path: str
    title: str
    section: str
    """Under which heading of the navigation; "" for pages that only links lead to."""
    template: str
    """"": it has no page, only JSON: figures of a plot."""
    function: Callable[[Reader, Query], Page]


@dataclass(frozen=True, slots=True)
class Field:
    """One field of an action's form."""

    name: str
    label: str
    kind: str = "text"
    """text, number, password, textarea, checkbox, hidden, or select."""
    choices: Sequence[str] = ()
    needed: bool = True
    help: str = ""
    default: str = ""


@dataclass(frozen=True, slots=True)
class Done:
    """What an action did: sentences for the reader, and where to go on. Raises ConsoleError, or a
    peer's error, when it did nothing."""

    sentences: Sequence[str]
    next_url: str = "/"
    ok: bool = True
    """False: some of it failed; the sentences say what."""


@dataclass(frozen=True, slots=True)
class Action:
    """What changes something: /do/NAME shows the form, then the plan; a POST does it.

    Every run leaves an audit line. `secret_fields` are not in it.
    """

    name: str
    title: str
    fields: Sequence[Field]
    plan: Callable[[Reader, Query], Sequence[str]]
    """What will happen, in sentences. Raises ConsoleError for fields that cannot be used."""
    run: Callable[[Reader, Query], Done]
    is_destructive: bool = False
    secret_fields: frozenset[str] = frozenset()
