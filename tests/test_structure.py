"""The structure hash: what changes it, what doesn't, and where it can't be had.

Workflows are read from source files of their own, so that a test can change one line, or edit the
file after it was loaded.
"""

from __future__ import annotations
import __future__ as future

import importlib.util
import itertools
import linecache
import sys
import textwrap
import types
from pathlib import Path

import pytest

from durable_mini import (
    Engine,
    MemoryJournal,
    StructureChangedError,
    StructureUnreadableError,
    Workflow,
    structure,
    workflow,
)

_numbers = itertools.count()


def load(folder: Path, source: str, name: str | None = None) -> types.ModuleType:
    """Write a module and import it under a name that no other test has."""
    name = name or f"structure_case_{next(_numbers)}"
    path = folder / f"{name}.py"
    path.write_text(textwrap.dedent(source), encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


HEAD = "from durable_mini import workflow\n\ndef f(*args): ...\n\n"


def agent_with(folder: Path, body: str, before: str = "") -> Workflow:
    """A workflow `agent(ctx, x)` with this body."""
    body = textwrap.dedent(body).strip("\n")
    return agent_of_version(folder, body, before=textwrap.dedent(before))


def agent_of_version(folder: Path, body: str, version: str = "1", before: str = "") -> Workflow:
    head = f"{HEAD}{before}\n\n@workflow(version={version!r})\ndef agent(ctx, x):\n"
    return load(folder, head + textwrap.indent(body, "    ") + "\n").agent


def steps_in(calls: tuple[str, ...]) -> list[str]:
    """The calls that are steps with a literal name, in order, without their nesting."""
    return [line.strip() for line in calls if line.strip().startswith("step '")]


CONSTRUCTS = {
    "one after the other": "ctx.step('a', f)\nctx.step('b', f)",
    "both under if": "if x:\n    ctx.step('a', f)\n    ctx.step('b', f)",
    "if and after": "if x:\n    ctx.step('a', f)\nctx.step('b', f)",
    "before and in if": "ctx.step('a', f)\nif x:\n    ctx.step('b', f)",
    "test and else": "if ctx.step('a', f):\n    pass\nelse:\n    ctx.step('b', f)",
    "if and else": "if x:\n    ctx.step('a', f)\nelse:\n    ctx.step('b', f)",
    "both under else": "if x:\n    pass\nelse:\n    ctx.step('a', f)\n    ctx.step('b', f)",
    "two ifs": "if x:\n    ctx.step('a', f)\nif x:\n    ctx.step('b', f)",
    "if and elif": "if x:\n    ctx.step('a', f)\nelif not x:\n    ctx.step('b', f)",
    "if in if": "if x:\n    ctx.step('a', f)\n    if not x:\n        ctx.step('b', f)",
    "both in for": "for _ in x:\n    ctx.step('a', f)\n    ctx.step('b', f)",
    "for and after": "for _ in x:\n    ctx.step('a', f)\nctx.step('b', f)",
    "for over a step": "for _ in ctx.step('a', f):\n    ctx.step('b', f)",
    "for and else": "for _ in x:\n    ctx.step('a', f)\nelse:\n    ctx.step('b', f)",
    "for in for": "for y in x:\n    ctx.step('a', f)\n    for _ in y:\n        ctx.step('b', f)",
    "while on a step": "while ctx.step('a', f):\n    ctx.step('b', f)",
    "both in while": "while x:\n    ctx.step('a', f)\n    ctx.step('b', f)",
    "while and after": "while x:\n    ctx.step('a', f)\nctx.step('b', f)",
    "while and else": "while x:\n    ctx.step('a', f)\nelse:\n    ctx.step('b', f)",
    "both in try": "try:\n    ctx.step('a', f)\n    ctx.step('b', f)\nexcept E:\n    pass",
    "try and except": "try:\n    ctx.step('a', f)\nexcept E:\n    ctx.step('b', f)",
    "try and else": "try:\n    ctx.step('a', f)\nexcept E:\n    pass\nelse:\n    ctx.step('b', f)",
    "try and finally": "try:\n    ctx.step('a', f)\nfinally:\n    ctx.step('b', f)",
    "except star": "try:\n    pass\nexcept* E:\n    ctx.step('a', f)\n    ctx.step('b', f)",
    "case and case": "match x:\n    case 1:\n        ctx.step('a', f)\n    case _:\n"
    "        ctx.step('b', f)",
    "both in case": "match x:\n    case 1:\n        ctx.step('a', f)\n        ctx.step('b', f)",
    "match on a step": "match ctx.step('a', f):\n    case 1:\n        ctx.step('b', f)",
    "element of a comprehension": "ctx.step('a', f)\n[ctx.step('b', f) for _ in x]",
    "key and value": "{ctx.step('a', f): ctx.step('b', f) for _ in x}",
    "lambda": "ctx.step('a', f)\ny = lambda: ctx.step('b', f)",
    "inner function": "def inner():\n    ctx.step('a', f)\n    ctx.step('b', f)\ninner()",
    "conditional expression": "y = ctx.step('a', f) if x else ctx.step('b', f)",
    "or": "y = ctx.step('a', f)\nz = x or ctx.step('b', f)",
    "both after or": "z = x or (ctx.step('a', f), ctx.step('b', f))",
}


def test_structure_of_every_construct_differs_and_shows_both_steps(tmp_path):
    seen: dict[str, str] = {}
    for label, body in CONSTRUCTS.items():
        found = structure(agent_with(tmp_path, body))
        assert steps_in(found.calls) == ["step 'a'", "step 'b'"], label
        assert found.hash not in seen, f"{label} has the hash of {seen.get(found.hash)}"
        seen[found.hash] = label


SEEN_EVERYWHERE = {
    "with": "with ctx.step('a', f) as y, open(ctx.step('b', f)):\n    ctx.step('c', f)",
    "guard of a case": "match x:\n    case 1 if ctx.step('a', f):\n        ctx.step('b', f)",
    "condition of a comprehension": "[ctx.step('b', f) for y in x if ctx.step('a', f)]",
    "second source of a comprehension": "[0 for y in x for z in ctx.step('a', f)]",
    "generator": "any(ctx.step('a', f) for _ in x)",
    "set": "{ctx.step('a', f) for _ in x}",
    "argument of a step": "ctx.step('b', f, ctx.step('a', f))",
    "keyword of a step": "ctx.step('b', f, y=ctx.step('a', f))",
    "subscript and attribute": "ctx.step('a', f)['k'].upper()",
    "f-string": "f'{ctx.step('a', f)}'"
    if sys.version_info >= (3, 12)
    else "f'{ctx.step(\"a\", f)}'",
    "return": "return ctx.step('a', f)",
    "raise": "raise ValueError(ctx.step('a', f))",
    "assert": "assert ctx.step('a', f), ctx.step('b', f)",
    "augmented": "x += ctx.step('a', f)",
    "walrus": "if (y := ctx.step('a', f)):\n    pass",
    "starred": "f(*ctx.step('a', f), **ctx.step('b', f))",
    "comparison": "ctx.step('a', f) < ctx.step('b', f) < 3",
    "slice": "x[ctx.step('a', f):ctx.step('b', f)]",
    "deletion": "del x[ctx.step('a', f)]",
    "default of a parameter": "def inner(y=ctx.step('a', f)):\n    pass",
    "default of a lambda": "lambda y=ctx.step('a', f): y",
    "decorator": "@ctx.step('a', f)\ndef inner(): ...",
    "beside an inner function's own name": "def inner():\n    ctx.step('a', f)\n"
    "    return lambda ctx: ctx",
    "class body": "class Inner:\n    y = ctx.step('a', f)",
}


@pytest.mark.parametrize("body", SEEN_EVERYWHERE.values(), ids=SEEN_EVERYWHERE.keys())
def test_structure_overlooks_no_step(tmp_path, body):
    found = structure(agent_with(tmp_path, body))
    assert steps_in(found.calls) == [
        f"step '{name}'" for name in "abc" if f"'{name}'" in body.replace('"', "'")
    ]


@pytest.mark.parametrize(
    "body",
    [
        "y = ctx.step('b', f, ctx.step('a', f))",
        "y = {**ctx.step('a', f), 'k': ctx.step('b', f)}",
        "y = ctx.step('b', f) if ctx.step('a', f) else 0",
        "for y in ctx.step('a', f):\n    ctx.step('b', f)\nelse:\n    ctx.step('c', f)",
        "y = {ctx.step('c', f) for z in ctx.step('a', f) if ctx.step('b', f)}",
        "y = {ctx.step('b', f): ctx.step('c', f) for z in ctx.step('a', f)}",
        "if ctx.step('a', f):\n    ctx.step('b', f)\nelse:\n    ctx.step('c', f)",
        "y = [ctx.step('b', f) for _ in ctx.step('a', f)]",
        "while ctx.step('a', f):\n    ctx.step('b', f)\nelse:\n    ctx.step('c', f)",
        "f(ctx.step('a', f), ctx.step('b', f), k=ctx.step('c', f))",
    ],
)
def test_structure_lists_steps_in_the_order_in_which_they_run(tmp_path, body):
    order = [line[6] for line in steps_in(structure(agent_with(tmp_path, body)).calls)]
    assert order == sorted(order)
    assert len(order) >= 2


def test_structure_is_readable(tmp_path):
    body = """
        plan = ctx.step('plan', f, x)
        for item in plan:
            if item:
                ctx.effect('charge', f, item)
            else:
                ctx.step(f'skip {item}', f)
        return [ctx.now(), ctx.random(), ctx.uuid(), ctx.run_id, ctx.attempt]
    """
    assert structure(agent_with(tmp_path, body)).calls == (
        "step 'plan'",
        "for:",
        "  if:",
        "    effect 'charge'",
        "  else:",
        "    step with a computed name",
        "now",
        "random",
        "uuid",
    )


def test_structure_shows_waits_sagas_and_generations(tmp_path):
    body = """
        ctx.compensate('refund', f, x)
        ctx.sleep(3600)
        answer = ctx.wait_signal('approval', timeout_s=60)
        if answer is None:
            ctx.wait_signal(x)
        ctx.point_of_no_return()
        while x:
            ctx.compensate(f'undo {x}', f)
        ctx.continue_as_new(x)
    """
    assert structure(agent_with(tmp_path, body)).calls == (
        "compensate 'refund'",
        "sleep",
        "wait_signal 'approval'",
        "if:",
        "  wait_signal with a computed name",
        "point_of_no_return",
        "while:",
        "  compensate with a computed name",
        "continue_as_new",
    )


GATHERS = {
    "tuples": ("{'a': (f, x), 'b': (f,)}", "gather step 'a', step 'b'"),
    "made": (
        "{'a': Step(f, x), 'b': Effect(f, cost=1), 'c': dm.Effect(f)}",
        "gather step 'a', effect 'b', effect 'c'",
    ),
    "computed names": (
        "{x: (f,), f'b {x['k']}': dm.Effect(f)}"
        if sys.version_info >= (3, 12)
        else "{x: (f,), f'b {x[\"k\"]}': dm.Effect(f)}",
        "gather step with a computed name, effect with a computed name",
    ),
    "some from elsewhere": ("{'a': (f,), **x}", "gather step 'a', step more"),
    "none": ("{}", "gather "),
    "a variable": ("x", "gather"),
    "a comprehension": ("{name: (f,) for name in x}", "gather"),
    "by keyword": ("calls={'a': (f, x)}", "gather step 'a'"),
}


@pytest.mark.parametrize(("argument", "line"), GATHERS.values(), ids=GATHERS.keys())
def test_structure_shows_the_branches_of_a_gather(tmp_path, argument, line):
    before = "import durable_mini as dm\nfrom durable_mini import Effect, Step\n"
    agent = agent_with(tmp_path, f"return ctx.gather({argument})", before)
    assert structure(agent).calls == (line,)


def test_structure_of_a_gather_changes_with_name_kind_and_order_and_with_nothing_else(tmp_path):
    before = "from durable_mini import Effect, Step\n"

    def hash_of(argument):
        return structure(agent_with(tmp_path, f"ctx.gather({argument})", before)).hash

    base = hash_of("{'a': (f, x), 'b': Effect(f, x)}")
    assert hash_of("{'a': Step(f, cost=3), 'b': Effect(len, key='k')}") == base
    others = ["{'A': (f,), 'b': Effect(f)}", "{'a': (f,), 'b': (f,)}", "{'a': (f,)}"]
    others += ["{'b': Effect(f), 'a': (f,)}", "{'a': (f,), 'b': Effect(f), 'c': (f,)}"]
    assert len({base, *map(hash_of, others)}) == len(others) + 1


@pytest.mark.parametrize(
    ("call", "line"),
    [
        ("ctx.child(inner, x)", "child inner"),
        ("ctx.child(workflow=inner, input=x)", "child inner"),
        ("ctx.child(tools.inner, x, run_id='c')", "child tools.inner"),
        ("ctx.child(x[f'a{x}'])", "child"),
    ],
)
def test_structure_shows_which_workflow_is_a_child_and_does_not_read_into_it(tmp_path, call, line):
    before = "@workflow()\ndef inner(ctx, x):\n    ctx.step('its own', f)\n"
    assert structure(agent_with(tmp_path, call, before)).calls == (line,)


@pytest.mark.parametrize("call", ["ctx.wait_signal('go')", "ctx.wait_signal(name='go')"])
def test_structure_shows_a_name_that_is_given_by_keyword(tmp_path, call):
    assert structure(agent_with(tmp_path, call)).calls == ("wait_signal 'go'",)


def test_structure_reads_what_stands_in_the_arguments_of_any_durable_call(tmp_path):
    body = """
        ctx.sleep(ctx.step('a', f))
        ctx.gather({'b': (f, ctx.step('c', f))})
        ctx.child(inner, ctx.step('d', f))
        ctx.wait_signal('e', timeout_s=ctx.step('g', f))
        ctx.compensate('h', f, ctx.step('i', f))
    """
    assert structure(agent_with(tmp_path, body)).calls == (
        *("step 'a'", "sleep", "step 'c'", "gather step 'b'", "step 'd'", "child inner"),
        *("step 'g'", "wait_signal 'e'", "step 'i'", "compensate 'h'"),
    )


BASE = """
    plan = ctx.step('plan', f, x)
    if plan:
        ctx.effect('charge', lambda idempotency_key: 1, plan)
    return [ctx.now(), plan]
"""

CHANGED = {
    "name": BASE.replace("'plan'", "'plans'"),
    "kind": BASE.replace("effect", "step"),
    "recorded value": BASE.replace("now", "random"),
    "added": BASE + "    ctx.step('more', f)\n",
    "removed": BASE.replace("ctx.now(), ", ""),
    "computed name": BASE.replace("'plan'", "x"),
    "reordered": BASE.replace("return [ctx.now(), plan]", "return plan").replace(
        "    plan", "    ctx.now()\n    plan", 1
    ),
    "out of its branch": BASE.replace("    ctx.effect", "    pass\n    ctx.effect"),
    "into a loop": BASE.replace("if plan", "while plan"),
}

UNCHANGED = {
    "comment": BASE.replace("\n    if", "\n    # why we look\n    if"),
    "docstring": '    """What it does."""\n' + BASE,
    "blank lines": BASE.replace("\n", "\n\n"),
    "quotes": BASE.replace("'", '"'),
    "joined literals": BASE.replace("'plan'", "'pl' 'an'"),
    "line breaks": BASE.replace("ctx.step('plan', f, x)", "(\n  ctx\n  .step(\n'plan', f,\n x,))"),
    "step body": BASE.replace("idempotency_key: 1", "idempotency_key: f(f(2))"),
    "arguments": BASE.replace("f, x)", "f, x, 42, deep=True)"),
    "names of variables": BASE.replace("plan =", "notes =")
    .replace("if plan", "if notes")
    .replace(", plan)", ", notes)")
    .replace(", plan]", ", notes]"),
    "other work": BASE.replace("\n    if", "\n    x = f(x) + 1\n    print(ctx.run_id)\n    if"),
    "a type hint": BASE.replace("plan =", "plan: list[int] ="),
}


@pytest.mark.parametrize("body", CHANGED.values(), ids=CHANGED.keys())
def test_structure_changes_with_the_durable_calls(tmp_path, body):
    before = structure(agent_with(tmp_path, BASE))
    after = structure(agent_with(tmp_path, body))
    assert before.hash != after.hash
    assert before.calls != after.calls


@pytest.mark.parametrize("body", UNCHANGED.values(), ids=UNCHANGED.keys())
def test_structure_stays_when_the_durable_calls_do(tmp_path, body):
    before = structure(agent_with(tmp_path, BASE))
    after = structure(agent_with(tmp_path, body, before="# moved down\n\ndef g(): ...\n"))
    assert before == after


def test_structure_doesnt_depend_on_the_names_of_workflow_and_context(tmp_path):
    one = structure(agent_with(tmp_path, BASE))
    source = f"{HEAD}@workflow(version='7', name='other')\ndef w(c: 'C', /, x=None):\n{BASE}"
    assert structure(load(tmp_path, source.replace("ctx", "c")).w) == one


# Patches: the structure is that of the path which a run takes


# By name: the code with the patches in it, the code after every `if` was removed and the new path
# kept, the code before any patch, and the patches.
PATCHED = {
    "two paths": (
        "if ctx.patched('p'):\n    ctx.step('new', f)\nelse:\n    ctx.step('old', f)\n",
        "ctx.step('new', f)\n",
        "ctx.step('old', f)\n",
        ["p"],
    ),
    "an added call": (
        "ctx.step('a', f)\nif ctx.patched('p'):\n    ctx.step('new', f)\nctx.step('z', f)\n",
        "ctx.step('a', f)\nctx.step('new', f)\nctx.step('z', f)\n",
        "ctx.step('a', f)\nctx.step('z', f)\n",
        ["p"],
    ),
    "a removed call": (
        "if ctx.patched('p'):\n    pass\nelse:\n    ctx.step('old', f)\n",
        "pass\n",
        "ctx.step('old', f)\n",
        ["p"],
    ),
    "in a loop": (
        "for y in x:\n    if ctx.patched('p'):\n        ctx.step('new', f)\n    ctx.now()\n",
        "for y in x:\n    ctx.step('new', f)\n    ctx.now()\n",
        "for y in x:\n    ctx.now()\n",
        ["p"],
    ),
    "as elif": (
        "if x:\n    ctx.step('a', f)\nelif ctx.patched('p'):\n    ctx.step('new', f)\n"
        "else:\n    ctx.step('old', f)\n",
        "if x:\n    ctx.step('a', f)\nelse:\n    ctx.step('new', f)\n",
        "if x:\n    ctx.step('a', f)\nelse:\n    ctx.step('old', f)\n",
        ["p"],
    ),
    "before an elif": (
        "if ctx.patched('p'):\n    ctx.step('new', f)\nelif x:\n    ctx.step('b', f)\n"
        "else:\n    ctx.step('old', f)\n",
        "ctx.step('new', f)\n",
        "if x:\n    ctx.step('b', f)\nelse:\n    ctx.step('old', f)\n",
        ["p"],
    ),
    "a second patch in the new path": (
        "if ctx.patched('p'):\n    if ctx.patched('q'):\n        ctx.step('newest', f)\n"
        "    else:\n        ctx.step('new', f)\nelse:\n    ctx.step('old', f)\n",
        "ctx.step('newest', f)\n",
        "ctx.step('old', f)\n",
        ["p", "q"],
    ),
    "an older patch in the old path": (
        "if ctx.patched('q'):\n    ctx.step('newest', f)\nelif ctx.patched('p'):\n"
        "    ctx.step('new', f)\nelse:\n    ctx.step('old', f)\n",
        "ctx.step('newest', f)\n",
        "ctx.step('old', f)\n",
        ["q", "p"],
    ),
    "one patch at two places": (
        "if ctx.patched('p'):\n    ctx.step('new', f)\nctx.now()\nif ctx.patched('p'):\n"
        "    ctx.uuid()\nelse:\n    ctx.random()\n",
        "ctx.step('new', f)\nctx.now()\nctx.uuid()\n",
        "ctx.now()\nctx.random()\n",
        ["p"],
    ),
    "in a helper": (
        "helped(ctx)\nhelped(ctx)\n",
        "ctx.step('new', f)\nctx.step('new', f)\n",
        "ctx.step('old', f)\nctx.step('old', f)\n",
        ["p"],
    ),
}
HELPED = """
    def helped(context):
        if context.patched('p'):
            context.step('new', f)
        else:
            context.step('old', f)
"""


@pytest.mark.parametrize(
    ("patched", "after", "before", "patches"), PATCHED.values(), ids=PATCHED.keys()
)
def test_structure_of_a_patch_is_that_of_the_path_it_takes(
    tmp_path, patched, after, before, patches
):
    """All patches taken: the code after the `if` is gone. None of them: the code from before."""
    agent = agent_with(tmp_path, patched, HELPED)
    newest, oldest = (structure(agent_with(tmp_path, body)) for body in (after, before))
    assert (newest.patches, oldest.patches) == ((), ())
    for found, plain in (
        (structure(agent), newest),
        (structure(agent, patches), newest),
        (structure(agent, [*patches, "removed long ago"]), newest),
        (structure(agent, []), oldest),
        (structure(agent, ["removed long ago"]), oldest),
    ):
        assert (found.hash, found.calls) == (plain.hash, plain.calls)
        assert list(found.patches) == patches, "whatever a run knows, the code has these"
    assert newest.hash != oldest.hash


def test_structure_takes_each_patch_by_itself(tmp_path):
    body = "".join(
        f"if ctx.patched('{patch}'):\n    ctx.step('{patch}', f)\n" for patch in ("a", "b", "c")
    )
    agent = agent_with(tmp_path, body)
    for size in range(4):
        for known in itertools.combinations("abc", size):
            assert steps_in(structure(agent, known).calls) == [f"step {name!r}" for name in known]
    assert structure(agent).patches == ("a", "b", "c")


REFUSED_PATCHES = {
    "a variable": "new = ctx.patched('p')\nif new:\n    ctx.step('a', f)",
    "not": "if not ctx.patched('p'):\n    ctx.step('a', f)",
    "and": "if ctx.patched('p') and x:\n    ctx.step('a', f)",
    "or": "if x or ctx.patched('p'):\n    ctx.step('a', f)",
    "compared": "if ctx.patched('p') is True:\n    ctx.step('a', f)",
    "walrus": "if (new := ctx.patched('p')):\n    ctx.step('a', f)",
    "conditional expression": "y = ctx.step('a', f) if ctx.patched('p') else 0",
    "while": "while ctx.patched('p'):\n    ctx.step('a', f)",
    "assertion": "assert ctx.patched('p')",
    "returned": "return ctx.patched('p')",
    "condition of a comprehension": "[ctx.step('a', f) for y in x if ctx.patched('p')]",
    "guard of a case": "match x:\n    case 1 if ctx.patched('p'):\n        ctx.step('a', f)",
    "argument of a step": "ctx.step('a', f, ctx.patched('p'))",
    "alone": "ctx.patched('p')",
    "computed id": "if ctx.patched(x):\n    ctx.step('a', f)",
    "formatted id": "if ctx.patched(f'p{x}'):\n    ctx.step('a', f)",
    "number": "if ctx.patched(1):\n    ctx.step('a', f)",
    "keyword": "if ctx.patched(patch_id='p'):\n    ctx.step('a', f)",
    "two arguments": "if ctx.patched('p', 'q'):\n    ctx.step('a', f)",
    "starred": "if ctx.patched(*x):\n    ctx.step('a', f)",
    "nested wrongly": "if ctx.patched('p'):\n    y = ctx.patched('q')",
}


@pytest.mark.parametrize("body", REFUSED_PATCHES.values(), ids=REFUSED_PATCHES.keys())
def test_structure_of_a_patch_that_is_not_all_an_if_asks_for_is_refused(tmp_path, body):
    call = "ctx.patched('q')" if "'q'" in body and "'p', 'q'" not in body else "ctx.patched("
    assert_unreadable(agent_with(tmp_path, body), call, "(line ", "if ctx.patched('id')")


def test_structure_of_a_wrong_patch_in_a_helper_is_refused(tmp_path):
    wrong = HELPED.replace("if context.patched('p'):", "if not context.patched('p'):")
    agent = agent_with(tmp_path, "helped(ctx)", wrong)
    assert_unreadable(agent, "context.patched('p')", "whole test of an if")


@pytest.mark.parametrize("body", ["ask = ctx.patched\nask('p')", "f(ctx.patched)"])
def test_structure_says_where_patched_gets_out_of_sight(tmp_path, body):
    found = structure(agent_with(tmp_path, body))
    assert found.calls[0] == "patched is taken from the context, where it can't be followed"
    assert found.patches == ()


def test_structure_reads_another_contexts_patch_as_a_plain_if(tmp_path):
    body = "if x.patched('p'):\n    ctx.step('a', f)\nelse:\n    ctx.step('b', f)"
    found = structure(agent_with(tmp_path, body))
    assert found == structure(agent_with(tmp_path, CONSTRUCTS["if and else"]))


def test_a_run_keeps_its_path_when_a_patch_comes_and_goes(tmp_path, journal):
    """Before the patch, with it, after it: who may go on with whose runs, and on which path."""
    patched, after, before, _ = PATCHED["two paths"]
    codes = [agent_of_version(tmp_path, body) for body in (before, patched, after)]
    old, new, newest = (Engine(journal, [code]) for code in codes)
    for engine, code, run_id in zip((old, new, newest), codes, ("r-0", "r-1", "r-2"), strict=True):
        engine.start(code, run_id=run_id)

    def accepted(engine):
        return [run.run_id for run in engine.runs() if run.run_id not in orphans_of(engine)]

    def orphans_of(engine):
        return [orphan.run_id for orphan in engine.orphans()]

    assert accepted(old) == ["r-0"]
    assert accepted(new) == ["r-0", "r-1"], "a run of the newest code has no patch to go by"
    assert accepted(newest) == ["r-1", "r-2"]
    with pytest.raises(StructureChangedError, match="recorded step 'old', now step 'new'"):
        newest.resume("r-0")
    for engine, run_id in ((new, "r-0"), (newest, "r-1"), (newest, "r-2")):
        assert engine.resume(run_id).status == "completed"
    taken = [[event.name for event in old.history(run_id)][1:-1] for run_id in ("r-0", "r-1")]
    assert taken == [["p", "old"], ["new"]]
    assert new.history("r-0")[1].payload["result"] is False


# Helpers


HELPER = """
    def pay(context, order):
        context.effect('charge', f, order)
        for line in order:
            context.step('note', f, line)
"""


def test_structure_follows_the_context_into_a_helper(tmp_path):
    by_place = agent_with(tmp_path, "ctx.step('a', f)\npay(ctx, x)", HELPER)
    by_keyword = agent_with(tmp_path, "ctx.step('a', f)\npay(order=x, context=ctx)", HELPER)
    inlined = agent_with(
        tmp_path, "ctx.step('a', f)\nctx.effect('charge', f)\nfor y in x:\n    ctx.step('note', f)"
    )
    assert structure(by_place) == structure(by_keyword) == structure(inlined)


def test_structure_changes_with_a_helper(tmp_path):
    before = agent_with(tmp_path, "pay(ctx, x)", HELPER)
    after = agent_with(tmp_path, "pay(ctx, x)", HELPER.replace("'note'", "'notes'"))
    same = agent_with(tmp_path, "pay(ctx, x)", HELPER.replace("f, line", "f, line.upper()"))
    assert structure(before).hash != structure(after).hash
    assert structure(before).hash == structure(same).hash


def test_structure_follows_a_helper_of_another_module_and_of_a_closure(tmp_path):
    module = load(tmp_path, "def pay(ctx):\n    ctx.effect('charge', len)\n", name="pay_case_1")
    dotted = agent_with(tmp_path, "tools.pay(ctx)", "import pay_case_1 as tools")
    imported = agent_with(tmp_path, "pay(ctx)", "from pay_case_1 import pay")
    assert structure(dotted).calls == structure(imported).calls == ("effect 'charge'",)

    def made(helper):
        @workflow(version="1")
        def agent(ctx, _):
            return helper(ctx)

        return agent

    assert structure(made(module.pay)).calls == ("effect 'charge'",)


def test_structure_follows_a_workflow_that_is_called_as_a_helper(tmp_path):
    source = f"{HEAD}@workflow(version='1')\ndef inner(ctx, x):\n    ctx.step('a', f)\n"
    source += "@workflow(version='1')\ndef agent(ctx, x):\n    return inner(ctx, x)\n"
    assert structure(load(tmp_path, source).agent).calls == ("step 'a'",)


def test_structure_ends_on_recursion(tmp_path):
    before = """
        def down(ctx, depth):
            if depth:
                ctx.step('level', f)
                up(ctx, depth - 1)
        def up(ctx, depth):
            down(ctx, depth)
            ctx.step('after', f)
    """
    calls = structure(agent_with(tmp_path, "down(ctx, x)", before)).calls
    assert steps_in(calls) == ["step 'level'", "step 'after'"]
    assert any("again" in line for line in calls)


def test_structure_of_two_calls_of_a_helper_shows_it_twice(tmp_path):
    calls = structure(agent_with(tmp_path, "pay(ctx, 1)\npay(ctx, 2)", HELPER)).calls
    assert steps_in(calls) == ["step 'note'"] * 2


def test_structure_ignores_a_helper_that_doesnt_get_the_context(tmp_path):
    one = agent_with(tmp_path, "g(ctx.run_id)", "def g(ctx):\n    return ctx.step('a', f)\n")
    assert structure(one).calls == ()


# Where the context gets out of sight


ESCAPES = {
    "alias": "c = ctx\nc.step('a', f)",
    "walrus alias": "(c := ctx).step('a', f)",
    "attribute": "x.ctx = ctx\nx.ctx.step('a', f)",
    "list": "for c in [ctx]:\n    c.step('a', f)",
    "method taken": "do = ctx.step\ndo('a', f)",
    "method handed on": "list(map(ctx.step, x))",
    "getattr": "getattr(ctx, 'step')('a', f)",
    "dispatch table": "TABLE[x](ctx)",
    "method of an object": "x.pay(ctx)",
    "method of a class": "Tools.pay(ctx)",
    "callable argument": "x(ctx)",
    "inner helper": "def pay(c):\n    c.step('a', f)\npay(ctx)",
    "star": "pay(*[ctx])",
    "place behind a star": "pay(*x, ctx)",
    "double star": "pay(**{'ctx': ctx})",
    "helper with star arguments": "anything(1, ctx)",
    "helper with keywords": "anything(ctx=ctx)",
    "decorated helper": "wrapped(ctx)",
    "partial": "bound(ctx)",
    "default of a parameter": "def pay(c=ctx):\n    c.step('a', f)\npay()",
    "default of a lambda": "(lambda ctx=ctx: ctx.step('a', f))()",
    "default of an inner function": "def pay(ctx=ctx):\n    ctx.step('a', f)\npay()",
    "argument of a step": "ctx.step('b', f, ctx)",
    "closure of a helper": "return ctx",
    "builtin": "f(vars(ctx))",
    "rebound": "ctx = f(x)\nctx.step('a', f)",
}

TABLE = """
    import functools
    def pay(a, b=None, c=None):
        b.step('paid', f)
    def anything(*args, **kwargs):
        kwargs['ctx'].step('a', f)
    TABLE = {1: pay}
    class Tools:
        @staticmethod
        def pay(ctx): ctx.step('a', f)
    def twice(fn):
        @functools.wraps(fn)
        def inner(*args): return fn(*args)
        return inner
    @twice
    def wrapped(ctx): ctx.step('a', f)
    bound = functools.partial(pay, 1)
"""


@pytest.mark.parametrize("body", ESCAPES.values(), ids=ESCAPES.keys())
def test_structure_says_where_the_context_gets_out_of_sight(tmp_path, body):
    calls = structure(agent_with(tmp_path, body, TABLE)).calls
    assert any("can't be" in line for line in calls), calls


def test_structure_doesnt_take_an_inner_helper_for_a_global_one_of_the_same_name(tmp_path):
    body = """
        def pay(c):
            if x:
                return pay(c)
            c.step('inner', f)
        pay(ctx)
    """
    calls = structure(agent_with(tmp_path, body, "def pay(c):\n    c.step('global', f)\n")).calls
    assert not any("global" in line for line in calls)
    assert any("can't be" in line for line in calls)


# One source, one hash


GOLDEN_SOURCE = '''
from durable_mini import workflow


def think(*args): ...


def settle(ctx, order, *, notify):
    ctx.effect("charge", think, order)
    if notify:
        ctx.effect("mail", think, order)


@workflow(version="3")
def golden(ctx, ticket):
    """A workflow with one of everything."""
    started = ctx.now()
    plan = ctx.step("plan", think, ticket, ctx.uuid())
    for index, part in enumerate(plan):
        try:
            ctx.step(f"part {index}", think, part)
        except ValueError:
            ctx.step("skip", think)
        else:
            continue
        finally:
            with open(part) as file:
                ctx.step("tidy", think, file.name)
    while ctx.step("more?", think) and ctx.random() < 0.5:
        match plan:
            case [first, *_] if ctx.step("first?", think, first):
                settle(ctx, first, notify=True)
            case _:
                break
    else:
        ctx.step("settled", think)
    drafts = {name: ctx.step("draft", think, name) for name in plan if name or ctx.random()}
    best = ctx.step("best", think) if drafts else (lambda: ctx.step("none", think))()
    ctx.step("Größe \\u2028 '\\"", think)
    handlers = {"a": think}
    handlers[plan[0]](ctx)
    return [started, best]
'''
GOLDEN_HASH = "eadfdd7093a9f2bb"

GOLDEN_WAITS_SOURCE = """
import durable_mini
from durable_mini import Effect, Step, workflow


def think(*args): ...


@workflow()
def refund(ctx, order):
    ctx.step("its own", think)


def ask(ctx, orders):
    if ctx.patched("escalate"):
        return ctx.wait_signal("approval", timeout_s=3600) or ctx.wait_signal(name="boss")
    else:
        return ctx.wait_signal(f"approval {orders['id']}")


@workflow(version="3")
def golden(ctx, orders):
    for order in orders:
        ctx.compensate("charge", think, order)
        ctx.compensate(f"mail {order}", think)
    drafts = ctx.gather(
        {
            "tea": (think, 1),
            "milk": Step(think, cost=2.0),
            f"{orders['a']!r} \\N{EM DASH} {'quoted'}": durable_mini.Effect(think),
            "it's": Effect(think),
            7: (think,),
            **orders,
        }
    )
    ctx.gather({name: (think, name) for name in drafts})
    if ask(ctx, orders):
        ctx.point_of_no_return()
        [ctx.child(refund, order) for order in orders]
        ctx.child({"key": refund}[f"{'key'}"], 1)
    elif ctx.patched("wait"):
        ctx.sleep(60)
        ctx.continue_as_new(orders)
    else:
        ctx.sleep(30)
"""
GOLDEN_WAITS_HASHES = {
    (): "72e09c81747172f5",
    ("wait",): "89cf3092763161ab",
    ("escalate", "wait"): "57a5be770e4278a9",
}


def test_structure_of_a_fixed_source_is_the_committed_hash(tmp_path):
    found = structure(load(tmp_path, GOLDEN_SOURCE).golden)
    assert found.hash == GOLDEN_HASH, "\n".join(found.calls)


@pytest.mark.parametrize(("known", "golden_hash"), GOLDEN_WAITS_HASHES.items())
def test_structure_of_a_fixed_source_with_waits_and_patches_is_the_committed_hash(
    tmp_path, known, golden_hash
):
    found = structure(load(tmp_path, GOLDEN_WAITS_SOURCE).golden, known)
    assert found.hash == golden_hash, "\n".join(found.calls)


def test_structure_is_the_same_wherever_the_source_lies(tmp_path):
    (tmp_path / "deeper").mkdir()
    one = structure(load(tmp_path, GOLDEN_SOURCE).golden)
    moved = structure(load(tmp_path / "deeper", "\n\n# moved\n" + GOLDEN_SOURCE).golden)
    assert one == moved


# Where there is no source to read, or not the one that runs


def assert_unreadable(agent, *parts):
    for attempt in (lambda: structure(agent), lambda: Engine(MemoryJournal(), [agent])):
        with pytest.raises(StructureUnreadableError) as caught:
            attempt()
        message = str(caught.value)
        for part in (*parts, "Next:", repr(agent.name)):
            assert part in message


def test_structure_of_code_made_by_exec_is_refused_with_what_to_do():
    names: dict[str, object] = {}
    exec("from durable_mini import workflow\n@workflow(version='1')\ndef agent(ctx, x): ...", names)
    assert_unreadable(names["agent"], "no source", "file")


def test_structure_of_a_notebook_cell_is_read_where_an_earlier_cell_imported_annotations():
    """IPython compiles a cell with what earlier ones imported from the future; its text has not."""
    cell = f"{HEAD}@workflow()\ndef agent(ctx, x):\n    def f(y: list[int]): ...\n"
    cell += "    return ctx.step('plan', f)\n"
    linecache.cache["<cell 2>"] = len(cell), None, cell.splitlines(keepends=True), "<cell 2>"
    names: dict[str, object] = {}
    exec(compile(cell, "<cell 2>", "exec", future.annotations.compiler_flag), names)
    assert structure(names["agent"]).calls == ("step 'plan'",)


def test_structure_of_two_lambdas_on_one_line_is_refused_with_what_to_do(tmp_path):
    source = HEAD + "a, b = (workflow(name='a')(lambda c, x: c.now()), lambda c, x: c.uuid())\n"
    assert_unreadable(load(tmp_path, source).a, "line 5", "line of its own")


def test_structure_of_a_lambda_on_a_line_of_its_own_is_read(tmp_path):
    source = HEAD + "a = workflow(name='a')(lambda c, x: c.step('plan', f))\n"
    assert structure(load(tmp_path, source).a).calls == ("step 'plan'",)


def test_structure_of_something_that_is_no_function_is_refused():
    class Agent:
        def __call__(self, ctx, x): ...

    with pytest.raises(TypeError, match="'agent' has to be a plain function"):
        workflow(version="1", name="agent")(Agent())


EDITS = {
    "added step": "    ctx.step('more', f)\n" + BASE,
    "removed step": BASE.replace("ctx.now(), ", ""),
    "renamed step": BASE.replace("'plan'", "'plot'"),
    "other kind": BASE.replace("ctx.effect", "ctx.step"),
    "reordered steps": BASE.replace("step('plan'", "effect('charge'").replace(
        "effect('charge', lambda", "step('plan', lambda"
    ),
    "moved into a branch": BASE.replace(
        "    return [ctx.now(), plan]", "    if x:\n        return [ctx.now(), plan]"
    ),
    "moved into a loop": BASE.replace(
        "    return [ctx.now(), plan]", "    for _ in x:\n        return [ctx.now(), plan]"
    ),
    "moved into a try": BASE.replace(
        "    return [ctx.now(), plan]",
        "    try:\n        return [ctx.now(), plan]\n    finally:\n        pass",
    ),
    "other argument": BASE.replace("f, x)", "f, 1)"),
    "other text": '    """Says what it does."""\n' + BASE.removeprefix("\n"),
    "gone": "    return 1\n",
    "no longer Python": BASE + "    ctx.step(\n",
}


@pytest.mark.parametrize("edited", EDITS.values(), ids=EDITS.keys())
def test_structure_of_a_file_edited_since_it_was_loaded_is_refused(tmp_path, edited):
    agent = agent_with(tmp_path, BASE)
    path = Path(agent.fn.__code__.co_filename)
    head = path.read_text().split("def agent")[0]
    path.write_text(f"{head}def agent(ctx, x):\n{edited}")
    assert_unreadable(agent, "edited since it was loaded", "restart")


def test_structure_of_a_moved_or_deleted_function_is_refused(tmp_path):
    agent = agent_with(tmp_path, BASE)
    path = Path(agent.fn.__code__.co_filename)
    path.write_text("# one line more\n" + path.read_text())
    assert_unreadable(agent, "edited since it was loaded")
    path.unlink()
    linecache.checkcache()
    assert_unreadable(agent, "Next:")


def test_structure_of_an_edited_helper_is_refused(tmp_path):
    agent = agent_with(tmp_path, "pay(ctx, x)", HELPER)
    path = Path(agent.fn.__code__.co_filename)
    path.write_text(path.read_text().replace("'note'", "'notes'"))
    assert_unreadable(agent, "edited since it was loaded")


def test_structure_once_read_is_that_of_the_code_that_runs(tmp_path):
    agent = agent_with(tmp_path, BASE)
    before = structure(agent)
    path = Path(agent.fn.__code__.co_filename)
    path.write_text(path.read_text().replace("'plan'", "'plot'"))
    assert structure(agent) is before


OTHER = """
@workflow()
def other(ctx, x):
    ctx.step('look', f)
"""


def test_structure_of_a_file_edited_after_another_workflow_of_it_was_read_is_refused(tmp_path):
    agent = agent_with(tmp_path, BASE, OTHER)
    other = sys.modules[agent.fn.__module__].other
    structure(other)
    path = Path(agent.fn.__code__.co_filename)
    path.write_text(path.read_text().replace("'plan'", "'plot'"))
    assert_unreadable(agent, "edited since it was loaded")


PATCHED_BASE = (
    BASE
    + """
    if ctx.patched('p'):
        ctx.step('new', f)
    elif ctx.patched('q'):
        ctx.step('other', f)
    else:
        pay(ctx, x)
"""
)


def test_structure_of_repeated_reads_is_one_for_each_set_of_patches(tmp_path):
    agent = agent_with(tmp_path, PATCHED_BASE.replace("return", "y ="), HELPER)
    sets = [None, [], ["p"], ["q"], ["p", "q"], ["unknown"]]
    first = [structure(agent, known) for known in sets]
    assert [structure(agent, known) for known in reversed(sets)] == first[::-1]
    assert structure(agent) is first[0]
    assert structure(agent, iter(("q", "p", "q"))) is first[4]
    found = [one.hash for one in first]
    assert found[0] == found[2] == found[4]
    assert found[1] == found[5]
    assert len(set(found)) == 3


def test_structure_with_other_patches_is_that_of_the_code_that_runs_too(tmp_path, journal):
    """A file that is saved while the process runs changes nothing for it, helpers included."""
    agent = agent_with(tmp_path, PATCHED_BASE.replace("return", "y ="), HELPER)
    twin = agent_with(tmp_path, PATCHED_BASE.replace("return", "y ="), HELPER)
    engine = Engine(journal, [agent])  # reads it with all its patches
    engine.start(agent, run_id="r-1")
    path = Path(agent.fn.__code__.co_filename)
    path.write_text(path.read_text().replace("'plan'", "'plot'").replace("'note'", "'notes'"))
    for known in ([], ["q"], ["p", "q"]):
        assert structure(agent, known) == structure(twin, known)
    assert engine.resume("r-1").status == "completed"


# Under pytest, which rewrites assertions


@workflow(version="1")
def asserting(ctx, x):
    plan = ctx.step("plan", str, x)
    assert plan
    assert plan == "plan", f"plan is {plan}"
    charge = ctx.step("charge", str, plan)
    assert (
        charge != "plan"
        or ctx.run_id == "r"
        or [part for part in plan if part == "charge" and plan in ("plan", "charge")]
    ), "charge"
    assert ctx.step("checked", len, plan) > 3 > len("ab"), ctx.run_id
    if plan:
        assert x
    for _ in plan:
        assert charge
    return "charge"


def test_structure_is_read_where_pytest_has_rewritten_assertions():
    assert "@pytest_ar" in asserting.fn.__code__.co_names, "this file is rewritten"
    assert structure(asserting).calls == ("step 'plan'", "step 'charge'", "step 'checked'")
    run = Engine(MemoryJournal(), [asserting]).run(asserting, "plan", run_id="r")
    assert run.result == "charge"


# The engine refuses a changed structure


OLD = "ctx.step('plan', f)\nfor _ in range(2):\n    ctx.step('draft', f)\nreturn 'old'\n"
NEW = "ctx.step('plan', f)\nfor _ in range(2):\n    ctx.step('review', f)\nreturn 'new'\n"


def test_resume_with_a_changed_structure_is_refused_with_the_first_difference(tmp_path, journal):
    old, new = agent_of_version(tmp_path, OLD), agent_of_version(tmp_path, NEW)
    engine = Engine(journal, [old])
    engine.start(old, run_id="r-1")
    before = (engine.history("r-1"), engine.describe("r-1"))
    with pytest.raises(StructureChangedError) as caught:
        Engine(journal, [new]).resume("r-1")
    error = caught.value
    assert (error.run_id, error.workflow, error.version) == ("r-1", "agent", "1")
    assert list(error.recorded) == list(structure(old).calls)
    assert list(error.requested) == list(structure(new).calls)
    assert error.position == 3
    for part in ("run r-1", "'agent'", "step 'draft'", "step 'review'", "3", "Next:"):
        assert part in str(error)
    assert (engine.history("r-1"), engine.describe("r-1")) == before, "nothing was written"
    assert engine.resume("r-1").result == "old"


@pytest.mark.parametrize(
    ("body", "after"),
    [
        (OLD.replace("return 'old'", "ctx.step('more', f)"), "step 'more'"),
        (OLD.split("for", maxsplit=1)[0], "nothing more"),
    ],
)
def test_a_structure_that_only_grew_or_shrank_shows_where(tmp_path, journal, body, after):
    old, new = agent_of_version(tmp_path, OLD), agent_of_version(tmp_path, body)
    Engine(journal, [old]).start(old, run_id="r-1")
    with pytest.raises(StructureChangedError, match=after):
        Engine(journal, [new]).resume("r-1")


def test_versions_with_other_structures_run_beside_each_other(tmp_path, journal):
    old = agent_of_version(tmp_path, OLD)
    new = agent_of_version(tmp_path, NEW, version="2")
    Engine(journal, [old]).start(old, run_id="r-1")
    engine = Engine(journal, [old, new])
    engine.start(new, run_id="r-2")
    assert [engine.resume(run_id).result for run_id in ("r-1", "r-2")] == ["old", "new"]


# The decorator


def test_workflow_refuses_what_replay_cant_drive():
    async def coroutine(ctx, x): ...

    async def stream(ctx, x):
        yield

    def generator(ctx, x):
        yield

    for function in (coroutine, stream, generator):
        with pytest.raises(TypeError, match=function.__name__):
            workflow(version="1")(function)


def test_workflow_is_still_a_function_with_its_name_and_text():
    @workflow(version="2", name="billing")
    def agent(ctx, x):
        """What it does."""
        return [ctx, x]

    assert agent("ctx", 1) == ["ctx", 1]
    assert (agent.name, agent.version) == ("billing", "2")
    assert (agent.__name__, agent.__doc__) == ("agent", "What it does.")
    assert "billing" in repr(agent)
