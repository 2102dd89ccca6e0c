"""Changing the code while runs are under way: versions side by side, orphans, patches.

About: a run goes on with the version that it began with; runs that no code accepts are listed and
left alone; a patch leaves every old run on its old path, wherever it was when the code changed, and
can be removed when only runs with the new path are left.
"""

from __future__ import annotations

import itertools
import linecache
import logging
import textwrap
from collections.abc import Iterator
from typing import Any

import pytest
from booking import MortalMemory, events, live_until, run_it
from hypothesis import given, settings, strategies as st
from interrupted import Fate
from support import RUN_ID, crash, resume

from durable_mini import (
    Context,
    Engine,
    FakeClock,
    MemoryJournal,
    NonDeterminismError,
    RunStatus,
    StructureChangedError,
    StructureUnreadableError,
    UnknownWorkflowError,
    Worker,
    Workflow,
    structure,
    workflow,
)
from durable_mini.lab.crashes import CrashAt, InjectedCrash

_numbers = itertools.count()


def code(body: str, before: str = "", *, version: str = "1", name: str = "agent") -> Workflow:
    """A workflow from its source, as a deploy brings it; `did` in its module has what it did.

    `self(x)` is a step body that returns its argument; the workflow returns what `body` put into
    `seen`.
    """
    source = textwrap.dedent(
        """
        from durable_mini import workflow
        did = []
        def self(x, *_):
            did.append(x)
            return x
        """
    )
    source += textwrap.dedent(before)
    source += (
        f"\n@workflow(version={version!r}, name={name!r})\ndef {name}(ctx, x):\n    seen = []\n"
    )
    source += textwrap.indent(textwrap.dedent(body).strip("\n"), "    ") + "\n    return seen\n"
    file = f"<deploy {next(_numbers)}>"
    linecache.cache[file] = len(source), None, source.splitlines(keepends=True), file
    module: dict[str, Any] = {"__name__": "deploy"}
    exec(compile(source, file, "exec"), module)
    return module[name]


def did(agent: Workflow) -> list[Any]:
    """What the steps of this code have done, in all runs."""
    return agent.fn.__globals__["did"]


def crash_before(journal: Any, agent: Workflow, step: str, run_id: str = RUN_ID) -> None:
    engine = Engine(journal, [agent], probe=CrashAt(step, "before"))
    engine.start(agent, run_id=run_id)
    with pytest.raises(InjectedCrash):
        engine.resume(run_id)


# Versions


def letter(version: str, *steps: str) -> Workflow:
    """A version of one workflow: these steps, in this order."""
    lines = [f"seen.append(ctx.step({step!r}, self, {step!r}))" for step in steps]
    return code("\n".join(lines), version=version, name="letter")


LETTERS = {"1": "abc", "2": "cab", "2026-02": "zb"}


@pytest.mark.parametrize("drives", ["resume", "worker"])
def test_a_run_goes_on_with_its_own_version_whatever_is_deployed_meanwhile(journal, drives):
    """Each deploy brings one version more, and a run that dies in it."""
    deployed: list[Workflow] = []
    for version, steps in LETTERS.items():
        deployed.append(letter(version, *steps))
        engine = Engine(journal, deployed, probe=CrashAt(steps[1], "before"))
        engine.start(deployed[-1], run_id=f"run {version}")
        with pytest.raises(InjectedCrash):
            engine.resume(f"run {version}")
    every = [letter(version, *steps) for version, steps in LETTERS.items()]
    engine = Engine(journal, every, clock=FakeClock(1e10))
    if drives == "worker":
        assert Worker(engine).run_until_idle() == len(LETTERS)
    for version, steps in LETTERS.items():
        run = engine.resume(f"run {version}")
        assert (run.version, run.status, run.result) == (version, "completed", list(steps))


def test_a_version_that_nobody_has_is_said_by_name_and_nothing_is_done(journal):
    crash_before(journal, letter("1", "a", "b"), "b")
    before = events(Engine(journal))
    engine = Engine(journal, [letter("2", "a", "b"), letter("3", "b")])
    with pytest.raises(UnknownWorkflowError, match="version '1' isn't registered") as unknown:
        engine.resume(RUN_ID)
    facts = unknown.value
    assert (facts.workflow, facts.version, facts.run_id) == ("letter", "1", RUN_ID)
    assert "'letter' version '2', 'letter' version '3'" in facts.registered
    with pytest.raises(UnknownWorkflowError, match="version '1'"):
        engine.start(letter("1", "a", "b"), run_id="another")
    assert events(Engine(journal)) == before
    assert [run.run_id for run in engine.runs()] == [RUN_ID]


# Orphans


def orphaned(journal: Any) -> Engine:
    """Runs in every state, and an engine after a deploy that took half of their code away."""
    waits = "ctx.wait_signal('go')"
    states = {
        "pending": "ctx.now()",
        "suspended": waits,
        "completed": "",
        "failed": "raise RunFailed('sold out')",
        "needs_attention": "raise KeyError(x)",
        "cancelled": waits,
    }
    before = "from durable_mini import RunFailed"
    deploys = []
    for fate in ("gone", "changed", "kept"):
        for state, body in states.items():
            agent = code(body, name=f"{fate}_{state}", before=before)
            engine, run_id = Engine(journal, [agent]), f"{fate} {state}"
            engine.start(agent, run_id=run_id)
            if state == "cancelled":
                engine.cancel(run_id)
            if state != "pending":
                engine.resume(run_id)
            if fate == "changed":
                deploys.append(code(f"{body}\nctx.uuid()", name=agent.name, before=before))
            elif fate == "kept":
                deploys.append(agent)
    return Engine(journal, deploys, clock=FakeClock(1e10))


def test_orphans_are_the_runs_that_no_code_accepts_each_with_the_reason(journal):
    engine = orphaned(journal)
    found = {orphan.run_id: orphan for orphan in engine.orphans()}
    open_states = {"pending", "suspended", "needs_attention"}
    assert set(found) == {
        f"{fate} {state}" for fate in ("gone", "changed") for state in open_states
    }
    for run_id, orphan in found.items():
        fate, state = run_id.split()
        run = engine.describe(run_id)
        assert (run.status, run.workflow) == (state, f"{fate}_{state}")
        said = "isn't registered" if fate == "gone" else "nothing more, now uuid"
        assert said in orphan.reason
        assert run_id in orphan.reason


def test_orphans_are_none_once_their_code_is_back(journal):
    crash_before(journal, first := letter("1", "a", "b"), "b")
    second = letter("2", "b")
    assert [orphan.run_id for orphan in Engine(journal, [second]).orphans()] == [RUN_ID]
    assert Engine(journal, [second, letter("1", "b", "a")]).orphans() != []
    assert Engine(journal, [second, first]).orphans() == []
    assert Engine(journal, [second, first]).resume(RUN_ID).result == ["a", "b"]
    assert Engine(journal, [second]).orphans() == []


def test_a_worker_leaves_orphans_alone_and_goes_idle(journal, caplog):
    """It claims nothing, writes nothing, doesn't wait, and complains of each once."""
    engine = orphaned(journal)
    orphans = {orphan.run_id for orphan in engine.orphans()}
    rows = {run_id: journal.row(run_id) for run_id in orphans}
    histories = {run_id: engine.history(run_id) for run_id in orphans}
    engine.signal("kept suspended", "go")
    for run_id in ("gone suspended", "changed suspended"):
        engine.signal(run_id, "go")  # so that they are due
        rows[run_id], histories[run_id] = journal.row(run_id), engine.history(run_id)
    caplog.clear()
    caplog.set_level(logging.DEBUG, logger="durable_mini")
    worker, started_at = Worker(engine), engine.clock.now()
    assert [worker.run_until_idle() for _ in range(4)] == [2, 0, 0, 0], "pending, and suspended"
    assert engine.clock.now() == started_at
    assert {run_id: journal.row(run_id) for run_id in orphans} == rows
    assert {run_id: engine.history(run_id) for run_id in orphans} == histories
    complaints = [record.run_id for record in caplog.records if record.levelno >= logging.WARNING]
    assert sorted(complaints) == ["changed pending", "changed suspended"]


def test_a_worker_takes_an_orphan_up_that_its_deploy_can_drive(journal):
    crash_before(journal, letter("1", "a", "b"), "b")
    clock = FakeClock(1e10)
    assert Worker(Engine(journal, [letter("2", "b")], clock=clock)).run_until_idle() == 0
    engine = Engine(journal, [letter("2", "b"), letter("1", "a", "b")], clock=clock)
    assert Worker(engine).run_until_idle() == 1
    assert engine.describe(RUN_ID).result == ["a", "b"]


def test_an_orphan_that_a_dead_worker_held_keeps_nobody_longer_than_its_lease(journal):
    agent, clock = letter("1", "a"), FakeClock()
    with pytest.raises(InjectedCrash):
        run_it(agent)(Engine(journal, [agent], clock=clock, probe=CrashAt("a", "before")))
    assert Worker(Engine(journal, [letter("2", "b")], clock=clock)).run_until_idle() == 0
    assert clock.now() == pytest.approx(journal.row(RUN_ID).lease_s, abs=0.1)


def test_an_engine_goes_on_with_the_code_that_it_loaded(tmp_path, journal):
    """A deploy writes new files over the old ones before it restarts the process."""
    source = "from durable_mini import workflow\n\n@workflow()\ndef agent(ctx, x):\n    {}\n"
    file, module = tmp_path / "agent.py", {"__name__": "agent"}
    file.write_text(source.format("return ctx.step('a', len, 'ab')"))
    exec(compile(file.read_text(), file, "exec"), module)
    engine = Engine(journal, [module["agent"]])
    engine.start(module["agent"], run_id=RUN_ID)
    file.write_text("# a longer file\n" + source.format("return ctx.step('b', len, 'abc')"))
    assert engine.orphans() == []
    assert engine.resume(RUN_ID).result == 2


# Patches


def step(name: str) -> str:
    return f"seen.append(ctx.step({name!r}, self, {name!r}))"


def patch(patch_id: str, new: str, old: str = "") -> str:
    """An `if` that asks for a patch."""
    new, old = (textwrap.indent(part or "pass", "    ") for part in (new, old))
    return f"if ctx.patched({patch_id!r}):\n{new}\nelse:\n{old}"


def loop(*body: str) -> str:
    return "for _ in range(3):\n" + textwrap.indent("\n".join(body), "    ")


def block(*lines: str) -> str:
    return "\n".join(lines)


def helper(body: str) -> str:
    """A function that the workflow hands its context to."""
    return "\ndef chat(ctx, seen):\n" + textwrap.indent(body or "pass", "    ") + "\n"


class Change:
    """Code before a patch, with it, and after it was removed; with what each path gives."""

    def __init__(
        self,
        old: str,
        new: str,
        gone: str,
        *,
        patches: str = "p",
        helpers: tuple[str, str, str] = ("", "", ""),
    ) -> None:
        made = (code(*both) for both in zip((old, new, gone), map(helper, helpers), strict=True))
        self.old, self.new, self.gone = made
        self.patches = tuple(patches)


def change(name: str) -> Change:
    """Made anew for each test, since its modules keep what was done."""
    a, b, c, d = map(step, "abcd")
    return {
        "another step": lambda: Change(
            block(a, b, c), block(a, patch("p", d, b), c), block(a, d, c)
        ),
        "one step more": lambda: Change(block(a, c), block(a, patch("p", b), c), block(a, b, c)),
        "one step less": lambda: Change(
            block(a, b, c), block(a, patch("p", "", b), c), block(a, c)
        ),
        "another order": lambda: Change(
            block(a, b, c), block(a, patch("p", block(c, b), block(b, c))), block(a, c, b)
        ),
        "at the start": lambda: Change(block(a, b), block(patch("p", c, a), b), block(c, b)),
        "at the end": lambda: Change(block(a, b), block(a, b, patch("p", c)), block(a, b, c)),
        "another kind": lambda: Change(
            block(a, b),
            block(a, patch("p", "ctx.now()\nseen.append('b')", b)),
            block(a, "ctx.now()\nseen.append('b')"),
        ),
        "in a loop": lambda: Change(
            block(loop(a), b), block(loop(patch("p", block(a, c), a)), b), block(loop(a, c), b)
        ),
        "around a loop": lambda: Change(
            block(loop(a), b), block(patch("p", loop(c), loop(a)), b), block(loop(c), b)
        ),
        "asked for twice": lambda: Change(
            block(a, b), block(patch("p", c, a), b, patch("p", d)), block(c, b, d)
        ),
        "two in a row": lambda: Change(
            block(a, b), block(patch("p", c, a), patch("q", d, b)), block(c, d), patches="pq"
        ),
        "one in another": lambda: Change(
            block(a, b), block(patch("p", patch("q", d, c), a), b), block(d, b), patches="pq"
        ),
        "one in the old path of another": lambda: Change(
            block(a, b), block(patch("p", c, patch("q", d, a)), b), block(c, b), patches="p"
        ),
        "in a helper": lambda: Change(
            block(a, "chat(ctx, seen)", b),
            block(a, "chat(ctx, seen)", b),
            block(a, "chat(ctx, seen)", b),
            helpers=(c, patch("p", d, c), d),
        ),
        "of a helper": lambda: Change(
            block(a, b),
            block(a, patch("p", "chat(ctx, seen)", b)),
            block(a, "chat(ctx, seen)"),
            helpers=("", block(c, d), block(c, d)),
        ),
    }[name]()


CHANGES = (
    *("another step", "one step more", "one step less", "another order", "at the start"),
    *("at the end", "another kind", "in a loop", "around a loop", "asked for twice"),
    *("two in a row", "one in another", "one in the old path of another"),
    *("in a helper", "of a helper"),
)


def result_of(agent: Workflow) -> Any:
    return Engine(MemoryJournal(), [agent]).run(agent, run_id=RUN_ID).result


def begun_under(agent: Workflow) -> Iterator[tuple[MortalMemory, bool]]:
    """A run of this code that died, at each place; and whether it has ended before."""
    for place in itertools.count(2):  # the first is the admission: there is no run before
        journal, fate = MortalMemory(), Fate(place)
        live_until(journal, fate, run_it(agent), workflows=[agent])
        yield journal, journal.row(RUN_ID).status is RunStatus.COMPLETED
        if not fate.dead:
            return


def asked(engine: Engine) -> list[tuple[str, bool]]:
    """The decisions about patches that are on record."""
    return [
        (event.name, event.payload["result"])
        for event in engine.history(RUN_ID)
        if event.kind == "patch"
    ]


@pytest.mark.parametrize("name", CHANGES)
def test_a_patch_changes_no_structure_that_an_old_run_has(name):
    of = change(name)
    assert structure(of.new, ()).calls == structure(of.old).calls
    assert structure(of.new).calls == structure(of.gone).calls
    assert structure(of.new).patches[: len(of.patches)] == of.patches
    assert structure(of.new).hash != structure(of.old).hash


@pytest.mark.parametrize("name", CHANGES)
def test_a_new_run_takes_the_new_path_and_that_is_on_record(journal, name):
    of = change(name)
    run = Engine(journal, [of.new]).run(of.new, run_id=RUN_ID)
    assert run.result == result_of(of.gone)
    assert asked(Engine(journal)) == [(patch_id, True) for patch_id in of.patches]


@pytest.mark.parametrize("name", CHANGES)
def test_an_old_run_keeps_the_old_path_wherever_it_was_when_the_code_changed(name):
    of = change(name)
    expected = result_of(of.old)
    for journal, _ in begun_under(of.old):
        engine = Engine(journal, [of.new])
        assert engine.orphans() == []
        assert engine.resume(RUN_ID).result == expected
        assert all(taken is False for _, taken in asked(engine))
        assert len(asked(engine)) <= len(set(asked(engine)))


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.slow
def test_an_old_run_keeps_the_old_path_when_the_new_code_dies_too(name):
    """The code changes at each place of the run, and dies at each place after that."""
    of, schedules = change(name), 0
    expected = result_of(of.old)
    for dies_at in itertools.count(1):
        died = 0
        for journal, ended in begun_under(of.old):
            fate = Fate(dies_at)
            live_until(journal, fate, lambda e: e.resume(RUN_ID), workflows=[of.new])
            assert ended or Engine(journal, [of.new]).resume(RUN_ID).result == expected
            died += fate.dead
            schedules += 1
        if not died:
            break
    assert schedules > 300


@pytest.mark.parametrize("name", CHANGES)
def test_a_new_run_goes_on_where_the_patch_was_removed_wherever_it_was(name):
    of = change(name)
    expected = result_of(of.gone)
    for journal, _ in begun_under(of.new):
        assert Engine(journal, [of.gone]).orphans() == []
        assert Engine(journal, [of.gone]).resume(RUN_ID).result == expected


@pytest.mark.parametrize("name", CHANGES)
def test_an_old_run_is_refused_where_the_patch_was_removed_and_goes_on_where_it_is(name):
    """It is listed with the reason, nothing is executed, and the old code is as good as the new."""
    of = change(name)
    expected = result_of(of.old)
    for journal, ended in begun_under(of.old):
        if ended:
            continue
        history, engine = Engine(journal).history(RUN_ID), Engine(journal, [of.gone])
        did(of.gone).clear()
        with pytest.raises(StructureChangedError):
            engine.resume(RUN_ID)
        assert [orphan.run_id for orphan in engine.orphans()] == [RUN_ID]
        assert (did(of.gone), engine.history(RUN_ID)) == ([], history)
        assert Engine(journal, [of.new]).resume(RUN_ID).result == expected


@pytest.mark.parametrize("name", CHANGES)
def test_a_new_run_is_refused_by_the_code_from_before_the_patch(name):
    """The deploy was taken back; the run waits until it is there again."""
    of = change(name)
    expected = result_of(of.gone)
    for journal, ended in begun_under(of.new):
        if ended:
            continue
        did(of.old).clear()
        with pytest.raises(StructureChangedError):
            Engine(journal, [of.old]).resume(RUN_ID)
        assert did(of.old) == []
        assert Engine(journal, [of.new]).resume(RUN_ID).result == expected


# Patches that only change what a step does, which no structure shows

FORMS = {
    "step": "ctx.step('draft', {}, len(seen), 'old')",
    "gather": "ctx.gather({{'draft': ({}, len(seen), 'old')}})['draft']",
}
OTHER = """
def other(x, *_):
    did.append(f"{x}, the new way")
    return did[-1]
"""
NEW_WAY = [f"{n}, the new way" for n in range(3)]


def bodies(form: str = "step") -> dict[str, Workflow]:
    old, new = (f"seen.append({FORMS[form].format(body)})" for body in ("self", "other"))
    lines = {"old": loop(old), "new": loop(patch("p", new, old)), "gone": loop(new)}
    return {word: code(body, OTHER) for word, body in lines.items()}


def test_structure_doesnt_show_what_a_step_does():
    assert len({structure(agent).hash for agent in bodies().values()}) == 1


@pytest.mark.parametrize("recorded", [0, 1, 2])
def test_an_old_run_keeps_its_old_bodies(journal, recorded):
    of = bodies()
    dies = CrashAt("draft", "before", occurrence=recorded + 1)
    with pytest.raises(InjectedCrash):
        run_it(of["old"])(Engine(journal, [of["old"]], probe=dies))
    dies = CrashAt("draft", "before")
    with pytest.raises(InjectedCrash):
        Engine(journal, [of["new"]], probe=dies).resume(RUN_ID)
    assert Engine(journal, [of["new"]]).resume(RUN_ID).result == [0, 1, 2]
    assert asked(Engine(journal)) == [("p", False)], "asked for three times, recorded once"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("recorded", [0, 1])
def test_an_old_path_on_record_that_the_code_no_longer_has_is_refused_before_anything_is_done(
    journal, recorded, form
):
    """Before the next step is executed, not after the last."""
    of = bodies(form)
    dies = CrashAt("draft", "before", occurrence=recorded + 1)
    with pytest.raises(InjectedCrash):
        run_it(of["old"])(Engine(journal, [of["old"]], probe=dies))
    with pytest.raises(InjectedCrash):
        Engine(journal, [of["new"]], probe=CrashAt("draft", "after")).resume(RUN_ID)
    history = Engine(journal).history(RUN_ID)
    with pytest.raises(NonDeterminismError, match="patch 'p' as not taken"):
        Engine(journal, [of["gone"]]).resume(RUN_ID)
    assert (did(of["gone"]), Engine(journal).history(RUN_ID)) == ([], history)
    assert Engine(journal).describe(RUN_ID).status is RunStatus.NEEDS_ATTENTION
    assert Engine(journal, [of["new"]]).resume(RUN_ID).result == [0, 1, 2]


def test_a_new_run_goes_on_with_new_bodies_where_the_patch_was_removed(journal):
    of = bodies()
    with pytest.raises(InjectedCrash):
        run_it(of["new"])(Engine(journal, [of["new"]], probe=CrashAt("draft", "after")))
    assert asked(Engine(journal)) == [("p", True)]
    run = Engine(journal, [of["gone"]]).resume(RUN_ID)
    assert run.result == NEW_WAY


# What a patch is


def test_an_old_runs_next_generation_is_a_new_run_of_the_code_that_begins_it(journal):
    old = code(
        "ctx.wait_signal('go')\nseen.append(ctx.step('a', self, 'a'))\n"
        "ctx.continue_as_new(1) if x is None else None"
    )
    new = code(
        "ctx.wait_signal('go')\n"
        + patch("p", step("b"), step("a"))
        + "\nctx.continue_as_new(1) if x is None else None"
    )
    engine = Engine(journal, [old])
    engine.run(old, run_id=RUN_ID)
    engine = Engine(journal, [new])
    engine.signal(RUN_ID, "go")
    assert engine.resume(RUN_ID).generation == 2
    assert [event.name for event in engine.history(RUN_ID, 1) if event.kind == "step"] == ["a"]
    engine.signal(RUN_ID, "go")
    assert engine.resume(RUN_ID).result == ["b"]


def test_a_child_that_an_old_run_begins_is_a_new_run(journal):
    kid = code(patch("p", step("new"), step("old")), name="kid")
    kid_before = code(step("old"), name="kid")

    @workflow(version="1")
    def parent(ctx: Context, _: Any) -> Any:
        ctx.wait_signal("go")
        return ctx.child(kid)

    Engine(journal, [parent, kid_before]).run(parent, run_id=RUN_ID)
    engine = Engine(journal, [parent, kid])
    engine.signal(RUN_ID, "go")
    assert engine.resume(RUN_ID).result == ["new"]


@pytest.mark.parametrize(
    "test",
    [
        "if not ctx.patched('p'): seen.append(1)",
        "if x and ctx.patched('p'): seen.append(1)",
        "if ctx.patched('p') or x: seen.append(1)",
        "if ctx.patched('p') is True: seen.append(1)",
        "if ctx.patched(x): seen.append(1)",
        "if ctx.patched(patch_id='p'): seen.append(1)",
        "if ctx.patched('p' 'q', 1): seen.append(1)",
        "if (taken := ctx.patched('p')): seen.append(taken)",
        "while ctx.patched('p'): break",
        "seen.append(1 if ctx.patched('p') else 2)",
        "taken = ctx.patched('p')",
        "ctx.patched('p')",
        "assert ctx.patched('p')",
        "seen += [1 for _ in 'ab' if ctx.patched('p')]",
        "seen.append(ctx.step(str(ctx.patched('p')), self, 1))",
    ],
)
def test_a_patch_that_isnt_the_whole_test_of_an_if_is_refused_by_the_engine(test):
    """In a helper too: what a structure can't tell, nobody is to find out in production."""
    for agent in (code(test), code("chat(ctx, seen)", before=helper(f"x = 1\n{test}"))):
        with pytest.raises(StructureUnreadableError, match="isn't the whole test of an if"):
            Engine(MemoryJournal(), [agent])


def test_a_patch_beside_elif_takes_the_first_that_the_run_knows(journal):
    three = f"if ctx.patched('p'):\n    {step('a')}\nelif ctx.patched('q'):\n    {step('b')}\n"
    three += f"else:\n    {step('c')}"
    two = f"if ctx.patched('q'):\n    {step('b')}\nelse:\n    {step('c')}"
    for body, expected in ((step("c"), ["c"]), (two, ["b"]), (three, ["a"])):
        run_id = f"from {expected}"
        started = code(body)
        Engine(journal, [started]).start(started, run_id=run_id)
        assert Engine(journal, [code(three)]).resume(run_id).result == expected


# Any sequence of deploys

Block = list[Any]  # of names of steps, loops and patches


class Loop:
    def __init__(self, body: Block) -> None:
        self.body = body


class Patch:
    def __init__(self, patch_id: str, new: Block, old: Block) -> None:
        self.patch_id, self.new, self.old = patch_id, new, old


def resolved(body: Block, known: set[str] | None) -> list[Any]:
    """The path of a run that knows these patches (None: all): names, and lists for loops."""
    path: list[Any] = []
    for part in body:
        if isinstance(part, Patch):
            path += resolved(
                part.new if known is None or part.patch_id in known else part.old, known
            )
        elif isinstance(part, Loop):
            inner = resolved(part.body, known)
            path += [inner] if inner else []
        else:
            path.append(part)
    return path


def walked(path: list[Any]) -> list[str]:
    """What a workflow with this path returns."""
    return [
        name for part in path for name in (walked(part) * 3 if isinstance(part, list) else [part])
    ]


def written(body: Block, removed: set[str]) -> str:
    """The source of a program from which some patches have been removed."""
    lines = []
    for part in body:
        if isinstance(part, str):
            lines.append(step(part))
        elif isinstance(part, Loop):
            lines.append(loop(written(part.body, removed)))
        elif part.patch_id in removed:
            lines.append(written(part.new, removed))
        else:
            both = written(part.new, removed), written(part.old, removed)
            lines.append(patch(part.patch_id, *both))
    return "\n".join(lines) or "pass"


def blocks(body: Block) -> Iterator[Block]:
    """Every block of a program that a deploy may change."""
    yield body
    for part in body:
        if isinstance(part, Loop):
            yield from blocks(part.body)
        elif isinstance(part, Patch):
            yield from blocks(part.new)
            yield from blocks(part.old)


NAMES = st.sampled_from("abc")
PARTS = st.recursive(
    NAMES, lambda inner: st.lists(inner, min_size=1, max_size=2).map(Loop), max_leaves=3
)


class Shop:
    """A program under development, its deploys, and the runs that it has begun."""

    def __init__(self, data: st.DataObject) -> None:
        self.draw = data.draw
        self.body: Block = self.draw(st.lists(PARTS, min_size=1, max_size=3))
        self.patches: list[str] = []
        self.removed: set[str] = set()
        self.journal = MortalMemory()
        self.begun: dict[str, tuple[set[str], set[str], list[Any]]] = {}
        self.deploy()

    def deploy(self) -> None:
        self.live = code(written(self.body, self.removed))

    def change(self) -> None:
        """Put something under a patch, in place of something or of nothing."""
        place = self.draw(st.sampled_from(list(blocks(self.body))))
        at = self.draw(st.integers(0, len(place)))
        old = place[at : at + self.draw(st.integers(0, 1))]
        new = self.draw(st.lists(PARTS, max_size=1))
        if resolved(old, None) != resolved(new, None):
            self.patches.append(patch_id := f"p{len(self.patches)}")
            place[at : at + len(old)] = [Patch(patch_id, new, old)]
        self.deploy()

    def remove(self) -> None:
        left = sorted(set(self.patches) - self.removed)
        if left:
            self.removed.add(self.draw(st.sampled_from(left)))
        self.deploy()

    def begin(self) -> None:
        run_id = f"r-{len(self.begun)}"
        Engine(self.journal, [self.live]).start(self.live, run_id=run_id)
        known = set(self.patches)  # those that were removed are as good as known
        self.begun[run_id] = known, set(self.removed), resolved(self.body, known)

    def accepts(self, run_id: str) -> bool:
        """Whether a run has the path that it had, now that patches have been removed."""
        known, _, path = self.begun[run_id]
        return resolved(self.body, known | self.removed) == path

    def drive(self) -> None:
        """Let a run go on until it dies, ends, or is refused."""
        if not self.begun:
            return
        run_id = self.draw(st.sampled_from(sorted(self.begun)))
        fate = Fate(self.draw(st.integers(0, 12)))
        live_until(self.journal, fate, self.tried(run_id), workflows=[self.live])

    def tried(self, run_id: str) -> Any:
        def resume(engine: Engine) -> None:
            try:
                engine.resume(run_id)
            except StructureChangedError:
                assert not self.accepts(run_id)
            except NonDeterminismError as refused:
                assert "as not taken" in str(refused)

        return resume

    def settle(self) -> None:
        """What became of the runs, once every patch is back that was there when they began."""
        engine = Engine(self.journal, [self.live])
        ended = {run.run_id for run in engine.runs("completed")}
        refused = {run_id for run_id in self.begun if not self.accepts(run_id)} - ended
        assert {orphan.run_id for orphan in engine.orphans()} == refused
        for run_id, (_, removed, path) in self.begun.items():
            live = code(written(self.body, removed))
            assert Engine(self.journal, [live]).resume(run_id).result == walked(path)


@given(data=st.data())
@settings(max_examples=100)
@pytest.mark.slow
def test_no_sequence_of_deploys_and_deaths_changes_what_an_old_run_gives(data):
    """Patches go in anywhere, into each other too, and out again; runs begin, die and go on."""
    shop = Shop(data)
    acts = [shop.change, shop.remove, shop.begin, shop.drive, shop.drive]
    for _ in range(data.draw(st.integers(2, 14))):
        data.draw(st.sampled_from(acts))()
    shop.settle()


def test_a_second_patch_may_be_asked_for_before_one_that_an_old_run_has_declined(journal):
    """The decline of the first is on record; the second comes earlier in the code."""
    calls: list[str] = []

    def deployed(*patches: str) -> Workflow:
        @workflow(version="1", name="scripted")
        def none(ctx: Context, _: Any) -> None:
            ctx.step("a", calls.append, "a")

        @workflow(version="1", name="scripted")
        def one(ctx: Context, _: Any) -> None:
            if ctx.patched("p0"):
                ctx.step("b", calls.append, "b")
            ctx.step("a", calls.append, "a")

        @workflow(version="1", name="scripted")
        def two(ctx: Context, _: Any) -> None:
            if ctx.patched("p1"):
                ctx.step("c", calls.append, "c")
            if ctx.patched("p0"):
                ctx.step("b", calls.append, "b")
            ctx.step("a", calls.append, "a")

        return (none, one, two)[len(patches)]

    Engine(journal, [deployed()]).start(deployed(), run_id=RUN_ID)
    crash(journal, deployed("p0"), "a", "before")
    assert resume(journal, deployed("p0", "p1")).status is RunStatus.COMPLETED
    assert calls == ["a"]
