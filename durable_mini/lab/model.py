"""A real model for the reference agent: any OpenAI-compatible endpoint, named by a setting.

Guarantees: with no setting nothing here is used, and nothing needs a network. Where one is made, a
step costs the thousands of tokens that the endpoint says it took, and an endpoint that is busy is
asked again. Leaves to others: the scripted model (`ledger`), and what the model's text is worth.

    DURABLE_MINI_MODEL_URL   where, up to and with the version: http://127.0.0.1:11434/v1
    DURABLE_MINI_MODEL       which model there
    DURABLE_MINI_MODEL_KEY   the key, if it asks for one
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, NamedTuple, Self
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from durable_mini.context import Context
from durable_mini.lab.agent import order_of
from durable_mini.lab.ledger import AMOUNT, Outside
from durable_mini.retry import RetryPolicy
from durable_mini.structure import Workflow, workflow

URL, NAME, KEY = "DURABLE_MINI_MODEL_URL", "DURABLE_MINI_MODEL", "DURABLE_MINI_MODEL_KEY"
_PATIENCE_S = 120.0
_BUSY = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
_ROLE = "You answer customers' tickets. Do only the task that you are given, in a few sentences."


class ModelError(Exception):
    """The endpoint can't be used like this: another try won't help."""


class ModelBusyError(Exception):
    """The endpoint couldn't answer this time."""


class Model(NamedTuple):
    """One model behind one endpoint."""

    url: str
    name: str
    key: str = ""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Self | None:
        """The model that the settings name; None where they name none.

        Raises:
            ValueError: one of the settings is missing.
        """
        url, name = environment.get(URL, ""), environment.get(NAME, "")
        if not url and not name:
            return None
        if not url or not name:
            missing, given = (NAME, URL) if url else (URL, NAME)
            raise ValueError(f"{given} is set and {missing} isn't. Next: set both, or neither.")
        return cls(url.rstrip("/"), name, environment.get(KEY, ""))

    def ask(self, task: str, about: Any) -> dict[str, Any]:
        """What the model says on a task: `text`, and the `tokens` that question and answer took.

        Raises:
            ModelBusyError: no answer this time: it is busy, or can't be reached.
            ModelError: it refuses, or its answer isn't what such an endpoint answers.
        """
        said = [{"role": "system", "content": _ROLE}]
        said += [{"role": "user", "content": f"Task: {task}\n\n{json.dumps(about)}"}]
        body = {"model": self.name, "messages": said, "temperature": 0}
        answer = self._posted("/chat/completions", body)
        try:
            text = answer["choices"][0]["message"]["content"]
            tokens = answer["usage"]["total_tokens"]
        except (LookupError, TypeError) as error:
            why = f"its answer has no text or no token count: {answer!r:.200}"
            raise ModelError(f"{self.url}: {why}") from error
        return {"text": str(text), "tokens": int(tokens)}

    def _posted(self, path: str, body: dict[str, Any]) -> Any:
        headers = {"Content-Type": "application/json"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        request = Request(self.url + path, json.dumps(body).encode(), headers)  # noqa: S310
        try:
            with urlopen(request, timeout=_PATIENCE_S) as answer:  # noqa: S310 - the user's own
                return json.load(answer)
        except HTTPError as error:
            kind = ModelBusyError if error.code in _BUSY else ModelError
            raise kind(f"{self.url} answered {error.code} {error.reason}") from error
        except (URLError, TimeoutError, ConnectionError) as error:
            raise ModelBusyError(f"{self.url} can't be reached: {error}") from error
        except ValueError as error:
            raise ModelError(f"{self.url} answered with no JSON: {error}") from error


def thousands_of_tokens(answer: dict[str, Any]) -> float:
    """What an answer costs."""
    return float(answer["tokens"]) / 1_000


def asking_agent(world: Outside, model: Model) -> Workflow:
    """The reference agent with a real model; its effects go to a given world, as its bill does."""
    patient = RetryPolicy(max_attempts=5, non_retryable=(TypeError, ModelError))
    asked: dict[str, Any] = {"retry": patient, "cost": thousands_of_tokens}

    def ask(task: str, about: Any) -> dict[str, Any]:
        answer = model.ask(task, about)
        world.think(task, about, thousands_of_tokens(answer))  # the receiver keeps the bill
        return answer

    @workflow(name="reference_agent", version="model")
    def agent(ctx: Context, ticket: Any) -> dict[str, Any]:
        order = order_of(ticket)
        plan = ctx.step("plan", ask, "plan an answer to this ticket", ticket, **asked)
        notes = ctx.step("research", ask, "note what has to be known for this plan", plan, **asked)
        draft = ctx.step("draft", ask, "draft the answer from these notes", notes, **asked)
        receipt = ctx.effect("charge", world.charge, order, AMOUNT)
        last = "compose the mail from this draft and this receipt"
        letter = ctx.step("compose", ask, last, [draft, receipt], **asked)
        ctx.effect("send_email", world.send_email, order, letter["text"])
        ctx.effect("update_crm", world.update_crm, order, "upgraded")
        return {"order": order, "letter": letter["text"]}

    return agent
