"""Exercises 01 to 03: plausible wrong answers lose what they should, for the reason given."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import nbformat
import pytest
from answered import SOLUTIONS, checked

from durable_mini.lab import notebooks, stranger
from durable_mini.lab.ways_tried import TROUBLES, try_way
from durable_mini.school import grading, source
from durable_mini.school.marks import HandIn, Submission

NAMES = ("01_history", "02_replay", "03_keys")


class Wrong(NamedTuple):
    """An answer that somebody might well give.

    Attributes:
        exercise: of which.
        what: in a few words.
        answers: the answer cells that it replaces, by id.
        lost: the checks that it doesn't pass, each a point.
        reason: words of what the first of them says.
    """

    exercise: str
    what: str
    answers: dict[str, str]
    lost: tuple[str, ...]
    reason: str


def _labels(**changed: str) -> str:
    right = ["run", "settled", "open", "open", "settled"]
    right += ["settled", "run", "outside", "run", "open"]
    labels = {str(n): label for n, label in enumerate(right, 1)}
    labels |= {row.removeprefix("row"): label for row, label in changed.items()}
    return f"labels = {labels}"


NEXT = """
def next_step(history):
    steps = steps_of(history)
    {how}
"""

AGAIN = """
def made_over_again(history, called):
    {how}
"""

HISTORY = [
    Wrong(
        "01_history",
        "a step that failed for good isn't settled",
        {"q1-labels": _labels(row6="open")},
        ("q1-settled", "q1-open"),
        "or a failure for good",
    ),
    Wrong(
        "01_history",
        "each row of a step's name settles it",
        {"q1-labels": _labels(row3="settled", row4="settled", row10="settled")},
        ("q1-settled", "q1-open"),
        "if its outcome is in it",
    ),
    Wrong(
        "01_history",
        "None is no result",
        {"q1-labels": _labels(row5="open")},
        ("q1-settled", "q1-open"),
        "even None",
    ),
    Wrong(
        "01_history",
        "what the code was given came from outside",
        {"q1-labels": _labels(row9="outside")},
        ("q1-outside", "q1-run"),
        "another event",
    ),
    Wrong(
        "01_history",
        "events are counted",
        {
            "q2-next": NEXT.format(
                how="done = len(history) - 1; return steps[done] if done < len(steps) else None"
            )
        },
        ("q2-between", "q2-failed"),
        "Progress is recorded results, not rows",
    ),
    Wrong(
        "01_history",
        "a name that occurs is done",
        {
            "q2-next": NEXT.format(
                how="seen = [e['name'] for e in history]; "
                "return next((step for step in steps if step not in seen), None)"
            )
        },
        ("q2-between", "q2-failed"),
        "a noted undo lie between",
    ),
    Wrong(
        "01_history",
        "only a result is an outcome",
        {
            "q2-next": NEXT.format(
                how="done = sum(e['kind'] in ('step', 'effect') and 'result' in e['payload'] "
                "for e in history); return steps[done] if done < len(steps) else None"
            )
        },
        ("q2-failed",),
        "A failure for good is an outcome",
    ),
    Wrong(
        "01_history",
        "a result has to be true",
        {
            "q2-next": NEXT.format(
                how="told = [e['payload'] for e in history if e['kind'] in ('step', 'effect')]\n"
                "    done = sum(bool(p.get('result') or p.get('error')) for p in told)\n"
                "    return steps[done] if done < len(steps) else None"
            )
        },
        ("q2-between", "q2-failed"),
        "Progress is recorded results",
    ),
    Wrong(
        "01_history",
        "the charge has happened, so it isn't called again",
        {"q3-said": "next_calls = ['ship']\noffers_if_begun_anew, charges_if_begun_anew = 2, 2"},
        ("q3-takeover",),
        "even if it has happened before",
    ),
    Wrong(
        "01_history",
        "the key saves whoever starts over",
        {
            "q3-said": "next_calls = ['charge', 'ship']\n"
            "offers_if_begun_anew, charges_if_begun_anew = 2, 1"
        },
        ("q3-takeover",),
        "its keys are others",
    ),
    Wrong(
        "01_history",
        "the next step is what happens again, if it was called",
        {
            "q3-again": AGAIN.format(
                how="step = next_step(history); return [step] if step in called else []"
            )
        },
        ("q3-everywhere",),
        "A failed try has its row",
    ),
    Wrong(
        "01_history",
        "a name in the history is on record",
        {
            "q3-again": AGAIN.format(
                how="names = [e['name'] for e in history]; "
                "return [name for name in called if name not in names]"
            )
        },
        ("q3-everywhere",),
        "count outcomes, not names",
    ),
    Wrong(
        "01_history",
        "whatever was called last",
        {"q3-again": AGAIN.format(how="return called[-1:]")},
        ("q3-agent", "q3-everywhere"),
        "isn't recorded is done again",
    ),
]

BY_PLACE = """
class ByPlace:
    def __init__(self, journal):
        self.journal, self.place = journal, 0

    def step(self, name, fn, *args):
        if {blank_1}:
            self.journal.append({{"step": name, "result": fn(*args)}})
        record = self.journal[self.place]
        if {blank_2}:
            raise NonDeterminism(f"the journal has {{record['step']}}, not {{name}}")
        {blank_3}
        return record["result"]
"""
FILLED = {
    "blank_1": "self.place == len(self.journal)",
    "blank_2": "record['step'] != name",
    "blank_3": "self.place += 1",
}

PERFORM = """
def perform(journal, key, fn, *args):
    {how}
"""

FAIL = """
def perform_or_fail(journal, key, fn, *args):
    if key not in journal:
        try:
            record = {{"result": fn(*args)}}
        except {what} as error:
            {then}
        journal[key] = json.dumps(record)
    record = json.loads(journal[key])
    if {failed}:
        raise StepFailed(*record["error"])
    return record["result"]
"""
FAILS = {
    "what": "Exception",
    "then": "record = {'error': [type(error).__name__, str(error)]}",
    "failed": "'error' in record",
}

KEY = """
def key_of(asked, name):
    asked[name] = asked.get(name, 0) + 1
    {how}
"""

REPLAY = [
    Wrong(
        "02_replay",
        "a resumed run makes no call twice",
        {"q1-bill": "started_over, resumed = 12, 7"},
        ("q1-bill-both",),
        "repeats only what has no record",
    ),
    Wrong(
        "02_replay",
        "starting over costs one run",
        {"q1-bill": "started_over, resumed = 7, 8"},
        ("q1-bill-both",),
        "Starting over repeats all that is done",
    ),
    Wrong(
        "02_replay",
        "the names aren't compared",
        {"q1-blanks": BY_PLACE.format(**FILLED | {"blank_2": "not record"})},
        ("q1-blanks-place",),
        "the name has to say whether",
    ),
    Wrong(
        "02_replay",
        "the place stands still",
        {"q1-blanks": BY_PLACE.format(**FILLED | {"blank_3": "pass"})},
        ("q1-blanks-place",),
        "NonDeterminism",
    ),
    Wrong(
        "02_replay",
        "each call is live",
        {"q1-blanks": BY_PLACE.format(**FILLED | {"blank_1": "True"})},
        ("q1-blanks-place",),
        "NonDeterminism",
    ),
    Wrong(
        "02_replay",
        "journal.get(key) or fn()",
        {
            "q2-perform": PERFORM.format(
                how="journal[key] = journal.get(key) or json.loads(json.dumps(fn(*args)))\n"
                "    return journal[key]"
            )
        },
        ("q2-perform-empty",),
        "Recorded isn't truthy",
    ),
    Wrong(
        "02_replay",
        "None for no record",
        {
            "q2-perform": PERFORM.format(
                how="if journal.get(key) is None:\n"
                "        journal[key] = json.loads(json.dumps(fn(*args)))\n"
                "    return journal[key]"
            )
        },
        ("q2-perform-empty",),
        "None, False and an empty list are results",
    ),
    Wrong(
        "02_replay",
        "what was returned is handed out",
        {
            "q2-perform": PERFORM.format(
                how="if key not in journal: journal[key] = fn(*args)\n    return journal[key]"
            )
        },
        ("q2-perform-alike",),
        "Live equals replay",
    ),
    Wrong(
        "02_replay",
        "recorded as done before it is done",
        {
            "q2-perform": PERFORM.format(
                how="if key not in journal:\n"
                "        journal[key] = 'null'\n"
                "        journal[key] = json.dumps(fn(*args))\n"
                "    return json.loads(journal[key])"
            )
        },
        ("q2-perform-window",),
        "what an undisturbed one would have seen",
    ),
    Wrong(
        "02_replay",
        "done without the result",
        {
            "q2-perform": PERFORM.format(
                how="if key in journal: return None\n"
                "    journal[key] = True\n"
                "    return json.loads(json.dumps(fn(*args)))"
            )
        },
        (
            "q2-perform-after",
            "q2-perform-window",
            "q2-perform-empty",
            "q2-perform-alike",
            "q4-key-twice",
            "q4-key-alike",
        ),
        "what an undisturbed one would have seen",
    ),
    Wrong(
        "02_replay",
        "a kill is a failure",
        {"q3-failures": FAIL.format(**FAILS | {"what": "BaseException"})},
        ("q3-failures-killed",),
        "A kill is no failure of the step",
    ),
    Wrong(
        "02_replay",
        "a failure is raised and not recorded",
        {
            "q3-failures": FAIL.format(
                **FAILS | {"then": "raise StepFailed(type(error).__name__, str(error))"}
            )
        },
        ("q3-failures-once", "q3-failures-killed"),
        "replay gives the same answer",
    ),
    Wrong(
        "02_replay",
        "live raises what the function raised",
        {
            "q3-failures": FAIL.format(
                **FAILS
                | {
                    "then": "record = {'error': [type(error).__name__, str(error)]}\n"
                    "            journal[key] = json.dumps(record)\n"
                    "            raise"
                }
            )
        },
        ("q3-failures-once", "q3-failures-killed"),
        "LookupError",
    ),
    Wrong(
        "02_replay",
        "a failure is known by its message",
        {
            "q3-failures": FAIL.format(
                **FAILS
                | {
                    "then": "record = {'result': 0, 'error': [type(error).__name__, str(error)]}",
                    "failed": "record.get('error', ['', ''])[1]",
                }
            )
        },
        ("q3-failures-once",),
        "with the type and message",
    ),
    Wrong(
        "02_replay",
        "a result is handed out as it came, and a failure from the record",
        {
            "q3-failures": FAIL.format(**FAILS)
            .replace("json.dumps(record)", "record")
            .replace("json.loads(journal[key])", "journal[key]")
        },
        ("q3-failures-killed",),
        "hand out and raise what was written",
    ),
    Wrong(
        "02_replay",
        "a failure is a list that begins with a word",
        {
            "q3-failures": """
def perform_or_fail(journal, key, fn, *args):
    if key not in journal:
        try:
            journal[key] = json.dumps(fn(*args))
        except Exception as error:
            journal[key] = json.dumps(["failed", type(error).__name__, str(error)])
    record = json.loads(journal[key])
    if isinstance(record, list) and record[:1] == ["failed"]:
        raise StepFailed(*record[1:])
    return record
"""
        },
        ("q3-failures-killed",),
        "keep apart from it what says that it failed",
    ),
    Wrong(
        "02_replay",
        "the name is the key",
        {"q4-key": KEY.format(how="return name")},
        ("q4-key-twice", "q4-key-alike"),
        "what an undisturbed one would have seen",
    ),
    Wrong(
        "02_replay",
        "calls are counted over attempts",
        {
            "q4-key": "from collections import Counter\nCOUNTED = Counter()\n\n"
            "def key_of(asked, name):\n"
            "    COUNTED[name] += 1\n"
            "    return json.dumps([name, COUNTED[name]])\n"
        },
        ("q4-key-twice", "q4-key-alike"),
        "finds it again in the next attempt",
    ),
    Wrong(
        "02_replay",
        "#2 from the second on",
        {"q4-key": KEY.format(how="return name + f'#{asked[name]}' * (asked[name] > 1)")},
        ("q4-key-alike",),
        "Two different calls never share a record",
    ),
    Wrong(
        "02_replay",
        "name and number without anything between",
        {"q4-key": KEY.format(how="return f'{name}{asked[name]}'")},
        ("q4-key-alike",),
        "Two different calls never share a record",
    ),
]


def _mails(restart: str = "122", journal: str = "121", key: str = "111", ran: str = "121") -> str:
    def placed(numbers: str) -> dict[str, int]:
        return dict(zip(("before", "window", "after"), map(int, numbers), strict=True))

    mails = {"restart": placed(restart), "journal": placed(journal), "journal+key": placed(key)}
    return f"mails = {mails}\nexecuted_with_key = {placed(ran)}"


PAY = """
@workflow(version="1")
def pay(ctx, order):
    {how}
"""

KEY_FOR = """
from hashlib import sha256

def key_for(order, step, part):
    {how}
"""

CAREFUL = """
def charge_unless_there(order, *, idempotency_key):
    if not {found}:
        world.charge({reference}, order["amount"], idempotency_key=idempotency_key)

@workflow(version="1")
def careful(ctx, order):
    {how}
    ctx.effect("charge", {fn}, order)
"""
CARES = {
    "found": "world.look_up(order['number'], 'charge')",
    "reference": "order['number']",
    "how": "pass",
    "fn": "charge_unless_there",
}

KEYS = [
    Wrong(
        "03_keys",
        "a journal gives exactly-once",
        {"q1-mails": _mails(journal="111")},
        ("q1-mails-journal",),
        "A journal gives no exactly-once",
    ),
    Wrong(
        "03_keys",
        "a key stops the execution",
        {"q1-mails": _mails(ran="111")},
        ("q1-mails-key",),
        "A key stops no execution",
    ),
    Wrong(
        "03_keys",
        "starting over repeats only what wasn't recorded",
        {"q1-mails": _mails(restart="121")},
        ("q1-mails-restart",),
        "recorded or not",
    ),
    Wrong(
        "03_keys",
        "still a step with a uuid",
        {"q2-pay": PAY.format(how="return ctx.step('charge', charge_under_own_key, order)")},
        ("q2-pay-window",),
        "drawn anew in each attempt",
    ),
    Wrong(
        "03_keys",
        "an effect with a uuid",
        {
            "q2-pay": PAY.format(
                how="return ctx.effect('charge', world.charge, order['number'], order['amount'],"
                " key=str(uuid4()))"
            )
        },
        ("q2-pay-window",),
        "drawn anew in each attempt",
    ),
    Wrong(
        "03_keys",
        "a step with one key for all",
        {
            "q2-pay": "def charge_it(order):\n"
            "    return world.charge('o-1', 40, idempotency_key='charge')\n\n"
            + PAY.format(how="return ctx.step('charge', charge_it, order)")
        },
        ("q2-pay-window",),
        "its number, its amount",
    ),
    Wrong(
        "03_keys",
        "a step with a key of its own",
        {
            "q2-pay": "def charge_it(order):\n"
            "    number = order['number']\n"
            "    return world.charge(number, order['amount'], idempotency_key=f'{number}/charge')\n"
            + PAY.format(how="return ctx.step('charge', charge_it, order)")
        },
        ("q2-pay-window",),
        "The engine makes a key",
    ),
    Wrong(
        "03_keys",
        "payload hash",
        {
            "q3-key": KEY_FOR.format(
                how="return sha256(repr([order['customer'], order['amount'], step]).encode())"
                ".hexdigest()"
            )
        },
        ("q3-key-wishes", "q3-key-again"),
        "2 charges wanted, 1 booked",
    ),
    Wrong(
        "03_keys",
        "the bare step name",
        {"q3-key": KEY_FOR.format(how="return step")},
        ("q3-key-wishes", "q3-key-again"),
        "2 charges wanted, 1 booked",
    ),
    Wrong(
        "03_keys",
        "the amount belongs to the key",
        {
            "q3-key": KEY_FOR.format(
                how="return f\"{order['number']}/{step}/{part}/{order['amount']}\""
            )
        },
        ("q3-key-again",),
        "One order is one wish",
    ),
    Wrong(
        "03_keys",
        "no counter",
        {"q3-key": KEY_FOR.format(how="return f\"{order['number']}/{step}\"")},
        ("q3-key-wishes", "q3-key-again"),
        "charges wanted, 2 booked",
    ),
    Wrong(
        "03_keys",
        "nothing between number and part",
        {"q3-key": KEY_FOR.format(how="return f\"{step}/{order['number']}{part}\"")},
        ("q3-key-wishes",),
        "charges wanted",
    ),
    Wrong(
        "03_keys",
        "no step",
        {"q3-key": KEY_FOR.format(how="return f\"{order['number']}/{part}\"")},
        ("q3-key-window", "q3-key-wishes"),
        "another step needs another one",
    ),
    Wrong(
        "03_keys",
        "drawn anew",
        {"q3-key": KEY_FOR.format(how="return str(uuid4())")},
        ("q3-key-window", "q3-key-again"),
        "Each attempt has to make the same key",
    ),
    Wrong(
        "03_keys",
        "hash() of what belongs into the key",
        {"q3-key": KEY_FOR.format(how="return str(hash((order['number'], step, part)))")},
        ("q3-key-again",),
        "hash() differs there",
    ),
    Wrong(
        "03_keys",
        "a key is enough",
        {"q4-careful": CAREFUL.format(**CARES | {"found": "None"})},
        ("q4-careful-window", "q4-careful-own"),
        "The question belongs into the attempt",
    ),
    Wrong(
        "03_keys",
        "asked in a step",
        {
            "q4-careful": """
@workflow(version="1")
def careful(ctx, order):
    if not ctx.step("look", world.look_up, order["number"], "charge"):
        ctx.effect("charge", world.charge, order["number"], order["amount"])
"""
        },
        ("q4-careful-window", "q4-careful-own"),
        "what a step recorded is old",
    ),
    Wrong(
        "03_keys",
        "asked by the workflow itself",
        {
            "q4-careful": """
@workflow(version="1")
def careful(ctx, order):
    if not world.look_up(order["number"], "charge"):
        ctx.effect("charge", world.charge, order["number"], order["amount"])
"""
        },
        ("q4-careful-window",),
        "decides inside of the effect",
    ),
    Wrong(
        "03_keys",
        "asked by the customer's name",
        {
            "q4-careful": CAREFUL.format(
                **CARES
                | {
                    "found": "world.look_up(order['customer'], 'charge')",
                    "reference": "order['customer']",
                }
            )
        },
        ("q4-careful-own",),
        "another one of the customer's is no answer",
    ),
    Wrong(
        "03_keys",
        "anything under the number will do",
        {"q4-careful": CAREFUL.format(**CARES | {"found": "world.look_up(order['number'])"})},
        ("q4-careful-own",),
        "nor is a notice",
    ),
    Wrong(
        "03_keys",
        "asking first closes everything",
        {"q5-open": "charges = dict(dies_before=1, dies_after=1, request_late=1, two_at_once=1)"},
        ("q5-open-all",),
        "late requests and a second worker slip through",
    ),
    Wrong(
        "03_keys",
        "whoever died has charged",
        {"q5-open": "charges = dict(dies_before=1, dies_after=2, request_late=2, two_at_once=2)"},
        ("q5-open-all",),
        "helps while the answer is true",
    ),
    Wrong(
        "03_keys",
        "two workers are no trouble",
        {"q5-open": "charges = dict(dies_before=1, dies_after=1, request_late=2, two_at_once=1)"},
        ("q5-open-all",),
        "a second worker slip through",
    ),
]

# ---- answers that are right, and not the solution's ---------------------------------------------

RIGHT = {
    "01_history": {
        "q2-next": """
def next_step(history):
    done = [e["name"] for e in history if e["kind"] not in
            ("admitted", "try", "wait", "signal", "received", "compensate", "completed")]
    for step in steps_of(history):
        if step not in done:
            return step
""",
        "q3-again": """
def made_over_again(history, called):
    return called[len([e for e in history if "error" in e["payload"]
                       or e["kind"] in ("step", "effect")]):]
""",
        "q1-labels": _labels().replace("'", '"'),
    },
    "02_replay": {
        "q1-blanks": BY_PLACE.format(
            blank_1="not self.journal[self.place :]",
            blank_2="not record['step'] == name",
            blank_3="self.place = self.place + 1",
        ),
        "q2-perform": """
def perform(journal, key, fn, *args):
    try:
        return journal[key]["gave"]
    except KeyError:
        pass
    gave = json.loads(json.dumps(fn(*args)))
    journal[key] = {"gave": gave, "of": list(args)}
    print("a stray line")
    return gave
""",
        "q3-failures": """
def perform_or_fail(journal, key, fn, *args):
    if key not in journal:
        try:
            journal[key] = [True, json.loads(json.dumps(fn(*args))), None]
        except Exception as e:
            journal[key] = [False, type(e).__name__, str(e)]
    good, first, second = journal[key]
    if good:
        return first
    raise StepFailed(first, second)
""",
        "q4-key": """
def key_of(asked, name):
    number = asked["calls"] = asked.get("calls", 0) + 1
    return str(number)
""",
    },
    "03_keys": {
        "q2-pay": """
@workflow(version="1", name="another name")
def pay(ctx, order):
    def charge(number, amount, idempotency_key):
        return {"receipt": world.post("charge", number, amount, idempotency_key)}

    return ctx.effect("the charge", charge, order["number"], order["amount"])
""",
        "q3-key": KEY_FOR.format(
            how="return sha256(repr((order['number'], step, part)).encode()).hexdigest()"
        ),
        "q4-careful": """
def once(number, amount, *, idempotency_key):
    for row in world.look_up(number):
        if row.endpoint == "charge":
            return row.key
    world.charge(number, amount, idempotency_key="any")
    return "any"

@workflow(version="7")
def careful(ctx, order):
    ctx.step("look at it", str, order)
    return ctx.effect("charge", once, "shop/" + order["number"], order["amount"])
""",
    },
}


WRONG = [*HISTORY, *REPLAY, *KEYS]


@pytest.mark.parametrize("name", NAMES)
def test_solution_has_every_point_and_stub_none(name: str) -> None:
    solved, blank = checked(name), checked(name, stubs=True)
    assert (sum(points for points, _ in solved.values()), len(solved)) == (10, 10)
    assert [check for check, (points, _) in blank.items() if points] == []


@pytest.mark.parametrize("name", [*NAMES[:2], pytest.param("03_keys", marks=pytest.mark.slow)])
def test_right_answer_of_another_kind_has_every_point(name: str) -> None:
    assert {check: said for check, (_, said) in checked(name, RIGHT[name]).items() if said} == {}


def _rounds(name: str) -> list[list[Wrong]]:
    """The wrong answers of an exercise, put together where one can't hide another."""
    rounds: list[list[Wrong]] = []
    for wrong in (wrong for wrong in WRONG if wrong.exercise == name):
        free = [one for one in rounds if not any(_cells(wrong) & _cells(other) for other in one)]
        if free:
            free[0].append(wrong)
        else:
            rounds.append([wrong])
    return rounds


def _cells(wrong: Wrong) -> set[str]:
    return {*wrong.answers, *wrong.lost}


ROUNDS = [
    (name, number, together) for name in NAMES for number, together in enumerate(_rounds(name))
]


@pytest.mark.parametrize(
    ("name", "together"),
    [
        pytest.param(name, together, marks=pytest.mark.slow if name == "03_keys" else ())
        for name, _, together in ROUNDS
    ],
    ids=[f"{name}-{number}" for name, number, _ in ROUNDS],
)
def test_wrong_answer_loses_its_points_for_the_reason(name: str, together: list[Wrong]) -> None:
    marks = checked(name, {cell: text for one in together for cell, text in one.answers.items()})
    lost = {check: said for check, (points, said) in marks.items() if not points}
    assert set(lost) == {check for wrong in together for check in wrong.lost}, lost
    for wrong in together:
        assert wrong.reason in lost[wrong.lost[0]], wrong.what


@pytest.mark.slow
def test_tempting_answers_are_graded_as_in_the_notebook(tmp_path: Path) -> None:
    """The first round of each, for real; an earlier answer pulls no later question down."""
    rounds = {name: _rounds(name)[0] for name in NAMES}
    hand_ins = [handed_in(name, together, tmp_path) for name, together in rounds.items()]
    for one in grading.grade_all(hand_ins, seed=7, cell_timeout_s=10):
        assert_lost(one, rounds[one.exercise])


def assert_lost(graded: Submission, together: list[Wrong]) -> None:
    """Each wrong answer costs the points of its own question's checks, and says why."""
    notes = {check.name: check.note for check in graded.checks if not check.points}
    assert set(notes) == {check for wrong in together for check in wrong.lost if _own(wrong, check)}
    for wrong in together:
        assert wrong.reason in notes[wrong.lost[0]], wrong.what


def handed_in(name: str, together: list[Wrong], folder: Path) -> HandIn:
    """A notebook with these answers, and the solution's everywhere else."""
    solution = notebooks.read(SOLUTIONS / f"{name}.ipynb")
    answers = {cell.id: cell.source for cell in solution.cells if source.is_answer(cell)}
    for wrong in together:
        answers |= {cell: f"# exercise: {cell}\n{text}" for cell, text in wrong.answers.items()}
    notebook, path = source.exercise_from(solution, name), folder / f"{name}.ipynb"
    for cell in notebook.cells:
        cell.source = answers.get(cell.id, cell.source)
    nbformat.write(notebook, path)
    return HandIn(path, path.name, "ann", name)


def _own(wrong: Wrong, check: str) -> bool:
    return check.partition("-")[0] in {cell.partition("-")[0] for cell in wrong.answers}


def test_wrong_answers_are_three_at_least_for_each_question() -> None:
    asked = {(wrong.exercise, cell.partition("-")[0]) for wrong in WRONG for cell in wrong.answers}
    for exercise, question in asked:
        found = [
            wrong
            for wrong in WRONG
            if wrong.exercise == exercise
            and any(cell.partition("-")[0] == question for cell in wrong.answers)
        ]
        assert len(found) >= 3, (exercise, question)


def test_stranger_loses_the_call_that_no_row_tells_of() -> None:
    for left in stranger.every_death(busy=3):
        told = [row["name"] for row in left.history if row["kind"] in ("step", "effect", "try")]
        assert left.called == told + left.lost


def test_stranger_that_starts_over_is_charged_twice() -> None:
    assert [key for _, key in stranger.stranger(("charge", "window"), start_over=True).books] == [
        "order-7/charge",
        "order-7-again/charge",
    ]


@pytest.mark.slow
def test_asking_first_leaves_open_what_exercise_03_says() -> None:
    """The exercise counts on paper; the same four troubles over HTTP, one death each."""
    duplicates = [try_way("ask first", trouble).duplicates for trouble in TROUBLES]
    assert [count > 0 for count in duplicates] == [False, False, False, True, True]
