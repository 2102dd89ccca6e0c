"""Exercises 04 to 06: plausible wrong answers lose their points, for the reason given.

Each is graded on the backend that a notebook has, in this process. The most tempting one of each
part also goes through the real grader, those of an exercise in one notebook.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import nbformat
import pytest

from durable_mini import Engine, MemoryJournal, NonDeterminismError, SQLiteJournal, workflow
from durable_mini.lab import CrashAt, InjectedCrash, notebooks
from durable_mini.lab.granularity import exact_bill
from durable_mini.lab.leaks import orders
from durable_mini.school import exercise, source
from durable_mini.school.driving import Drive, drive
from durable_mini.school.exercise import Here, Missed
from durable_mini.school.grading import grade_all
from durable_mini.school.marks import HandIn, Submission

SOLUTIONS = Path(__file__).resolve().parent.parent / "solutions"
NAMES = ("04_phases", "05_leaks", "06_fraud_check")


class Wrong(NamedTuple):
    """An answer that somebody might well give.

    Attributes:
        exercise: of which.
        what: in a few words.
        cells: the answer cells that it replaces, by id: pairs of old and new text, or all of it.
        lost: the checks that it doesn't pass, each a point.
        reason: words of what the first of them says.
    """

    exercise: str
    what: str
    cells: dict[str, list[tuple[str, str]] | str]
    lost: tuple[str, ...]
    reason: str


def one_line(old: str, new: str) -> list[tuple[str, str]]:
    """One line of the solution is another one."""
    return [(old, new)]


NO_SECOND_PLACE = "number < p if in_the_middle else number < (before + window) * p"

PHASES = (
    Wrong(
        "04_phases",
        "after means recorded, also in the middle of a phase",
        {
            "a-by-hand": one_line('after draft": "draft"', 'after draft": "charge"'),
            "a-one-crash": one_line('"after": 10.0', '"after": 8.0'),
        },
        ("a-first-live", "a-bill"),
        "In the middle of a phase nothing is written",
    ),
    Wrong(
        "04_phases",
        "replay goes on where it stopped",
        {"a-by-hand": one_line('before charge": "draft"', 'before charge": "charge"')},
        ("a-first-live",),
        "on record as a whole or not at all",
    ),
    Wrong(
        "04_phases",
        "a step that crashes before its work is paid for",
        {"a-one-crash": one_line('"before": 8.0', '"before": 10.0')},
        ("a-bill",),
        "Before its work compose cost nothing",
    ),
    Wrong(
        "04_phases",
        "every restart costs a full phase",
        {
            "b-closed-form": one_line(
                "sum(c * done for c, done in zip(costs, work_done))", "sum(costs)"
            )
        },
        ("b-before-only", "b-everywhere"),
        "Where the crash falls sets the bill",
    ),
    Wrong(
        "04_phases",
        "a crash after the phase's record loses the phase",
        {"b-closed-form": one_line("(1 - (before + window) * p)", "(1 - p)")},
        ("b-everywhere",),
        "after a phase's record it costs nothing",
    ),
    Wrong(
        "04_phases",
        "a third for each place, whatever the weights say",
        {"b-closed-form": one_line("before, window, _ = weights", "before = window = 1 / 3")},
        ("b-before-only", "b-everywhere"),
        "Where the crash falls sets the bill",
    ),
    Wrong(
        "04_phases",
        "a record per step",
        {
            "b-closed-form": one_line(
                "for costs in phases:", "for costs in [[c] for f in phases for c in f]:"
            )
        },
        ("b-two-percent", "b-before-only", "b-everywhere"),
        "A crash loses what its phase has done so far",
    ),
    Wrong(
        "04_phases",
        "one phase for all",
        {"b-closed-form": one_line("for costs in phases:", "for costs in [sum(phases, [])]:")},
        ("b-two-percent", "b-before-only", "b-everywhere"),
        "A crash loses what its phase has done so far",
    ),
    Wrong(
        "04_phases",
        "any crash loses the phase, also one after its record",
        {"c-one-run": one_line(NO_SECOND_PLACE, "number < p")},
        ("c-dice",),
        "After a phase's record nothing is lost",
    ),
    Wrong(
        "04_phases",
        "a crash in the middle of a phase after the work is kept",
        {"c-one-run": one_line(NO_SECOND_PLACE, "number < (before + window) * p")},
        ("c-dice",),
        "In the middle of a phase nothing is on record",
    ),
    Wrong(
        "04_phases",
        "the work of a crashed step is never paid for",
        {"c-one-run": one_line("if number >= before * p:", "if number >= p:")},
        ("c-dice",),
        "In the window the work is paid for",
    ),
    Wrong(
        "04_phases",
        "distance in standard deviations of a run",
        {"c-distance": one_line(" / len(costs) ** 0.5", "")},
        ("c-how-far",),
        "its unit is the standard error",
    ),
    Wrong(
        "04_phases",
        "divided by the number of runs, not by its root",
        {"c-distance": one_line("** 0.5", "")},
        ("c-how-far",),
        "its unit is the standard error",
    ),
    Wrong(
        "04_phases",
        "a distance without a sign",
        {"c-distance": one_line("(mean(costs) - expected)", "abs(mean(costs) - expected)")},
        ("c-how-far",),
        "one below it at a negative one",
    ),
    Wrong(
        "04_phases",
        "a number of runs that isn't rounded",
        {"d-runs": one_line("return ceil(", "return (")},
        ("d-pilot", "d-other-pilots"),
        "a whole number, rounded up",
    ),
    Wrong(
        "04_phases",
        "twice the variance of the first pilot",
        {"d-runs": one_line("(variance(one) + variance(other))", "2 * variance(one)")},
        ("d-other-pilots",),
        "their variances add up",
    ),
    Wrong(
        "04_phases",
        "two equal means end in a division by zero",
        {"d-runs": one_line("    if apart == 0:\n        return None\n", "")},
        ("d-other-pilots",),
        "ZeroDivisionError",
    ),
    Wrong(
        "04_phases",
        "standard errors of the pilot in the place of variances",
        {"d-runs": one_line("variance(one)", "variance(one) / len(one)")},
        ("d-pilot", "d-other-pilots"),
        "How long the pilot was decides nothing",
    ),
    Wrong(
        "04_phases",
        "noise mustn't fool you, and four of five is forgotten",
        {"d-runs": one_line(" + bell.inv_cdf(0.80)", "")},
        ("d-pilot", "d-other-pilots"),
        "It depends on the difference, by its square",
    ),
)

HOUR, PIN = "hour = time.gmtime(ctx.now()).tm_hour", "int(ctx.random() * 1_000_000)"
TAGS, KEY = 'sorted(set(order["tags"]))', 'order["id"], total)'
PRINTER = 'ctx.step("printer", os.environ.get, "PRINTER", "upstairs")'
LIVE = {
    "clock": (HOUR, "hour = time.gmtime(machine_clock()).tm_hour"),
    "set": (TAGS, 'set(order["tags"])'),
    "setting": (PRINTER, 'os.environ.get("PRINTER", "upstairs")'),
    "key": (KEY, 'order["id"], total, key=f"{order[\'id\']}/{uuid4()}")'),
    "chance": (PIN, "random.randrange(1_000_000)"),
}
SEEDED = (HOUR, f"random.seed(ctx.run_id)\n    {LIVE['clock'][1]}")
B_CHECKS = ("b-clock", "b-chance", "b-key", "b-process", "b-setting")

LEAKS = (
    Wrong(
        "05_leaks",
        "a seed in front, and nothing else",
        {"b-steady": [SEEDED, *(LIVE[what] for what in ("set", "setting", "key", "chance"))]},
        B_CHECKS,
        "Record it, or the next decides anew",
    ),
    Wrong(
        "05_leaks",
        "everything is recorded but chance, which is seeded",
        {"b-steady": [(HOUR, f"random.seed(ctx.run_id)\n    {HOUR}"), LIVE["chance"]]},
        ("b-chance",),
        "Recorded beats repeatable",
    ),
    *(
        Wrong(
            "05_leaks",
            f"the {what} is left as it was",
            {"b-steady": [LIVE[what]]},
            (check,),
            reason,
        )
        for what, check, reason in (
            ("clock", "b-clock", "Record it, or the next decides anew"),
            ("set", "b-process", "Sort it, or record it"),
            ("setting", "b-setting", "A setting is read once"),
            ("key", "b-key", "the bank charged again"),
            ("chance", "b-chance", "Recorded beats repeatable"),
        )
    ),
    Wrong(
        "05_leaks",
        "the clock is read in front of its step",
        {"b-steady": [("ctx.now()", 'ctx.step("clock", float, machine_clock())')]},
        ("b-clock",),
        "Record it, or the next decides anew",
    ),
    Wrong(
        "05_leaks",
        "the setting is read in front of its step",
        {
            "b-steady": [
                (PRINTER, 'ctx.step("printer", str, os.environ.get("PRINTER", "upstairs"))')
            ]
        },
        ("b-setting",),
        "A setting is read once",
    ),
    Wrong(
        "05_leaks",
        "nothing comes in any more, since everything is a constant",
        {
            "b-steady": [
                (HOUR, "hour = 12"),
                (PIN, "123456"),
                (PRINTER, '"upstairs"'),
                (KEY, 'order["id"], total, key="charge")'),
            ]
        },
        ("b-clock", "b-chance", "b-key", "b-setting"),
        "At 20 o'clock a new run goes by road",
    ),
    Wrong(
        "05_leaks",
        "the pin is a constant, and the prize isn't",
        {"b-steady": one_line(f"pin = {PIN}", "pin = 123456")},
        ("b-chance",),
        "in each run anew",
    ),
    Wrong(
        "05_leaks",
        "only what has random in its name is random",
        {"a-letters": [('"b": "set order"', '"b": "fine"'), ('"g": "fine"', '"g": "random"')]},
        ("a-first-four", "a-last-four"),
        "Each process puts a set of strings into an order of its own",
    ),
    Wrong(
        "05_leaks",
        "a value computed in the workflow leaks",
        {"a-letters": one_line('"d": "fine"', '"d": "clock"')},
        ("a-first-four",),
        "Arithmetic on a recorded value",
    ),
    Wrong(
        "05_leaks",
        "the bank honours keys, so there is one charge",
        {"a-silent-answer": one_line("charges = 2", "charges = 1")},
        ("a-silent",),
        "the bank can't know the repeat",
    ),
    Wrong(
        "05_leaks",
        "the last draw is the silent one",
        {"a-silent-answer": one_line('silent = "e"', 'silent = "h"')},
        ("a-silent",),
        "those are compared",
    ),
    Wrong(
        "05_leaks",
        "everything stays wrapped",
        {"c-lean": one_line("sorted(order[", 'ctx.step("items", sorted, order[')},
        ("c-cap", "c-elsewhere"),
        "needs no record",
    ),
    Wrong(
        "05_leaks",
        "an hour is arithmetic on the input",
        {
            "c-lean": one_line(
                'ctx.step("hour", local_hour, order["placed_s"])', 'local_hour(order["placed_s"])'
            )
        },
        ("c-elsewhere",),
        "depends on the time zone",
    ),
    Wrong(
        "05_leaks",
        "prices are looked up without a record",
        {"c-lean": one_line('ctx.step(f"price {item}", ask_price, item)', "ask_price(item)")},
        ("c-elsewhere",),
        "Too lean",
    ),
    Wrong(
        "05_leaks",
        "the rate is a constant",
        {
            "c-lean": one_line(
                'int(ctx.step("rate", os.environ.get, "VAT_PERCENT", "20"))',
                'int(os.environ.get("VAT_PERCENT", "20"))',
            )
        },
        ("c-elsewhere",),
        "Too lean",
    ),
)

PATCH = '    if ctx.patched("fraud-check"):\n'
CHECK = '        if ctx.step("check_fraud", check_fraud, order):\n            return "refused"\n'
CHARGE = '    ctx.effect("charge", world.charge, order, price)\n'
NAMED = CHECK.replace("if ctx.step", "stolen = ctx.step").replace(
    "order):", "order)\n        if stolen:"
)
PLAIN_CHECK = CHECK.replace("        if", "    if").replace("            return", "        return")
STRANDED = "[orphan.run_id for orphan in Engine(journal, [upgrade_retired]).orphans()]"
IN_FLIGHT = (
    "[run.run_id for run in Engine(journal, [upgrade_retired]).runs()\n"
    "                if run.status not in ('completed', 'failed', 'cancelled')"
)
MARKERS = "[e.payload['result'] for e in Engine(journal).history(run.run_id) if e.kind == 'patch']"
B_ALL = ("b-new-run", "b-past-the-charge", "b-waiting", "b-crash-window")

FRAUD = (
    Wrong(
        "06_fraud_check",
        "a charge in its window stops replay",
        {"a-naive": one_line('"r-2": "too late"', '"r-2": "stopped"')},
        ("a-not-yet",),
        "What isn't on record can't be compared",
    ),
    Wrong(
        "06_fraud_check",
        "whatever the journal has, new code goes on",
        {"a-naive": one_line('"r-3": "stopped"', '"r-3": "too late"')},
        ("a-past-the-charge",),
        "they don't fit",
    ),
    Wrong(
        "06_fraud_check",
        "every old run is stopped",
        {
            "a-naive": one_line(
                '"r-1": "in time", "r-2": "too late"', '"r-1": "stopped", "r-2": "stopped"'
            )
        },
        ("a-not-yet",),
        "What isn't on record can't be compared",
    ),
    Wrong(
        "06_fraud_check",
        "who hasn't come to the place yet takes the new path",
        {"a-patch": one_line('"r-1": False', '"r-1": True')},
        ("a-who-is-checked",),
        "The admission decides",
    ),
    Wrong(
        "06_fraud_check",
        "one line more, without a patch",
        {"b-upgrade-patched": one_line(PATCH + CHECK, PLAIN_CHECK)},
        ("b-past-the-charge", "b-waiting", "b-crash-window", "c-old-run-wakes"),
        "A run that was charged before the deploy ends as it began",
    ),
    Wrong(
        "06_fraud_check",
        "a new version in the place of the old one",
        {"b-upgrade-patched": [('version="1"', 'version="2"'), (PATCH + CHECK, PLAIN_CHECK)]},
        ("b-past-the-charge", "b-waiting", "b-crash-window", "c-new-runs", "c-old-run-wakes"),
        "A run that was charged before the deploy ends as it began",
    ),
    Wrong(
        "06_fraud_check",
        "the check comes behind the charge",
        {"b-upgrade-patched": one_line(PATCH + CHECK + CHARGE, CHARGE + PATCH + CHECK)},
        ("b-new-run", "c-new-runs", "c-old-run-wakes"),
        "is checked, then charged",
    ),
    Wrong(
        "06_fraud_check",
        "the charge gets a key of its own",
        {
            "b-upgrade-patched": one_line(
                'order, price)\n    ctx.wait_signal("act',
                'order, price, key=f"{ctx.run_id}/checked")\n    ctx.wait_signal("act',
            )
        },
        ("b-crash-window",),
        "name and key of the charge have to stay",
    ),
    Wrong(
        "06_fraud_check",
        "the verdict is recorded, and nobody reads it",
        {
            "b-upgrade-patched": one_line(
                CHECK, '        ctx.step("check_fraud", check_fraud, order)\n'
            )
        },
        ("b-new-run",),
        "A stolen card isn't charged",
    ),
    Wrong(
        "06_fraud_check",
        "the marker is deleted after deploying: nobody is asked",
        {"c-stranded": one_line(STRANDED, "[]")},
        ("c-old-run-wakes",),
        "A patch dies with its last journal",
    ),
    Wrong(
        "06_fraud_check",
        "old is who has a recorded no",
        {"c-stranded": one_line(STRANDED, f"{IN_FLIGHT} and False in {MARKERS}]")},
        ("c-old-run-wakes",),
        "A patch dies with its last journal",
    ),
    Wrong(
        "06_fraud_check",
        "old is who has no recorded yes",
        {"c-stranded": one_line(STRANDED, f"{IN_FLIGHT} and True not in {MARKERS}]")},
        ("c-new-runs", "c-old-run-wakes"),
        "asked or not",
    ),
    Wrong(
        "06_fraud_check",
        "every run in flight is in the way",
        {"c-stranded": one_line(STRANDED, f"{IN_FLIGHT}]")},
        ("c-new-runs", "c-old-run-wakes"),
        "asked or not",
    ),
    Wrong(
        "06_fraud_check",
        "the check goes with the patch",
        {"c-retired": one_line(PLAIN_CHECK, "")},
        ("c-new-runs", "c-old-run-wakes"),
        "asked or not",
    ),
    Wrong(
        "06_fraud_check",
        "the mean of one run",
        {"c-days": one_line("(1 - (1 - ends) ** days) ** runs < wanted", "days < 1 / ends")},
        ("c-slowest",),
        "All have ended if each one has",
    ),
    Wrong(
        "06_fraud_check",
        "chances are added up",
        {
            "c-days": one_line(
                "(1 - (1 - ends) ** days) ** runs < wanted",
                "runs * (1 - ends) ** days > 1 - wanted",
            )
        },
        ("c-slowest",),
        "the chances are multiplied",
    ),
)

ALL = (*PHASES, *LEAKS, *FRAUD)

FOLLOWED = """\
    before, _, after = weights
    total = 0.0
    for costs in phases:
        here = [1.0] + [0.0] * (len(costs) - 1)
        for _ in range(5_000):
            total += sum(c * chance for c, chance in zip(costs, here)) * (1 - before * p)
            back = p * (sum(here) - after * here[-1])
            here = [back, *(chance * (1 - p) for chance in here[:-1])]
    return total
"""
OTHERWISE = (
    Wrong(
        "04_phases",
        "futures are followed, and spreads are those of the sample",
        {
            "b-closed-form": f"""\
# exercise: b-closed-form
def expected_cost(p, phases, weights):
{FOLLOWED}""",
            "c-distance": one_line("stdev(costs) /", "pstdev(costs) /")
            + one_line("mean, stdev", "mean, pstdev"),
            "d-runs": [
                ("variance(", "pvariance("),
                ("NormalDist, mean, variance", "NormalDist, mean, pvariance"),
            ],
        },
        (),
        "",
    ),
    Wrong(
        "05_leaks",
        "everything in steps, a recorded uuid, a sorted set",
        {
            "b-steady": [
                ("ctx.now()", 'ctx.step("clock", machine_clock)'),
                (TAGS, 'ctx.step("tags", list, set(order["tags"]))'),
                (KEY, 'order["id"], total, key=f"{order[\'id\']}/{ctx.uuid()}")'),
                (PIN, 'ctx.step("by chance", random.randrange, 1_000_000)'),
            ],
            "c-lean": one_line(
                'ctx.step(f"price {item}", ask_price, item) for item in sorted(order["items"])',
                'ctx.step("prices", lambda: [ask_price(item) for item in order["items"]])',
            ),
        },
        (),
        "",
    ),
    Wrong(
        "05_leaks",
        "a key that is the order's number",
        {"b-steady": one_line(KEY, 'order["id"], total, key=order["id"])')},
        (),
        "",
    ),
    Wrong(
        "05_leaks",
        "dice of the run's own, drawn from between steps only",
        {
            "b-steady": [
                (HOUR, f"dice = random.Random(ctx.run_id + order['id'])\n    {HOUR}"),
                (PIN, "dice.randrange(1_000_000)"),
            ]
        },
        (),
        "",
    ),
    Wrong(
        "06_fraud_check",
        "another name of the patch, the branches the other way round, a formula for the days",
        {
            "b-upgrade-patched": [("fraud-check", "no stolen cards"), (CHECK, NAMED)],
            "c-retired": one_line(PLAIN_CHECK, NAMED.replace("\n    ", "\n")[4:]),
            "c-days": """\
# exercise: c-days
from math import ceil, log


def days_to_wait(runs, ends, wanted):
    return max(0, ceil(log(1 - wanted ** (1 / runs)) / log(1 - ends)))
""",
        },
        (),
        "",
    ),
)
"""Right answers that the solution didn't think of."""


# ---- graded in this process --------------------------------------------------------------------


def cells_of(name: str, wrong: Wrong | None = None, stub: bool = False) -> list[Any]:
    """The code cells of a solution, of its exercise, or with a wrong answer in it."""
    notebook = notebooks.read(SOLUTIONS / f"{name}.ipynb")
    notebook = source.exercise_from(notebook, name) if stub else notebook
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for cell in cells if wrong else ():
        change = wrong.cells.get(cell.id, [])
        if isinstance(change, str):
            cell.source = change
        for old, new in change if isinstance(change, list) else ():
            assert old in cell.source, (cell.id, old)
            cell.source = cell.source.replace(old, new)
    return cells


class Notebook:
    """A notebook without a kernel: its cells are executed here, and the checks ask `Here`.

    Predictions and their comparisons are left out, as are checks of other questions.
    """

    def __init__(self, cells: list[Any], questions: set[str]) -> None:
        self.names: dict[str, Any] = {"__name__": "__main__"}
        self.executed: list[str] = []
        self.cells = [
            cell
            for cell in cells
            if not cell.metadata.get("jupyter")
            and (not source.is_check(cell) or source.question_of(cell.id) in questions)
        ]

    def missed(self) -> dict[str, str]:
        """Execute all; what each check missed, "" if nothing."""
        found: dict[str, str] = {}
        for number, cell in enumerate(self.cells):
            try:
                self.execute(cell.source, f"<cell-{id(self)}-{number}>")
            except Missed as missed:
                found[cell.id] = str(missed)
            except Exception as error:
                if not source.is_answer(cell) and "checks-only" not in cell.metadata.get(
                    "tags", ()
                ):
                    raise AssertionError(f"{cell.id}: {error!r}") from error
            else:
                if source.is_check(cell):
                    found[cell.id] = ""
        return found

    def execute(self, text: str, file: str) -> None:
        linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
        self.executed.append(text)
        exec(compile(text, file, "exec", dont_inherit=True), self.names)


Grade = Callable[..., dict[str, str]]


@pytest.fixture
def graded(monkeypatch: pytest.MonkeyPatch) -> Grade:
    """What each check of a notebook misses."""

    def grade(cells: list[Any], questions: str = "abcd") -> dict[str, str]:
        book = Notebook(cells, set(questions))
        monkeypatch.setenv("MACHINE_CLOCK", "57600")  # 05 sets it if it isn't there
        monkeypatch.setattr(
            exercise, "backend_for", lambda _: Here(book.names, lambda: book.executed)
        )
        with redirect_stdout(StringIO()):
            return book.missed()

    return grade


def worth(name: str) -> dict[str, float]:
    """The points of each check."""
    return {cell.id: source.points(cell) for cell in cells_of(name) if source.is_check(cell)}


def told(missed: dict[str, str]) -> set[str]:
    return {check for check, text in missed.items() if text}


@pytest.mark.parametrize("name", NAMES)
def test_exercise_is_worth_ten_points(name: str) -> None:
    assert sum(worth(name).values()) == 10


@pytest.mark.parametrize("name", NAMES)
def test_every_part_has_three_wrong_answers(name: str) -> None:
    parts = {source.question_of(check) for check in worth(name)}
    for part in parts:
        hit = [
            wrong
            for wrong in ALL
            if wrong.exercise == name and part in map(source.question_of, wrong.lost)
        ]
        assert len(hit) >= 3, part


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_solution_misses_nothing(name: str, graded: Grade) -> None:
    assert graded(cells_of(name)) == dict.fromkeys(worth(name), "")


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_stub_gets_nothing(name: str, graded: Grade) -> None:
    visible = {
        cell.id for cell in cells_of(name) if source.is_check(cell) and not source.is_hidden(cell)
    }
    assert told(graded(cells_of(name, stub=True))) == visible


@pytest.mark.slow
@pytest.mark.parametrize("wrong", ALL, ids=lambda wrong: f"{wrong.exercise[:2]}-{wrong.what}")
def test_wrong_answer_loses_its_points(wrong: Wrong, graded: Grade) -> None:
    touched = "".join(source.question_of(name) for name in (*wrong.cells, *wrong.lost))
    missed = graded(cells_of(wrong.exercise, wrong), touched)
    assert told(missed) == set(wrong.lost)
    assert wrong.reason in missed[wrong.lost[0]]


@pytest.mark.slow
@pytest.mark.parametrize("right", OTHERWISE, ids=lambda right: f"{right.exercise[:2]}-{right.what}")
def test_right_answer_of_another_kind_misses_nothing(right: Wrong, graded: Grade) -> None:
    touched = "".join(source.question_of(name) for name in right.cells)
    assert told(graded(cells_of(right.exercise, right), touched)) == set()


# ---- graded as a class is ----------------------------------------------------------------------


def tempting(name: str) -> list[Wrong]:
    """The first wrong answer of each part."""
    first = dict[str, Wrong]()
    for wrong in ALL:
        if wrong.exercise == name:
            first.setdefault(source.question_of(next(iter(wrong.cells))), wrong)
    return list(first.values())


def hand_in(folder: Path, name: str, wrongs: list[Wrong]) -> HandIn:
    """A file as somebody hands it in: with these wrong answers, and right ones otherwise."""
    whole = notebooks.read(SOLUTIONS / f"{name}.ipynb")
    notebook = source.exercise_from(whole, name)
    answers = {
        cell.id: cell.source
        for wrong in wrongs
        for cell in cells_of(name, wrong)
        if cell.id in wrong.cells
    }
    for cell, solved in zip(notebook.cells, whole.cells, strict=True):
        if source.is_answer(cell):
            cell.source = answers.get(cell.id, solved.source)
    path = folder / f"{name}.ipynb"
    nbformat.write(notebook, path)
    return HandIn(path, path.name, "", name)


def notes(submission: Submission) -> dict[str, str]:
    """What each lost check says."""
    return {mark.name: mark.note for mark in submission.checks if mark.points < mark.max_points}


@pytest.mark.slow
def test_grader_marks_as_a_notebook_does(tmp_path: Path) -> None:
    """Follow-through: a wrong answer to an earlier part costs nothing in a later one."""
    files = [hand_in(tmp_path, name, tempting(name)) for name in NAMES]
    for name, marked in zip(NAMES, grade_all(files, seed=3), strict=True):
        own = {
            check: wrong
            for wrong in tempting(name)
            for check in wrong.lost
            if source.question_of(check) in map(source.question_of, wrong.cells)
        }
        assert notes(marked).keys() == own.keys()
        assert all(wrong.reason in notes(marked)[wrong.lost[0]] for wrong in own.values())


@pytest.mark.slow
def test_drawn_in_a_step_and_keyed_by_the_order_has_every_point_when_graded(tmp_path: Path) -> None:
    rights = [right for right in OTHERWISE if right.exercise == "05_leaks"][:2]
    (steps, keyed) = (
        hand_in(folder, "05_leaks", [right])
        for right, folder in zip(rights, folders(tmp_path), strict=False)
    )
    assert [notes(marked) for marked in grade_all([steps, keyed])] == [{}, {}]


@pytest.mark.slow
def test_retired_code_is_held_against_the_own_patch(tmp_path: Path) -> None:
    """A patch that is right for part B stays when part C is marked, whatever C lost."""
    loop = CHECK.replace("\n", "\n    ").rstrip(" ")
    pair = Wrong(
        "06_fraud_check",
        "the patch has the check in a loop, the retired code hasn't",
        {
            "b-upgrade-patched": one_line(CHECK, f"        for _ in range(1):\n    {loop}"),
            "c-days": one_line("(1 - (1 - ends) ** days) ** runs < wanted", "days < 1 / ends"),
        },
        ("c-new-runs", "c-old-run-wakes", "c-slowest"),
        "asked or not",
    )
    (marked,) = grade_all([hand_in(tmp_path, "06_fraud_check", [pair])])
    assert set(notes(marked)) == set(pair.lost)
    assert pair.reason in notes(marked)["c-new-runs"]
    assert "StructureChangedError" in notes(marked)["c-new-runs"]


def folders(path: Path) -> list[Path]:
    """Two folders, for files of the same name."""
    made = [path / "one", path / "two"]
    for folder in made:
        folder.mkdir()
    return made


# ---- what the checks take for true -------------------------------------------------------------


def test_futures_of_a_phase_cost_what_the_closed_form_says() -> None:
    """The hidden checks of 04 follow all futures; chapter 10 has a formula of its own."""
    cell = next(cell for cell in cells_of("04_phases") if cell.id == "b-before-only")
    names: dict[str, Any] = {}
    exec(cell.source.partition("with ex.check")[0], names)
    for p, weights in ((0.2, (1.0, 0.0, 0.0)), (0.29, (0.2, 0.5, 0.3)), (0.02, (0.0, 0.0, 1.0))):
        for costs in ((2.0,), (2.0, 2.0), (0.0, 3.0, 1.0, 2.0)):
            followed = names["all_futures"](p, costs, weights)
            assert followed == pytest.approx(exact_bill([costs], p, 0.0, weights=weights).total)


def test_set_of_tags_has_another_order_under_the_second_hash_seed() -> None:
    """Otherwise 05's check of another process would be passed by luck."""
    tags = '{"gift", "urgent", "refund", "lamp", "fragile", "express"}'
    first, second = orders(f"list({tags})", range(1, 3))
    assert first != second


def quote(order: str) -> int:
    return 40


def look(order: str) -> bool:
    return False


def charge(order: str, amount: int, *, idempotency_key: str) -> None:
    return None


deployed: dict[str, bool] = {}


@workflow(version="1")
def through_a_door(ctx: Any, order: str) -> None:
    """Where the structure hash can't look: the line is there or not, as it is deployed."""
    ctx.step("quote", quote, order)
    ctx.wait_signal("approved")
    if deployed["checks"]:
        do = ctx.step
        do("check_fraud", look, order)
    ctx.effect("charge", charge, order, 40)
    ctx.wait_signal("activated")


def fate(stage: str) -> list[str]:
    """What a run from before the line comes to: the calls that are made after its deploy."""
    deployed["checks"] = False
    journal = MemoryJournal()
    probe = CrashAt("charge", "window") if stage == "crash window" else None
    engine = Engine(journal, [through_a_door], probe=probe)
    engine.run(through_a_door, "o-1", run_id="r")
    if stage != "waiting":
        engine.signal("r", "approved", True)
        with suppress(InjectedCrash):
            engine.resume("r")
    before = len(engine.history("r"))
    deployed["checks"] = True
    engine = Engine(journal, [through_a_door])
    engine.signal("r", "approved", True)
    try:
        engine.resume("r")
    except NonDeterminismError:
        return ["stopped"]
    return [e.name for e in engine.history("r")[before:] if e.kind in ("step", "effect")]


def test_runs_in_flight_meet_the_new_line_as_the_solution_says() -> None:
    assert fate("waiting") == ["check_fraud", "charge"]  # in time
    assert fate("crash window") == ["check_fraud", "charge"]  # and the first charge has happened
    assert fate("charged") == ["stopped"]


@workflow(version="2", name="through_a_door")
def rewritten(ctx: Any, order: str) -> None:
    ctx.step("quote", quote, order)


def test_drive_deploys_one_version_alone(tmp_path: Path) -> None:
    deployed["checks"] = False
    path = str(tmp_path / "journal.db")
    both = [through_a_door, rewritten]
    assert drive(Drive("through_a_door", "o-1", path), through_a_door, both, None) is None
    stop = drive(Drive("rewritten", "o-1", path), rewritten, both, None)
    assert stop is not None and stop.type == "UnknownWorkflowError"
    with SQLiteJournal(path) as journal:
        assert [orphan.run_id for orphan in Engine(journal, [rewritten]).orphans()] == ["r-1"]
