"""The routes of actions and jobs: a form, what will happen, a confirmation, the result.

In process `console`; what asks a broker runs in Starlette's pool of threads. Nothing is done before
it is announced in the audit log, and its result is there before the reader sees it. An action asks
with the account of its reader, and only brokers that check accounts for this console obey one that
is not the operator's (access.require_judge). Must not know what an action does.

Tested by tests/console/test_actions.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from console.access.access import Access
from console.access.audit_log import AuditError, Entry
from console.access.sessions import Session
from console.jobs import Jobs
from console.lanes import ANSWER_ERRORS
from console.page import Action, ConsoleError, Done, Query, Reader
from tools.report import safe_line

log = logging.getLogger(__name__)

PLAN: Final = "plan"
RUN: Final = "run"
STEP: Final = "step"
STOP_JOB: Final = "stopJob"


@dataclass(frozen=True, slots=True)
class ActionSite:
    """What actions need of the application."""

    access: Access
    page: Callable[[Request, str, Mapping[str, Any], int], Response]
    sentence: Callable[[Request, str, int], Response]
    reader_of: Callable[[Request], Reader]
    jobs: Jobs


class Actions:
    """Serves /do/NAME for each action, and /jobs/ID/stop."""

    def __init__(self, actions: Sequence[Action], site: ActionSite) -> None:
        self._actions = {action.name: action for action in actions}
        self._site = site

    def routes(self) -> list[BaseRoute]:
        """Of the application."""
        return [
            Route("/do/{name}", self._guarded(self._show), methods=["GET"]),
            Route("/do/{name}", self._guarded(self._post), methods=["POST"]),
            Route("/jobs/{job}/stop", self._guarded(self._stop), methods=["POST"]),
        ]

    # -- the three requests --------------------------------------------------------------------

    async def _show(self, request: Request) -> Response:
        """The form, or with step=plan in the link what will happen."""
        action = self._found(request)
        session = self._site.access.require_change(self._site.access.session_of(request))
        fields = dict(request.query_params)
        if action.secret_fields or fields.get(STEP) != PLAN:
            return self._form(request, action, fields, "", 200)
        return await run_in_threadpool(self._plan, request, session, action, fields)

    async def _post(self, request: Request) -> Response:
        action = self._found(request)
        session, fields = await self._site.access.form(request)
        step = self._run if fields.get(STEP) == RUN else self._plan
        return await run_in_threadpool(step, request, session, action, fields)

    async def _stop(self, request: Request) -> Response:
        session, _ = await self._site.access.form(request)
        job = self._site.jobs.find(request.path_params["job"], session.account.key)
        entry = self._site.access.intend(request, session, STOP_JOB, {"job": job.title})
        job.stop.set()
        entry.done()
        return RedirectResponse(f"/jobs/{job.id}", 303)

    # -- one action ----------------------------------------------------------------------------

    def _plan(
        self, request: Request, session: Session, action: Action, fields: dict[str, str]
    ) -> Response:
        """What will happen; a form that cannot be used comes back with the reason."""
        try:
            sentences = action.plan(self._reader(request, session), Query(fields))
        except (ConsoleError, *ANSWER_ERRORS) as error:
            return self._form(request, action, fields, str(error), 400)
        kept = [(field.name, fields.get(field.name, "")) for field in action.fields]
        context = {
            "title": action.title,
            "action": action,
            "sentences": [safe_line(sentence) for sentence in sentences],
            "kept": kept,
        }
        return self._site.page(request, "plan.html.j2", context, 200)

    def _run(
        self, request: Request, session: Session, action: Action, fields: dict[str, str]
    ) -> Response:
        shown = {field.name: fields.get(field.name, "") for field in action.fields}
        reader = self._reader(request, session)
        entry = self._site.access.intend(request, session, action.name, shown, action.secret_fields)
        try:
            done = action.run(reader, Query(fields))
        except (ConsoleError, *ANSWER_ERRORS) as error:
            return self._failed(request, entry, action, str(error))
        except Exception:
            log.exception("action %s failed", action.name)
            text = "The console itself failed at this; its log says where. It may be half done."
            return self._failed(request, entry, action, text)
        words = safe_line("; ".join(done.sentences))
        return self._ended(request, action, done, lambda: _end(entry, words, ok=done.ok))

    def _failed(self, request: Request, entry: Entry, action: Action, why: str) -> Response:
        done = Done([f"Not done: {safe_line(why)}"], ok=False)
        return self._ended(request, action, done, lambda: entry.failed(safe_line(why)))

    def _ended(
        self, request: Request, action: Action, done: Done, write: Callable[[], None]
    ) -> Response:
        """The result, once it is in the audit log."""
        sentences = [safe_line(sentence) for sentence in done.sentences]
        try:
            write()
        except AuditError as error:
            log.error("audit of %s: %s", action.name, error)
            sentences.append(f"The audit log lacks this result: {error}")
        context = {
            "title": action.title,
            "sentences": sentences,
            "next_url": done.next_url,
            "ok": done.ok,
        }
        return self._site.page(request, "done.html.j2", context, 200 if done.ok else 502)

    def _form(
        self, request: Request, action: Action, fields: Mapping[str, str], why: str, status: int
    ) -> Response:
        values = {field.name: fields.get(field.name, field.default) for field in action.fields}
        for name in action.secret_fields:
            values[name] = ""
        context = {"title": action.title, "action": action, "values": values, "why": why}
        return self._site.page(request, "action.html.j2", context, status)

    # -- inside --------------------------------------------------------------------------------

    def _found(self, request: Request) -> Action:
        action = self._actions.get(request.path_params["name"])
        if action is None:
            raise ConsoleError("There is no such action.", 404)
        return action

    def _reader(self, request: Request, session: Session) -> Reader:
        """The reader, whose client asks only brokers that check the account."""
        check = self._site.access.check_of(session)
        reader = self._site.reader_of(request)
        # of the session that was checked: it may have ended since, and nobody asks as the console
        return replace(reader, account=session.account, check_address=check)

    def _guarded(self, endpoint: Callable[[Request], Any]) -> Callable[[Request], Any]:
        async def answer(request: Request) -> Response:
            try:
                found: Response = await endpoint(request)
            except ConsoleError as error:
                return self._site.sentence(request, str(error), error.status)
            except AuditError as error:
                return self._site.sentence(request, f"Nothing was done: {error}", 503)
            return found

        return answer


def _end(entry: Entry, words: str, *, ok: bool) -> None:
    if ok:
        entry.done(words)
    else:
        entry.failed(words)
