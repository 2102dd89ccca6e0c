"""The reference agent with a model behind an OpenAI-compatible endpoint, here a small server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from durable_mini import Engine, FakeClock, MemoryJournal, RunStatus
from durable_mini.lab import Ledger, chaos
from durable_mini.lab.crashes import CrashAt, InjectedCrash
from durable_mini.lab.model import KEY, NAME, URL, Model, ModelBusyError, ModelError, asking_agent

TOKENS = 1_500


class Endpoint:
    """Answers with these in turn, the last one over and over; `asked` has what came."""

    def __init__(self, *answers: tuple[int, Any]) -> None:
        self.answers, self.asked = list(answers), list[dict[str, Any]]()
        self.headers: dict[str, str] = {}

    def next(self) -> tuple[int, Any]:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def good(text: str = "done", tokens: int = TOKENS) -> tuple[int, Any]:
    return 200, {
        "choices": [{"message": {"role": "assistant", "content": text}}],
        "usage": {"prompt_tokens": tokens - 1, "completion_tokens": 1, "total_tokens": tokens},
    }


@pytest.fixture
def endpoint() -> Endpoint:
    return Endpoint(good())


@pytest.fixture
def url(endpoint: Endpoint) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            endpoint.headers = dict(self.headers)
            endpoint.asked.append({"path": self.path, **json.loads(body)})
            status, said = endpoint.next()
            text = said if isinstance(said, bytes) else json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()
        thread.join()


def test_model_is_named_by_settings() -> None:
    assert Model.from_environment({}) is None
    found = Model.from_environment({URL: "http://127.0.0.1:1/v1/", NAME: "small", KEY: "k"})
    assert found == ("http://127.0.0.1:1/v1", "small", "k")


@pytest.mark.parametrize("given", [URL, NAME])
def test_half_a_setting_is_refused(given: str) -> None:
    with pytest.raises(ValueError, match=f"{given} is set and DURABLE_MINI_MODEL(_URL)? isn't"):
        Model.from_environment({given: "something"})


def test_model_is_asked_as_such_endpoints_are(endpoint: Endpoint, url: str) -> None:
    answer = Model(url, "small", "secret").ask("plan", {"order": "o-1"})
    assert answer == {"text": "done", "tokens": TOKENS}
    [asked] = endpoint.asked
    assert (asked["path"], asked["model"]) == ("/v1/chat/completions", "small")
    assert [said["role"] for said in asked["messages"]] == ["system", "user"]
    assert "o-1" in asked["messages"][1]["content"]
    assert endpoint.headers["Authorization"] == "Bearer secret"
    Model(url, "small").ask("plan", None)
    assert "Authorization" not in endpoint.headers


@pytest.mark.parametrize(
    ("answer", "error", "said"),
    [
        ((429, {}), ModelBusyError, "answered 429"),
        ((503, {}), ModelBusyError, "answered 503"),
        ((401, {}), ModelError, "answered 401"),
        ((404, {}), ModelError, "answered 404"),
        ((200, b"<html>"), ModelError, "no JSON"),
        ((200, {"choices": []}), ModelError, "no text or no token count"),
        ((200, {**good()[1], "usage": None}), ModelError, "no text or no token count"),
        ((200, ["what?"]), ModelError, "no text or no token count"),
    ],
)
def test_bad_answers_are_told_apart(
    endpoint: Endpoint, url: str, answer: tuple[int, Any], error: type[Exception], said: str
) -> None:
    endpoint.answers = [answer]
    with pytest.raises(error, match=said):
        Model(url, "small").ask("plan", None)


def test_nobody_there_is_busy() -> None:
    with pytest.raises(ModelBusyError, match="can't be reached"):
        Model("http://127.0.0.1:9", "small").ask("plan", None)


def test_agent_costs_the_tokens_that_were_taken(endpoint: Endpoint, url: str) -> None:
    world = Ledger()
    agent = asking_agent(world, Model(url, "small"))
    run = Engine(MemoryJournal(), [agent]).run(agent, {"order": "o-1"}, run_id="r")
    assert (run.status, run.cost) == (RunStatus.COMPLETED, 4 * TOKENS / 1_000)
    assert world.spent == run.cost
    assert [row.endpoint for row in world.rows] == ["charge", "send_email", "update_crm"]
    assert len(endpoint.asked) == 4


def test_agent_pays_again_only_for_what_was_in_the_crash_window(
    endpoint: Endpoint, url: str
) -> None:
    world = Ledger()
    agent = asking_agent(world, Model(url, "small"))
    engine = Engine(MemoryJournal(), [agent], probe=CrashAt("draft", "window"))
    engine.start(agent, {"order": "o-1"}, run_id="r")
    with pytest.raises(InjectedCrash):
        engine.resume("r")
    run = engine.resume("r")
    assert (run.cost, world.spent) == (4 * TOKENS / 1_000, 5 * TOKENS / 1_000)
    assert len(endpoint.asked) == 5


def test_agent_asks_a_busy_model_again_and_a_refusing_one_not(endpoint: Endpoint, url: str) -> None:
    agent = asking_agent(Ledger(), Model(url, "small"))
    engine = Engine(MemoryJournal(), [agent], clock=FakeClock())
    endpoint.answers = [(429, {}), (503, {}), good()]
    assert engine.run(agent, {"order": "o-1"}).status is RunStatus.COMPLETED
    endpoint.answers, endpoint.asked = [(401, {})], []
    run = engine.run(agent, {"order": "o-2"})
    assert run.status is RunStatus.FAILED
    assert run.error is not None and run.error.type == "ModelError"
    assert len(endpoint.asked) == 1


@pytest.mark.slow
def test_chaos_with_a_model_has_no_theory_of_its_cost(
    endpoint: Endpoint, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(URL, url)
    monkeypatch.setenv(NAME, "small")
    [found] = chaos(10, 0.2, 2, tmp_path / "c.db", strategies=("journal+key",)).strategies
    assert (found.completed, found.duplicates) == (10, 0)
    assert found.cost == len(endpoint.asked) * TOKENS / 1_000
    assert set(found.expected) == {"restarts", "duplicates"}


@pytest.mark.slow
def test_chaos_waits_for_a_busy_model_and_says_why_a_refusing_one_ended_it(
    endpoint: Endpoint, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(URL, url)
    monkeypatch.setenv(NAME, "small")
    endpoint.answers = [(429, {}), good()]
    [found] = chaos(1, 0.0, 1, tmp_path / "busy.db", strategies=("journal+key",)).strategies
    assert (found.completed, found.failure) == (1, "")
    endpoint.answers = [(401, {})]
    refused = chaos(1, 0.0, 1, tmp_path / "refused.db", strategies=("restart", "journal"))
    for found in refused.strategies:
        assert (found.completed, found.lost) == (0, 1)
        assert "ModelError" in found.failure
        assert "answered 401" in found.failure
