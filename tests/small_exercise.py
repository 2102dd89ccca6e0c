"""A small exercise with three questions, in the form that every exercise has: cells by role.

`solution()` is the notebook as its author writes it, not yet executed.
"""

from __future__ import annotations

from typing import Any

from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

NAME = "90_small"

TOOLS = f"""\
from durable_mini import workflow
from durable_mini.school.exercise import Exercise

ex = Exercise("{NAME}")
world = ex.world"""

ADD = """\
# exercise: q1-add
def add(a, b):
    ### BEGIN SOLUTION
    ### STUB: raise NotImplementedError("the sum of a and b")
    return a + b
    ### END SOLUTION"""

ADD_CHECK = """\
# check: q1-add-two
with ex.check("q1-add-two", points=1) as check:
    got = ex.call("add", 2, 3)
    check.expect(got == 5, "A sum counts both.", got=got)"""

ADD_DRAWN = """\
# check: q1-add-drawn
### BEGIN HIDDEN TESTS
with ex.check("q1-add-drawn", points=2) as check:
    rng = ex.rng("q1-add-drawn")
    for _ in range(5):
        a, b = rng.randint(-99, 99), rng.randint(-99, 99)
        got = ex.call("add", a, b)
        check.expect(got == ex.reference("add", a, b), "Any two numbers have a sum.", a=a, b=b)
### END HIDDEN TESTS"""

LABELS = """\
# exercise: q2-labels
### BEGIN SOLUTION
### STUB: labels = {}
labels = {"charge": "effect", "plan": "step"}
### END SOLUTION"""

LABELS_CHECK = """\
# check: q2-labels-all
with ex.check("q2-labels-all", points=1) as check:
    labels = ex.value("labels")
    check.expect(labels.get("charge") == "effect", "What leaves the process is an effect.")
    check.expect(labels.get("plan") == "step", "What stays inside is a step.", labels=labels)"""

PAY = """\
# exercise: q3-pay
def charge(order, *, idempotency_key):
    ### BEGIN SOLUTION
    ### STUB: raise NotImplementedError("charge 40 for the order, under its key")
    return world.charge(order, 40, idempotency_key=idempotency_key)
    ### END SOLUTION


@workflow(version="1")
def pay(ctx, order):
    plan = ctx.step("plan", add, 1, 1)
    ### BEGIN SOLUTION
    ### STUB: raise NotImplementedError("charge the card, once")
    receipt = ctx.effect("charge", charge, order)
    ### END SOLUTION
    return [plan, receipt]"""

PAY_CHECK = """\
# check: q3-pay-resumed
with ex.check("q3-pay-resumed", points=1) as check:
    ledger, journal = ex.ledger(), ex.journal()
    ex.drive("pay", "o-1", journal=journal, crash=("charge", "window"))
    driven = ex.drive("pay", "o-1", journal=journal)
    check.expect(driven.status == "completed", "A run that was killed goes on.", got=driven.status)
    check.expect(len(ledger.rows) == 1, "One order, one charge.", rows=ledger.rows)"""

PAY_EVERYWHERE = """\
# check: q3-pay-everywhere
### BEGIN HIDDEN TESTS
with ex.check("q3-pay-everywhere", points=4) as check:
    order = f"o-{ex.rng('q3-pay-everywhere').randint(100, 999)}"
    for driven in ex.everywhere("pay", order):
        check.expect(driven.status == "completed", "It ends.", place=driven.place)
        rows = driven.ledger.standing("charge")
        check.expect(
            [row[:3] for row in rows] == [("charge", order, 40)],
            "Wherever it dies, the card is charged once.",
            rows=driven.ledger.rows,
            place=driven.place,
        )
### END HIDDEN TESTS"""


def _metadata(grade_id: str, role: str, points: float = 0) -> dict[str, Any]:
    graded, solution = role == "check", role == "answer"
    about = {"schema_version": 3, "grade_id": grade_id, "grade": graded, "solution": solution}
    about |= {"locked": not solution, "task": False, "cell_type": "code"}
    if graded:
        about["points"] = points
    locked = {} if solution else {"deletable": False, "editable": False}
    return {"nbgrader": about, **locked}


def cell(source: str, role: str, grade_id: str = "", points: float = 0) -> Any:
    """A code cell with a role: given, answer or check."""
    first = source.splitlines()[0]
    name = grade_id or first.partition(": ")[2]
    return new_code_cell(source, id=name, metadata=_metadata(name, role, points))


def solution() -> Any:
    """The solution notebook, not executed."""
    return new_notebook(
        cells=[
            new_markdown_cell("# A small exercise", id="small"),
            cell(TOOLS, "given", "tools"),
            cell(ADD, "answer"),
            cell(ADD_CHECK, "check", points=1),
            cell(ADD_DRAWN, "check", points=2),
            cell(LABELS, "answer"),
            cell(LABELS_CHECK, "check", points=1),
            cell(PAY, "answer"),
            cell(PAY_CHECK, "check", points=1),
            cell(PAY_EVERYWHERE, "check", points=4),
        ]
    )
