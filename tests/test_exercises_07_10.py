"""Exercises 07 to 10: plausible wrong answers lose the points that they should, and why.

Guarantees: each wrong answer is the solution but for what is named, and it loses exactly the checks
named, on the backend that a notebook has. The most tempting one of each cell, the first in its
table, does so under the real grader too: `rounds` has the others for whoever has the time.
Leaves to others: how submissions are found and marked.
"""

from __future__ import annotations

from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import nbformat
import pytest
from answered import SOLUTIONS, checked

from durable_mini import RunStatus
from durable_mini.lab import notebooks
from durable_mini.school import grade, source
from durable_mini.school.exercise import question_of, shorten

NAMES = ("07_approval", "08_trip", "09_fence", "10_budget")


class Wrong(NamedTuple):
    """An answer that somebody might well give.

    Attributes:
        cell: the answer cell that it changes.
        what: in a few words.
        changes: pairs of the solution's text and what stands there instead.
        lost: the checks that it doesn't pass.
        reason: words of what the first of them says.
    """

    cell: str
    what: str
    changes: tuple[tuple[str, str], ...]
    lost: tuple[str, ...]
    reason: str


def wrong(cell: str, what: str, *changes: tuple[str, str], lost: str, reason: str) -> Wrong:
    return Wrong(cell, what, changes, tuple(lost.split()), reason)


def body(text: str) -> tuple[str, str]:
    """All of a solution is something else."""
    return "", text


APPROVAL = (
    wrong(
        "q1-simple",
        "an answer is a yes",
        ('answer["ok"]', "bool(answer)"),
        lost="q1-no q1-more",
        reason="An answer isn't a yes",
    ),
    wrong(
        "q1-simple",
        "a yes says nothing else",
        ('answer["ok"]', 'answer == {"ok": True}'),
        lost="q1-yes q1-more",
        reason="After a yes it is paid",
    ),
    wrong(
        "q1-simple",
        "it waits for another button",
        ('wait_signal("approval")', 'wait_signal("clerk")'),
        lost="q1-yes q1-no q1-more",
        reason="After a yes it is paid",
    ),
    wrong(
        "q1-simple",
        "it doesn't wait",
        ('ctx.wait_signal("approval")', '{"ok": True}'),
        lost="q1-yes q1-no q1-more",
        reason="until she answers the run waits",
    ),
    wrong(
        "q1-simple",
        "it waits for five days",
        ('wait_signal("approval")', 'wait_signal("approval", timeout_s=5 * DAY)'),
        lost="q1-more",
        reason="for as long as it takes",
    ),
    wrong(
        "q2-escalating",
        "one signal name for both levels",
        ('invoice, "head")', 'invoice, "clerk")'),
        ('wait_signal("head"', 'wait_signal("clerk"'),
        lost="q2-late-clerk",
        reason="A signal belongs to one question",
    ),
    wrong(
        "q2-escalating",
        "the name names the invoice and not the level",
        ('invoice, "clerk")', 'invoice, invoice["id"])'),
        ('wait_signal("clerk"', 'wait_signal(invoice["id"]'),
        ('invoice, "head")', 'invoice, invoice["id"])'),
        ('wait_signal("head"', 'wait_signal(invoice["id"]'),
        lost="q2-late-clerk",
        reason="it mustn't answer Mia's",
    ),
    wrong(
        "q2-escalating",
        "the rota is looked at in each attempt",
        ('ctx.step("on duty", on_duty)', "on_duty()"),
        lost="q2-duty",
        reason="Recorded beats repeatable",
    ),
    wrong(
        "q2-escalating",
        "silence is a no",
        ('return "unanswered"', 'return "refused"'),
        lost="q2-timed-out",
        reason="Silence isn't a yes",
    ),
    wrong(
        "q2-escalating",
        "both are asked at once",
        ('    answer = ctx.wait_signal("clerk"', '    head = ctx.step("on duty", on_duty)\n'
         '    ctx.effect("ask head", ask, head, invoice, "head")\n'
         '    answer = ctx.wait_signal("clerk"'),
        ('        head = ctx.step("on duty", on_duty)\n'
         '        ctx.effect("ask head", ask, head, invoice, "head")\n', ""),
        lost="q2-in-time",
        reason="nobody else is asked",
    ),
    wrong(
        "q3-settle",
        "the name names the level and not the invoice",
        ("f\"clerk on {invoice['id']}\"", '"clerk"'),
        ("f\"head on {invoice['id']}\"", '"head"'),
        lost="q3-questions",
        reason="A name names one question",
    ),
    wrong(
        "q3-settle",
        "only the first level's name names the invoice",
        ("f\"head on {invoice['id']}\"", '"head"'),
        lost="q3-questions",
        reason="A name names one question",
    ),
    wrong(
        "q3-settle",
        "the time is read before the wait",
        ("    button = f\"clerk", "    began = ctx.now()\n    button = f\"clerk"),
        ("ctx.now() >", "began >"),
        lost="q3-until",
        reason="looked up after the wait",
    ),
    wrong(
        "q3-settle",
        "a yes is for ever",
        ('ctx.now() > answer["until"]', "False"),
        lost="q3-until",
        reason="A week-old yes may be none",
    ),
    wrong(
        "q3-settle",
        "a no by the clerk goes on to the next level",
        ("    if answer is TIMED_OUT:\n        head,",
         '    if answer is TIMED_OUT or not answer["ok"]:\n        head,'),
        lost="q3-no",
        reason="nobody else is asked",
    ),
)  # fmt: skip

BY_NUMBER = """
def take_back(number, *, idempotency_key, effect_key):
    what, trip = number.split("/")
    for row in world.look_up(trip, what):
        world.void(row.key)


@workflow(version="1")
def safe_trip(ctx, order):
    for what in ("flight", "hotel", "car"):
        number = ctx.effect(what, book, what, order)
        ctx.compensate(what, take_back, number)
    return "booked"
"""
BY_HAND = """
@workflow(version="1")
def trip(ctx, order):
    booked = []
    try:
        for what in ("flight", "hotel", "car"):
            booked.append(what)
            ctx.effect(what, book, what, order)
    except Exception:
        for what in reversed(booked):
            key = f"{ctx.run_id}/{what}"
            ctx.effect(f"cancel {what}", lambda *, idempotency_key: world.void(key))
        raise
    return "booked"
"""
INSURED = """\
        ctx.compensate("insurance", call_off, "insurance", order)
        ctx.effect("insurance", book, "insurance", order)
"""

TRIP = (
    wrong(
        "q1-trip",
        "the undo stands below its effect",
        *[
            (f'    ctx.compensate("{what}", call_off, "{what}", order)\n', "")
            for what in ("flight", "hotel", "car")
        ],
        *[
            (f'book, "{what}", order)\n', f'book, "{what}", order)\n'
             f'    ctx.compensate("{what}", call_off, "{what}", order)\n')
            for what in ("flight", "hotel", "car")
        ],
        lost="q1-car q1-cancelled",
        reason="Nothing is left of a trip without a car",
    ),
    wrong(
        "q1-trip",
        "the undo stands below its effect and wants the company's number",
        *[
            (f'    ctx.compensate("{what}", call_off, "{what}", order)\n', "")
            for what in ("flight", "hotel", "car")
        ],
        *[
            (f'    ctx.effect("{what}", book, "{what}", order)\n',
             f'    number = ctx.effect("{what}", book, "{what}", order)\n'
             f'    ctx.compensate("{what}", cancel, number)\n')
            for what in ("flight", "hotel", "car")
        ],
        lost="q1-cancelled",
        reason="has to be registered by then",
    ),
    wrong(
        "q1-trip",
        "all undos are registered first, the last one first",
        ('    ctx.compensate("hotel", call_off, "hotel", order)\n', ""),
        ('    ctx.compensate("car", call_off, "car", order)\n', ""),
        (
            '    ctx.compensate("flight"',
            '    ctx.compensate("car", call_off, "car", order)\n'
            '    ctx.compensate("hotel", call_off, "hotel", order)\n'
            '    ctx.compensate("flight"',
        ),
        lost="q1-good q1-car",
        reason="Each has an undo on record, in order",
    ),
    wrong(
        "q1-trip",
        "a try block with a list",
        body(BY_HAND),
        lost="q1-good q1-cancelled",
        reason="Each has an undo on record",
    ),
    wrong(
        "q1-trip",
        "the flight needs no undo",
        ('    ctx.compensate("flight", call_off, "flight", order)\n', ""),
        lost="q1-good q1-car q1-cancelled",
        reason="Each has an undo on record",
    ),
    wrong(
        "q2-safe",
        "registered after success, with the returned number",
        body(BY_NUMBER),
        lost="q2-lost q2-slow",
        reason="Undo by what you knew beforehand",
    ),
    wrong(
        "q2-safe",
        "the undo looks first",
        ("    world.void(effect_key)",
         "    if world.look_up(trip, what):\n        world.void(effect_key)"),
        lost="q2-slow",
        reason="The undo shuts the door",
    ),
    wrong(
        "q2-safe",
        "the undo voids its own key",
        ("world.void(effect_key)", "world.void(idempotency_key)"),
        lost="q2-everywhere q2-lost q2-slow",
        reason="A crash leaves no booking behind",
    ),
    wrong(
        "q2-safe",
        "nothing to undo is an error",
        ("    world.void(effect_key)",
         '    if not world.void(effect_key):\n        raise LookupError("no booking")'),
        lost="q2-everywhere q2-slow",
        reason="However often its worker dies, it ends",
    ),
    wrong(
        "q2-weekend",
        "the new lines without a patch",
        ('    if ctx.patched("insurance"):\n', ""),
        (INSURED, INSURED.replace("        ctx", "    ctx")),
        lost="q2-deploy",
        reason="ends as it began, without insurance",
    ),
    wrong(
        "q2-weekend",
        "the undo stands outside of the patch",
        (INSURED.splitlines(keepends=True)[0], ""),
        ('    if ctx.patched("insurance"):\n',
         '    ctx.compensate("insurance", call_off, "insurance", order)\n'
         '    if ctx.patched("insurance"):\n'),
        lost="q2-deploy",
        reason="ends as it began",
    ),
    wrong(
        "q2-weekend",
        "a new version instead",
        ('version="1", name="weekend"', 'version="2", name="weekend"'),
        lost="q2-deploy",
        reason="ends as it began",
    ),
    wrong(
        "q2-weekend",
        "the insurance has no undo",
        (INSURED.splitlines(keepends=True)[0], ""),
        lost="q2-deploy",
        reason="the insurance has an undo",
    ),
    wrong(
        "q3-left",
        "what was booked is to be undone",
        ('event["kind"] == "compensate"]',
         'event["kind"] == "effect" and event["name"] != "tickets"]'),
        lost="q3-left-stuck",
        reason="",
    ),
    wrong(
        "q3-left",
        "a try is an undo",
        ('event["kind"] == "undo"', 'event["kind"] in ("undo", "try")'),
        lost="q3-left-stuck",
        reason="Both are still to be undone",
    ),
    wrong(
        "q3-left",
        "in the order of booking",
        ("reversed(registered)", "registered"),
        lost="q3-left-stuck",
        reason="the room first",
    ),
    wrong(
        "q3-left",
        "what was tried is left",
        ("return [name for name in reversed(registered) if name not in undone]",
         'tried = [event["name"] for event in history if event["kind"] == "try"]\n'
         "    return tried[-1:] + [n for n in reversed(registered)\n"
         "                         if n not in undone and n not in tried]"),
        lost="q3-left-stuck",
        reason="A try is no undo",
    ),
    wrong(
        "q3-rescue",
        "a run that can't be helped stops the script",
        ("except DurableError:", "except LookupError:"),
        lost="q3-rescue-all",
        reason="no compensation of it has failed",
    ),
    wrong(
        "q3-rescue",
        "two more chances",
        ("        for run in", "        for run in 2 *"),
        lost="q3-rescue-all",
        reason="One more chance each",
    ),
    wrong(
        "q3-rescue",
        "whatever needs attention is resumed",
        ("engine.retry_compensation(", "engine.resume("),
        ("except DurableError:", "except LookupError:"),
        lost="q3-rescue-all",
        reason="isn't registered",
    ),
    wrong(
        "q3-rescue",
        "the list of before",
        ("        engine = Engine(journal, [weekend_friday])\n",
         "        engine = Engine(journal, [weekend_friday])\n"
         '        before = [run.run_id for run in engine.runs("needs_attention")]\n'),
        ('return [run.run_id for run in engine.runs("needs_attention")]', "return before"),
        lost="q3-rescue-one q3-rescue-all",
        reason="Nobody has to look",
    ),
)  # fmt: skip

READ_FIRST = """
def write(pages, token, name, text):
    found = pages("SELECT token FROM page WHERE name = ?", name)["rows"]
    if not found or found[0][0] > token:
        return False
    pages("UPDATE page SET text = ?, token = ? WHERE name = ?", text, token, name)
    return True
"""
TWO_UPDATES = """
def write(pages, token, name, text):
    done = pages("UPDATE page SET text = ? WHERE name = ? AND token <= ?", text, name, token)
    if done["changed"]:
        pages("UPDATE page SET token = ? WHERE name = ?", token, name)
    return done["changed"] == 1
"""
BY_CLOCK = """\
        (until,), = pages("SELECT lease_until FROM page WHERE name = ?", page)["rows"]
        return now_s < until and write(pages, self.token, page, text)
"""

FENCE = (
    wrong(
        "q1-trace",
        "giving back raises nothing",
        ('"token of B": 3', '"token of B": 2'),
        ('"token of C": 4', '"token of C": 3'),
        lost="q1-trace-tokens",
        reason="and so does giving back",
    ),
    wrong(
        "q1-trace",
        "being frozen gives the run back",
        ('"token of C": 4', '"token of C": 5'),
        lost="q1-trace-tokens",
        reason="Being frozen doesn't",
    ),
    wrong(
        "q1-trace",
        "the look decides the race",
        ('"the wait": "the signal"', '"the wait": "the time-out"'),
        lost="q1-trace-late",
        reason="recorded before the due time",
    ),
    wrong(
        "q1-trace",
        "the clock refuses",
        ('"C\'s record": "taken"', '"C\'s record": "refused"'),
        lost="q1-trace-late",
        reason="Only a changed token refuses",
    ),
    wrong(
        "q1-trace",
        "the fence keeps the zombie from the bank",
        ('"requests at the bank": 2', '"requests at the bank": 1'),
        lost="q1-trace-late",
        reason="not the bank",
    ),
    wrong(
        "q2-write",
        "read, compare, then write",
        body(READ_FIRST),
        lost="q2-write-pause",
        reason="Only an atomic check at the resource decides",
    ),
    wrong(
        "q2-write",
        "the text and the token one after the other",
        body(TWO_UPDATES),
        lost="q2-write-pause",
        reason="Only an atomic check",
    ),
    wrong(
        "q2-write",
        "it looks afterwards whether the text is there",
        ('    return pages(statement, text, token, name, token)["changed"] == 1\n',
         "    pages(statement, text, token, name, token)\n"
         '    return pages("SELECT text FROM page WHERE name = ?", name)["rows"] == [[text]]\n'),
        lost="q2-write-pause",
        reason="doesn't tell whether your text was put",
    ),
    wrong(
        "q2-write",
        "only a higher token may write",
        ("token <= ?", "token < ?"),
        lost="q2-write-again",
        reason="may write again",
    ),
    wrong(
        "q2-write",
        "the condition forgets the page",
        ("WHERE name = ? AND token <= ?", "WHERE token <= ?"),
        ("text, token, name, token)", "text, token, token)"),
        lost="q2-write-others",
        reason="Each page has its own token",
    ),
    wrong(
        "q2-write",
        "it always says yes",
        ('["changed"] == 1', '["changed"] >= 0'),
        lost="q2-write-order q2-write-others q2-write-pause q3-holder-takeover "
        "q3-holder-at-once q3-holder-tokens",
        reason="whether the text was put",
    ),
    wrong(
        "q3-holder",
        "the claim looks, then takes",
        (" AND token = ?", ""),
        ("page, token)", "page)"),
        lost="q3-holder-at-once",
        reason="compare and set",
    ),
    wrong(
        "q3-holder",
        "the claim takes upon what is there",
        ("SET token = ?,", "SET token = token + 1,"),
        (" AND token = ?", ""),
        ("(take, token + 1, now_s + 60, page, token)", "(take, now_s + 60, page)"),
        lost="q3-holder-at-once",
        reason="C gets None",
    ),
    wrong(
        "q3-holder",
        "a refused claim forgets the token",
        ("        if lease_until > now_s:\n",
         "        if lease_until > now_s:\n            self.token = -1\n"),
        lost="q3-holder-tokens",
        reason="what this object held before",
    ),
    wrong(
        "q3-holder",
        "the clock refuses",
        ("        return write(pages, self.token, page, text)\n", BY_CLOCK),
        lost="q3-holder-tokens",
        reason="Only a changed token refuses",
    ),
    wrong(
        "q3-holder",
        "the name is the holder",
        ("self.name, self.token = name, -1", "self.name = name"),
        ("class Holder:\n", "class Holder:\n    tokens = {}\n"),
        ("self.token = token + 1\n        return self.token",
         "self.tokens[self.name] = token + 1\n        return token + 1"),
        ("pages, self.token, page", "pages, self.tokens.get(self.name, -1), page"),
        lost="q3-holder-tokens",
        reason="A name says who somebody is",
    ),
    wrong(
        "q3-holder",
        "the fence is in the process's memory",
        ("class Holder:\n", "class Holder:\n    newest = {}\n"),
        ("self.token = token + 1\n", "self.token = self.newest[page] = token + 1\n"),
        (
            "        return write(pages, self.token, page, text)\n",
            "        if self.token < self.newest.get(page, 0):\n            return False\n"
            '        done = pages("UPDATE page SET text = ? WHERE name = ?", text, page)\n'
            '        return done["changed"] == 1\n',
        ),
        lost="q3-holder-tokens",
        reason="",
    ),
    wrong(
        "q3-holder",
        "a lease keeps nobody away",
        ("if lease_until > now_s:", "if False:"),
        lost="q3-holder-takeover q3-holder-tokens",
        reason="when A's lease is over",
    ),
)  # fmt: skip

METER = """\
            raise RunFailed("the cap")
        ctx.step("ask", ask, number, price, cost=price)
        world.charge(ctx.run_id, price, idempotency_key=f"{world.look_up(ctx.run_id)}")
"""
BY_KEY_AFTER = """\
    ctx.effect("fee", take_fee, task["customer"])
    key = f"{ctx.run_id}/fee"
    ctx.compensate("fee", lambda *, idempotency_key, effect_key: world.void(key))
"""

BUDGET = (
    wrong(
        "q1-spent",
        "so many steps, at the usual price",
        ('event["payload"].get("cost", 0.0)', '2.0 * (event["kind"] == "step")'),
        lost="q1-spent-run q1-spent-kinds q1-spent-generations",
        reason="The costs of the steps",
    ),
    wrong(
        "q1-spent",
        "only steps cost something",
        ("for event in history)", 'for event in history if event["kind"] == "step")'),
        lost="q1-spent-kinds",
        reason="whatever its kind",
    ),
    wrong(
        "q1-spent",
        "each generation by itself",
        ('history[0]["payload"].get("spent", [0.0, 0])', "[0.0, 0]"),
        lost="q1-spent-generations",
        reason="no cap",
    ),
    wrong(
        "q1-spent",
        "failed tries are counted",
        ("here = sum(", "here = 2.0 * sum(e['kind'] == 'try' for e in history) + sum("),
        lost="q1-spent-kinds",
        reason="Spend belongs to the event",
    ),
    wrong(
        "q2-research",
        "a variable that outlives the attempt",
        ("@workflow", "totals = {}\n\n\n@workflow"),
        ("    total = 0.0\n", "    totals.setdefault(ctx.run_id, 0.0)\n"),
        ("total + price", "totals[ctx.run_id] + price"),
        ("        total += price\n    return total",
         "        totals[ctx.run_id] += price\n    return totals[ctx.run_id]"),
        lost="q2-research-crashes",
        reason="Spend belongs to the step's event",
    ),
    wrong(
        "q2-research",
        "calls are counted, and not what they cost",
        ('total + price > task["cap"]', 'number >= task["cap"] / 2'),
        lost="q2-research-prices",
        reason="whatever the questions cost",
    ),
    wrong(
        "q2-research",
        "asked first, judged then",
        ('        if total + price > task["cap"]:\n            raise RunFailed("the cap")\n', ""),
        ("        total += price\n",
         '        total += price\n        if total > task["cap"]:\n'
         '            raise RunFailed("the cap")\n'),
        lost="q2-research-cap q2-research-prices q2-research-crashes",
        reason="Five questions fit under the cap",
    ),
    wrong(
        "q2-research",
        "what reaches the cap is above it",
        ("total + price >", "total + price >="),
        lost="q2-research-cap q2-research-crashes",
        reason="Five questions fit",
    ),
    wrong(
        "q2-research",
        "the cost isn't recorded",
        (", cost=price", ""),
        lost="q2-research-cap q2-research-prices q2-research-crashes",
        reason="Each step records what it cost",
    ),
    wrong(
        "q2-research",
        "the undo is registered after the fee",
        ('    ctx.compensate("fee", give_back, task["customer"])\n', ""),
        ('    ctx.effect("fee", take_fee, task["customer"])\n', BY_KEY_AFTER),
        lost="q2-research-fee",
        reason="Undo by what you knew beforehand",
    ),
    wrong(
        "q3-study",
        "each generation counts for itself",
        ('state.get("spent", 0.0)', "0.0"),
        lost="q3-study-done q3-study-cap",
        reason="All seven questions",
    ),
    wrong(
        "q3-study",
        "the fee in each generation",
        ('not state.get("paid")', "True"),
        lost="q3-study-fee",
        reason="A new generation has new keys",
    ),
    wrong(
        "q3-study",
        "the key of the fee is the customer's",
        ('take_fee, state["customer"])', 'take_fee, state["customer"], key=state["customer"])'),
        lost="q3-study-fee",
        reason="A second study of the same customer",
    ),
    wrong(
        "q3-study",
        "one history for all",
        ('state["prices"][:3]', 'state["prices"]'),
        ('state["prices"][3:]', "[]"),
        lost="q3-study-done",
        reason="Three questions a generation",
    ),
    wrong(
        "q3-study",
        "an undo is pending",
        ('        ctx.effect("fee"',
         '        ctx.compensate("fee", give_back, state["customer"])\n        ctx.effect("fee"'),
        lost="q3-study-done q3-study-fee q3-study-cap",
        reason="All seven questions",
    ),
    wrong(
        "q3-study",
        "a variable of the process carries the spend",
        ("@workflow", "carried = {}\n\n\n@workflow"),
        ('total = state.get("spent", 0.0)', 'total = carried.get(ctx.run_id, 0.0)'),
        ("    ctx.continue_as_new(", "    carried[ctx.run_id] = total\n    ctx.continue_as_new("),
        lost="q3-study-cap",
        reason="goes along in the input",
    ),
)  # fmt: skip

OTHER_WAYS = {
    ("07_approval", "q2-escalating"): """
@workflow(version="1")
def escalating(ctx, invoice):
    def answer_of(who, days):
        button = ctx.uuid()
        ctx.effect("ask", ask, who, invoice, button)
        return ctx.wait_signal(button, days * DAY)

    answer = answer_of("clerk", 2)
    if answer is TIMED_OUT:
        answer = answer_of(ctx.step("rota", lambda: on_duty()), 3)
    if answer is TIMED_OUT:
        return "unanswered"
    return "paid" if answer["ok"] and ctx.effect("pay", pay, invoice) else "refused"
""",
    ("07_approval", "q3-settle"): """
def settle(ctx, invoice):
    for level, days in (("clerk", 2), ("duty", 3)):
        button = f"{invoice['id']}/{level}"
        who = "clerk" if level == "clerk" else ctx.step("who", on_duty)
        ctx.effect(f"ask {button}", ask, who, invoice, button)
        answer = ctx.wait_signal(button, timeout_s=days * DAY)
        if answer is not TIMED_OUT:
            break
    else:
        return "unanswered"
    if not answer["ok"]:
        return "refused"
    now = ctx.now()
    if now <= answer["until"]:
        ctx.effect(f"pay {invoice['id']}", pay, invoice)
    return "paid" if now <= answer["until"] else "expired"
""",
    ("08_trip", "q1-trip"): """
@workflow(version="1")
def trip(ctx, order):
    for what in ("flight", "hotel", "car"):
        ctx.compensate(what, call_off, what, order)
    for what in ("flight", "hotel", "car"):
        ctx.effect(what, book, what, order)
    return "booked"
""",
    ("08_trip", "q2-safe"): """
def take_back(what, trip, *, idempotency_key, effect_key):
    if not world.look_up(trip, what):
        world.void(effect_key)
        return "nothing yet"
    world.void(effect_key)
    return "taken back"


@workflow(version="1")
def safe_trip(ctx, order):
    ctx.compensate("flight", take_back, "flight", order)
    ctx.effect("flight", book, "flight", order, key=f"{order} flight")
    ctx.compensate("hotel", take_back, "hotel", order)
    ctx.effect("hotel", book, "hotel", order, key=f"{order} hotel")
    ctx.compensate("car", take_back, "car", order)
    ctx.effect("car", book, "car", order, key=f"{order} car")
    return "booked"
""",
    ("08_trip", "q3-left"): """
def left_to_undo(history):
    left = []
    for event in history:
        if event["kind"] == "compensate":
            left.insert(0, event["name"])
        if event["kind"] == "undo":
            left.remove(event["name"])
    return left
""",
    ("09_fence", "q2-write"): """
def write(pages, token, name, text):
    pages("BEGIN IMMEDIATE")
    found = pages("SELECT token FROM page WHERE name = ?", name)["rows"]
    taken = bool(found) and found[0][0] <= token
    if taken:
        pages("UPDATE page SET text = ?, token = ? WHERE name = ?", text, token, name)
    pages("COMMIT")
    return taken
""",
    ("09_fence", "q3-holder"): """
class Holder:
    def __init__(self, name):
        self.held = None

    def claim(self, pages, page, now_s):
        found = pages(
            "UPDATE page SET token = token + 1, lease_until = ? "
            "WHERE name = ? AND lease_until <= ? RETURNING token", now_s + 60, page, now_s)["rows"]
        if found:
            self.held = found[0][0]
            return self.held

    def write(self, pages, page, text, now_s):
        done = pages("UPDATE page SET text = ? WHERE name = ? AND token = ?", text, page, self.held)
        return done["changed"] > 0
""",
    ("10_budget", "q1-spent"): """
def spent(history):
    total = 0.0
    for event in history:
        if event["kind"] == "admitted" and "spent" in event["payload"]:
            total += event["payload"]["spent"][0]
        if "cost" in event["payload"]:
            total += event["payload"]["cost"]
    return total
""",
    ("10_budget", "q2-research"): """
@workflow(version="1")
def research(ctx, task):
    ctx.compensate("fee", give_back, task["customer"])
    ctx.effect("fee", take_fee, task["customer"])
    paid = []
    for price in task["prices"]:
        if sum(paid) + price > task["cap"]:
            raise RunFailed("enough")
        paid.append(ctx.step("ask", lambda: [ask("why", price), price][1], cost=float))
    return sum(paid)
""",
    ("10_budget", "q3-study"): """
@workflow(version="1")
def study(ctx, state):
    ctx.effect("fee", take_fee, state["customer"], key=f"fee of {ctx.run_id}")
    done, spent = state.get("done", 0), state.get("so far", 0)
    for price in state["prices"][done : done + 3]:
        if spent + price > state["cap"]:
            return spent
        ctx.step("ask", ask, "why", price, cost=price)
        spent += price
    if done + 3 < len(state["prices"]):
        ctx.continue_as_new(state | {"done": done + 3, "so far": spent})
    return spent
""",
}  # right answers of another kind than the solution's
ALL = dict(zip(NAMES, (APPROVAL, TRIP, FENCE, BUDGET), strict=True))
CASES = [(name, one) for name, table in ALL.items() for one in table]


def cells_of(name: str) -> list[Any]:
    return list(notebooks.read(SOLUTIONS / f"{name}.ipynb").cells)


def checks_of(name: str) -> dict[str, float]:
    return {cell.id: source.points(cell) for cell in cells_of(name) if source.is_check(cell)}


def answer(name: str, one: Wrong) -> str:
    """The source of the cell that a wrong answer changes."""
    text: str = next(cell.source for cell in cells_of(name) if cell.id == one.cell)
    for old, new in one.changes:
        assert old in text, (one.what, old)
        text = text.replace(old, new) if old else f"# exercise: {one.cell}\n{new}"
    return text


def lost_by(marks: dict[str, tuple[float, str]]) -> set[str]:
    return {check for check, (points, _) in marks.items() if not points}


@pytest.mark.parametrize("name", NAMES)
def test_exercise_is_worth_ten_points(name: str) -> None:
    assert sum(checks_of(name).values()) == 10


@pytest.mark.parametrize("name", NAMES)
def test_every_part_has_three_wrong_answers(name: str) -> None:
    for part in {question_of(check) for check in checks_of(name)}:
        assert sum(question_of(one.cell) == part for one in ALL[name]) >= 3, part


def test_missed_idea_shows_a_status_as_a_word() -> None:
    assert shorten(RunStatus.FAILED) == "'failed'"


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_solution_has_every_point(name: str) -> None:
    assert {check: points for check, (points, _) in checked(name).items()} == checks_of(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_answers_of_another_kind_have_every_point(name: str) -> None:
    answers = {cell: text for (of, cell), text in OTHER_WAYS.items() if of == name}
    assert lost_by(marks := checked(name, answers)) == set(), marks


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_stub_has_no_point(name: str) -> None:
    assert lost_by(checked(name, stubs=True)) == set(checks_of(name))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "one"), CASES, ids=[f"{n[:2]} {one.what}" for n, one in CASES])
def test_wrong_answer_loses_its_points(name: str, one: Wrong) -> None:
    parts = {question_of(check) for check in (one.cell, *one.lost)}

    def elsewhere(cell: Any) -> bool:
        """A demonstration, or a check of a part that this answer has nothing to do with."""
        if source.is_check(cell):
            return question_of(cell.id) not in parts
        return str(cell.id).startswith(("predict-", "run-", "compare-"))

    marks = checked(name, {one.cell: answer(name, one)}, skip=elsewhere)
    assert lost_by(marks) == set(one.lost)
    assert one.reason in marks[one.lost[0]][1]


def hand_in(name: str, answers: dict[str, str], path: Path) -> Path:
    """The exercise with the solution's answers but for these."""
    notebook = notebooks.read(SOLUTIONS / f"{name}.ipynb")
    right = {cell.id: cell.source for cell in notebook.cells if source.is_answer(cell)}
    notebook = source.exercise_from(notebook, name)
    for cell in notebook.cells:
        cell.source = {**right, **answers}.get(cell.id, cell.source)
    nbformat.write(notebook, path)
    return path


def rounds(name: str) -> list[list[Wrong]]:
    """The wrong answers of an exercise, at most one to a cell, in as few notebooks as that takes.

    A question is marked with the better of two sets of answers to the others: its own, the
    reference's. So a wrong answer costs no other question anything.
    """
    by_cell: dict[str, list[Wrong]] = {}
    for one in ALL[name]:
        by_cell.setdefault(one.cell, []).append(one)
    return [[one for one in found if one] for found in zip_longest(*by_cell.values())]


def own(one: Wrong) -> set[str]:
    """The checks of its own question that it loses."""
    question = question_of(one.cell)
    return {check for check in one.lost if question_of(check) == question}


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_grader_takes_the_points_of_wrong_answers(name: str, tmp_path: Path) -> None:
    table = rounds(name)[0]
    file = hand_in(name, {one.cell: answer(name, one) for one in table}, tmp_path / "w.ipynb")
    (graded,) = grade([file])["submissions"]
    notes = {check["name"]: check["note"] for check in graded["checks"] if not check["points"]}
    assert notes.keys() == {check for one in table for check in own(one)}
    assert [one.what for one in table if one.reason not in notes[one.lost[0]]] == []


METERED = """
meters = {}


@workflow(version="1")
def research(ctx, task):
    def metered(number, price):
        meters[ctx.run_id] = meters.get(ctx.run_id, 0.0) + price
        return ask(number, price)

    ctx.compensate("fee", give_back, task["customer"])
    ctx.effect("fee", take_fee, task["customer"])
    for number, price in enumerate(task["prices"]):
        if meters.get(ctx.run_id, 0.0) + price > task["cap"] and not ctx.replaying:
            raise RunFailed("the cap")
        ctx.step("ask", metered, number, price, cost=price)
    return sum(task["prices"])
"""


@pytest.mark.slow
def test_meter_that_dies_with_its_process_is_noticed_where_processes_die(tmp_path: Path) -> None:
    """In a notebook all attempts have one kernel, so nothing there is ever forgotten."""
    answers = {"q2-research": f"# exercise: q2-research\n{METERED}"}
    (graded,) = grade([hand_in("10_budget", answers, tmp_path / "w.ipynb")])["submissions"]
    lost = {check["name"]: check["note"] for check in graded["checks"] if not check["points"]}
    assert lost.keys() == {"q2-research-crashes"}
    assert "it is empty after each crash" in lost["q2-research-crashes"]
