"""The vocabulary of the course as data: each word, what it means here, what others call it.

Guarantees: one meaning for each word, in the course's own words; a name under `elsewhere` stands in
that engine's documentation, as chapter 01 lists it. A word that an engine hasn't got is left out
there, which says nothing about what that engine can do. Leaves to others: where a word is in a
drawn run (`told_run`), and teaching it (the chapter that is named beside it).
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from durable_mini.lab.pictures import NumbersTable, numbers_table

ENGINES = ("Temporal", "DBOS", "Restate", "Absurd", "LangGraph", "Durable Functions")

CHAPTERS = {
    "00": "00_start_here.ipynb",
    "02": "02_replay.ipynb",
    "03": "03_crash_window.ipynb",
    "04": "04_results.ipynb",
    "05": "05_determinism.ipynb",
    "06": "06_versioning.ipynb",
    "07": "07_waits.ipynb",
    "08": "08_sagas.ipynb",
    "09": "09_workers.ipynb",
    "10": "10_limits.ipynb",
    "11": "11_chaos.ipynb",
}


@dataclass(frozen=True, slots=True)
class Term:
    """One word of the vocabulary.

    Args:
        word: as the course writes it.
        meaning: one or two sentences.
        chapter: the number of the chapter that teaches it.
        here: the public name that it has in `durable_mini`, where it has one.
        elsewhere: what an engine of `ENGINES` calls it, or calls the nearest thing to it.
        also: further names that one meets.
    """

    word: str
    meaning: str
    chapter: str
    here: str = ""
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    also: str = ""


def _called(**names: str) -> dict[str, str]:
    """Engine names from keywords: `Durable_Functions` is Durable Functions."""
    return {engine.replace("_", " "): name for engine, name in names.items()}


_RUN = (
    Term(
        "durable execution",
        "Running code so that its progress survives the process that executes it.",
        "00",
        also="durable workflows",
    ),
    Term(
        "workflow",
        "The function that decides what happens next. It does no work itself: it asks for steps, "
        "waits and undos.",
        "02",
        "workflow",
        _called(
            Temporal="Workflow Definition",
            DBOS="workflow",
            Restate="handler",
            Absurd="task handler",
            LangGraph="graph, or entrypoint",
            Durable_Functions="orchestrator function",
        ),
        "orchestration",
    ),
    Term(
        "run",
        "One execution of a workflow for one input. It has an id, and it lives in the journal, so "
        "it survives crashes.",
        "00",
        "Run",
        _called(
            Temporal="Workflow Execution",
            DBOS="workflow execution",
            Restate="invocation",
            Absurd="task",
            LangGraph="thread (holds several)",
            Durable_Functions="orchestration instance",
        ),
        "instance",
    ),
    Term(
        "run id",
        "The name of a run. Asking twice to start the same id and input gives one run.",
        "02",
        "Run.run_id",
        _called(
            Temporal="Workflow Id",
            DBOS="workflow ID",
            Restate="invocation id",
            Absurd="task id",
            LangGraph="thread_id",
            Durable_Functions="instance ID",
        ),
    ),
    Term(
        "admission",
        "The first event: the run and its input are on record before any of it executes.",
        "00",
        "Engine.start",
        _called(Temporal="WorkflowExecutionStarted", Durable_Functions="ExecutionStarted"),
    ),
    Term(
        "worker",
        "A process that looks for runs that are due, and drives them one attempt at a time.",
        "09",
        "Worker",
        _called(Temporal="Worker Process", DBOS="executor", Absurd="worker"),
    ),
    Term(
        "attempt",
        "One worker's try at driving a run. It ends in completion, in a wait, or in a crash.",
        "00",
        "Run.attempts",
        _called(Temporal="Workflow Task Execution (nearest)", Absurd="run"),
    ),
    Term(
        "crash",
        "The end of an attempt that nobody chose: the process is killed, evicted, or out of "
        "memory. What it held in memory is gone.",
        "03",
        also="failure, in many texts; but a step that fails hasn't crashed",
    ),
)

_RECORD = (
    Term(
        "journal",
        "The ordered record of a run's events: what happened, and what came of it.",
        "02",
        "Engine.history",
        _called(
            Temporal="Event History",
            DBOS="checkpoints in the system database",
            Restate="journal",
            Absurd="checkpoints of the task",
            Durable_Functions="orchestration history",
        ),
        "event history, durable log",
    ),
    Term(
        "event",
        "One line of a journal. It has a number, a kind, a name and a content, and it is never "
        "changed.",
        "02",
        "Event",
        _called(Temporal="Event", Restate="journal entry", DBOS="checkpoint", Absurd="checkpoint"),
        "history event, record",
    ),
    Term(
        "step",
        "A call whose result is kept in the journal. It is the unit that a crash can make happen "
        "again.",
        "02",
        "Context.step",
        _called(
            Temporal="Activity",
            DBOS="step",
            Restate="durable step (ctx.run)",
            Absurd="step",
            LangGraph="node, or task",
            Durable_Functions="activity function",
        ),
        "activity, task",
    ),
    Term(
        "replay",
        "Calling the workflow function again, from its first line, against its journal: what is on "
        "record is handed out, and nothing of it is executed.",
        "02",
        "Context.replaying",
        _called(
            Temporal="Replay",
            DBOS="recovery",
            Restate="replay",
            Absurd="replay",
            Durable_Functions="replay",
        ),
        "recovery",
    ),
    Term(
        "live", "Executed now, because the journal doesn't know it. The opposite of replayed.", "02"
    ),
    Term(
        "retry",
        "Trying a step again that has failed: its function is called again. The opposite of "
        "replay, which calls nothing.",
        "02",
        "RetryPolicy",
        _called(Temporal="Retry Policy", Absurd="retries (of the task)"),
    ),
    Term(
        "deterministic",
        "Given the same journal, the code takes the same path: it asks for the same calls in the "
        "same order. It may well talk to models and dice, as long as what they say is recorded.",
        "05",
    ),
    Term(
        "recorded value",
        "The time, a random number or a new id, asked of the context: drawn once, replayed ever "
        "after.",
        "05",
        "Context.now",
        _called(Temporal="Side Effect", Durable_Functions="CurrentUtcDateTime"),
    ),
    Term(
        "divergence",
        "The code asks for something else than the journal holds at this place. The engine stops, "
        "and a person looks.",
        "05",
        "NonDeterminismError",
        also="non-determinism error, journal mismatch",
    ),
    Term(
        "checkpoint",
        "Saved progress from which a run can resume. A journal is one way to save it; a snapshot "
        "of the state is another.",
        "01",
        "",
        _called(
            LangGraph="checkpoint (a snapshot)",
            DBOS="checkpoint (a step's result)",
            Absurd="checkpoint (a step's result)",
            Durable_Functions="checkpoint (history saved at an await)",
        ),
        "snapshot, save point",
    ),
)

_EFFECTS = (
    Term(
        "effect",
        "A step that changes the world outside, and may be tried again. It is handed an "
        "idempotency key.",
        "03",
        "Context.effect",
        _called(Temporal="Activity", DBOS="step", Restate="side effect (ctx.run)"),
        "activity, side effect",
    ),
    Term(
        "receiver",
        "Whoever stands at the other end of an effect: the bank, the mail server. What it has in "
        "its books isn't ours.",
        "03",
        also="downstream, third party",
    ),
    Term(
        "crash window",
        "The time between an effect having happened and its record in the journal. A worker that "
        "dies there leaves an effect that nobody wrote down.",
        "03",
        also="at-least-once window",
    ),
    Term(
        "idempotency key",
        "A name for what is wanted, the same at every try. By it the receiver knows a repeat and "
        "does nothing more.",
        "03",
        "Context.effect",
        _called(Restate="idempotency key (of an invocation)", Absurd="idempotency key (of a task)"),
        "request id, deduplication key",
    ),
    Term(
        "at-least-once",
        "Do it first, record it afterwards: never lost, sometimes repeated. What engines do with "
        "steps.",
        "03",
    ),
    Term(
        "at-most-once", "Record it first, do it afterwards: never repeated, sometimes lost.", "03"
    ),
    Term(
        "exactly-once effect",
        "Executed at least once, in effect once: the receiver drops the repeats. Say it of the "
        "effect, never of the execution.",
        "03",
        also="effectively once",
    ),
    Term("duplicate", "A second effect for one intent, in the receiver's books.", "03"),
    Term(
        "outbox",
        "A table in your own database: the message is stored with the change that it is about, in "
        "one transaction, and sent afterwards. Sending may still repeat.",
        "03",
        also="transactional outbox",
    ),
)

_WAITS = (
    Term(
        "suspension",
        "A run that waits: it stands in the journal, and no process, thread or lease is held.",
        "07",
        "RunStatus.SUSPENDED",
        _called(Restate="suspension", LangGraph="interrupt"),
    ),
    Term(
        "signal",
        "Something that arrives from outside. It is recorded on arrival, whether or not anybody "
        "waits for it.",
        "07",
        "Engine.signal",
        _called(
            Temporal="Signal",
            DBOS="message (send, recv)",
            Restate="awakeable, durable promise",
            Absurd="event",
            LangGraph="the value an interrupt is resumed with",
            Durable_Functions="external event",
        ),
        "external event, callback",
    ),
    Term(
        "timer",
        "A recorded time at which a run becomes due again. Nobody sleeps on it.",
        "07",
        "Context.sleep",
        _called(
            Temporal="Timer",
            DBOS="durable sleep",
            Restate="durable timer",
            Absurd="sleep",
            Durable_Functions="durable timer",
        ),
    ),
    Term(
        "time-out",
        "The end that a wait has if nothing arrives. Which of the two came first is recorded, and "
        "never decided again.",
        "07",
        "TIMED_OUT",
    ),
    Term(
        "child",
        "A run that another run has started and waits for.",
        "07",
        "Context.child",
        _called(Temporal="Child Workflow", Durable_Functions="sub-orchestration"),
    ),
)

_UNDOING = (
    Term(
        "saga",
        "An operation of several steps that is undone step by step when it can't be finished, in "
        "place of one transaction over all of them.",
        "08",
    ),
    Term(
        "compensation",
        "The undo of one step: a new step that makes good. It is registered before the step that "
        "it may have to undo, and it erases nothing.",
        "08",
        "Context.compensate",
    ),
    Term(
        "pivot",
        "The point after which a run only goes forward, and nothing is undone any more.",
        "08",
        "Context.point_of_no_return",
        also="point of no return",
    ),
    Term(
        "needs attention",
        "A run that neither goes on nor ends until a person has looked: a bug, a divergence, an "
        "undo that fails.",
        "08",
        "RunStatus.NEEDS_ATTENTION",
        also="parked, stuck, dead letter",
    ),
)

_WORKERS = (
    Term(
        "lease",
        "A worker's claim on a run, limited in time. When it has run out, another may take over.",
        "09",
        "Worker",
        _called(Absurd="claim, with a claim timeout"),
        "claim, visibility timeout",
    ),
    Term(
        "heartbeat",
        "The sign of life with which a worker renews its lease.",
        "09",
        "Worker",
        _called(Temporal="Activity Heartbeat", Absurd="heartbeat; a checkpoint renews it too"),
    ),
    Term(
        "fencing token",
        "A number that goes up whenever a run changes hands. A write that comes with an older one "
        "is refused.",
        "09",
        "LeaseLostError",
        _called(Temporal="Task Token (nearest)"),
        "epoch, generation of a lock",
    ),
    Term(
        "zombie", "A worker that lost its lease and doesn't know it: it was slow, not dead.", "09"
    ),
)

_CODE = (
    Term(
        "structure hash",
        "A fingerprint of a workflow's durable calls. It tells whether a journal still fits the "
        "code.",
        "06",
        "structure",
        _called(DBOS="application version (computed from the source)"),
    ),
    Term(
        "version",
        "Which code a run belongs to. Old runs end on the old version while new ones start on the "
        "new.",
        "06",
        "Run.version",
        _called(
            Temporal="Worker Versioning",
            DBOS="application version",
            Restate="immutable deployment",
            Durable_Functions="orchestration version",
        ),
        "pinning",
    ),
    Term(
        "patch marker",
        "A recorded yes or no that lets old runs keep the old path in changed code.",
        "06",
        "Context.patched",
        _called(Temporal="patched", DBOS="DBOS.patch"),
    ),
    Term(
        "orphan",
        "A run that hasn't ended and that no loaded version accepts.",
        "06",
        "Engine.orphans",
    ),
)

_LIMITS = (
    Term(
        "granularity",
        "How much work one record covers. A record per call loses little and writes much; one per "
        "phase is the reverse.",
        "10",
    ),
    Term(
        "continue-as-new",
        "Closing a journal that has grown long, and going on in a fresh one with what has to be "
        "carried over.",
        "10",
        "Context.continue_as_new",
        _called(Temporal="Continue-As-New", Durable_Functions="ContinueAsNew"),
    ),
    Term(
        "generation",
        "Which of its journals a run is in: it counts up at each continue-as-new, and the run id "
        "stays.",
        "10",
        "Run.generation",
        _called(Temporal="Run Id (a new one each time)"),
    ),
    Term(
        "budget",
        "A cap on a run's time, steps, money and crashed attempts. A crash resets none of it.",
        "10",
        "Budget",
    ),
    Term(
        "queue with retries",
        "The plain alternative: a job is handed out again after a crash, and starts from its "
        "first line with nothing remembered.",
        "11",
        also="job queue",
    ),
    Term(
        "chaos test",
        "Killing workers at random places, and looking afterwards at the books, the costs and the "
        "runs.",
        "11",
    ),
)

GROUPS: Mapping[str, tuple[Term, ...]] = {
    "A run and who drives it": _RUN,
    "What is recorded": _RECORD,
    "What reaches the world": _EFFECTS,
    "Waiting": _WAITS,
    "Undoing": _UNDOING,
    "Several workers": _WORKERS,
    "Changing the code": _CODE,
    "Long runs, and choosing": _LIMITS,
}

VOCABULARY: Mapping[str, Term] = {term.word: term for terms in GROUPS.values() for term in terms}
"""Every word, in the order in which the cards stand."""

CORE = (
    *("workflow", "run", "attempt", "step", "effect", "journal", "replay", "signal", "timer"),
    *("structure hash", "version", "patch marker", "continue-as-new"),
)
"""The words whose other names differ most: those of `names_table`."""


@dataclass(frozen=True, slots=True)
class FalseFriend:
    """A word that an engine uses for something else than the course does."""

    word: str
    engine: str
    means: str
    ours: str  # the course's word for that; empty where it has none


FALSE_FRIENDS = (
    FalseFriend("run", "Absurd", "one attempt at a task", "attempt"),
    FalseFriend("Run Id", "Temporal", "one journal of a Workflow Id", "generation"),
    FalseFriend("event", "Absurd", "what arrives from outside", "signal"),
    FalseFriend("event", "DBOS", "a value that a workflow publishes for others to read", ""),
    FalseFriend("checkpoint", "DBOS", "the recorded result of one step", "event"),
    FalseFriend("checkpoint", "LangGraph", "a snapshot of the whole state", "checkpoint"),
    FalseFriend("task", "Absurd", "the whole unit of work, with all its steps", "run"),
    FalseFriend("task", "LangGraph", "one unit of work whose result is kept", "step"),
    FalseFriend("thread", "LangGraph", "an id under which states are kept; no thread", "run id"),
    FalseFriend("idempotency key", "Restate", "a caller's key: one invocation for it", "run id"),
    FalseFriend("workflow", "Restate", "one of three kinds of service", "workflow"),
)


def names_table(words: Sequence[str] = CORE) -> NumbersTable:
    """Return what each engine calls each word, as a table.

    Args:
        words: words of the vocabulary.

    Raises:
        KeyError: for a word that it hasn't got.
    """
    return numbers_table(
        [
            {"here": word} | {name: VOCABULARY[word].elsewhere.get(name) for name in ENGINES}
            for word in words
        ]
    )


def friends_table() -> NumbersTable:
    """Return the false friends as a table."""
    return numbers_table(
        [
            {
                "the word": friend.word,
                "in": friend.engine,
                "means there": friend.means,
                "here that is": friend.ours,
            }
            for friend in FALSE_FRIENDS
        ]
    )


def translate(word: str, engine: str) -> str:
    """Return the course's word for what an engine calls `word`.

        >>> translate("run", "Absurd"), translate("Activity", "Temporal")
        ('attempt', 'step')

    Raises:
        ValueError: for an engine or a word that the vocabulary doesn't know.
    """
    if engine not in ENGINES:
        raise ValueError(f"engine must be one of {', '.join(ENGINES)}, not {engine!r}")
    for friend in FALSE_FRIENDS:
        if (friend.word.lower(), friend.engine) == (word.lower(), engine) and friend.ours:
            return friend.ours
    for term in VOCABULARY.values():
        if term.elsewhere.get(engine, "").lower() == word.lower():
            return term.word
    raise ValueError(f"the vocabulary doesn't know {word!r} of {engine}")


@dataclass(frozen=True)
class Cards:
    """Cards to turn over: the word in front, its meaning and its other names behind; see `cards`.

    A page that can't fold shows them open; as text they are one line each.
    """

    groups: Mapping[str, tuple[Term, ...]]

    def __str__(self) -> str:
        blocks = (
            "\n".join([title, *(f"  {term.word}: {term.meaning}" for term in terms)])
            for title, terms in self.groups.items()
        )
        return "\n".join(blocks)

    def to_html(self) -> str:
        """Return the cards as HTML, group by group, in as many columns as there is room for."""
        groups = "".join(
            f'<p style="margin: 0.9em 0 0.2em; break-after: avoid"><strong>{html.escape(title)}'
            f"</strong></p>{''.join(map(_card, terms))}"
            for title, terms in self.groups.items()
        )
        return f'<div style="columns: 24em 2; column-gap: 2em; max-width: 62em">{groups}</div>'

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return {"text/html": self.to_html(), "text/plain": str(self)}


def cards(*titles: str) -> Cards:
    """Return the vocabulary as cards to turn over.

    Args:
        titles: the groups wanted; all of them by default.

    Raises:
        KeyError: for a group that the vocabulary hasn't got.
    """
    return Cards({title: GROUPS[title] for title in titles or GROUPS})


def _card(term: Term) -> str:
    lines = [html.escape(term.meaning)]
    if term.here:
        lines.append(f"In this engine: <code>{html.escape(term.here)}</code>.")
    names = [f"{html.escape(name)} in {engine}" for engine, name in term.elsewhere.items()]
    if names:
        lines.append(f"Elsewhere: {'; '.join(names)}.")
    if term.also:
        lines.append(f"Also: {html.escape(term.also)}.")
    if term.chapter in CHAPTERS:
        lines.append(f'More: <a href="{CHAPTERS[term.chapter]}">chapter {term.chapter}</a>.')
    body = " ".join(lines)
    return (
        f'<details style="margin: 0.1em 0; break-inside: avoid"><summary>{html.escape(term.word)}'
        f'</summary><p style="margin: 0.1em 0 0.5em 1.2em; line-height: 1.4">{body}</p></details>'
    )
