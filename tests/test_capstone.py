"""The capstone: what wrong engines lose, and what forging a process of one's own doesn't gain."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from answered import SOLUTIONS, checked

from durable_mini.lab import notebooks
from durable_mini.lab.conformance import check_engine
from durable_mini.lab.conformance.disguise import Disguise
from durable_mini.lab.museum import HonestEngine
from durable_mini.school import exercise, remote_engine, source
from durable_mini.school.capstone import counter_example, hold
from durable_mini.school.remote_engine import EngineProcesses, own_engine

NAME = "11_capstone"
CELLS = {
    cell.id: cell for cell in notebooks.read(SOLUTIONS / f"{NAME}.ipynb").cells if "id" in cell
}
ANSWERS = {name: cell.source for name, cell in CELLS.items() if source.is_answer(cell)}
TIERS = {"replay": 20, "identity": 20, "failures": 20, "keys": 15, "torn": 15, "fencing": 10}


def tier_of(check: str) -> str:
    return check.split("-")[1]


def marks(answers: dict[str, str], tier: str = "", **options: Any) -> dict[str, str]:
    """What each check of a tier says in a notebook; "" where it holds."""

    def skipped(cell: Any) -> bool:
        other = source.is_check(cell) and tier not in ("", tier_of(cell.id))
        return other or ("checks-only" in cell.metadata.get("tags", []) and cell.id != "tools")

    return {
        check: said for check, (_, said) in checked(NAME, answers, skip=skipped, **options).items()
    }


class Wrong(NamedTuple):
    """An engine that somebody might well write: what differs in which cell, what it loses."""

    what: str
    cell: str
    right: str
    wrong: str
    lost: str
    says: str

    def answers(self) -> dict[str, str]:
        assert ANSWERS[self.cell].count(self.right) == 1, self.what
        return {self.cell: ANSWERS[self.cell].replace(self.right, self.wrong)}


KEY = 'f"{self.run_id}/{self.place + 1}"'
CALL = "        if self.place == len(self.calls):\n"
OUTCOME = '**tried(name, fn, asked["args"])'
EXPECT_MINE = """            with self.open_journal() as journal:
                journal.expect_driver(self.claim)
            self.calls"""
WRONG = [
    Wrong(
        "another input is taken for the same run",
        *("engine-start", 'elif journal.events[0]["value"] != value:', "elif False:"),
        *("replay-1 replay-drawn", "the same run id with another input is refused"),
    ),
    Wrong(
        "a record that says nothing is taken for no record",
        "engine-context",
        CALL,
        '        if self.calls[self.place :] and not self.calls[self.place].get("value", 1):\n'
        "            del self.calls[self.place :]\n" + CALL,
        *("replay-2 replay-drawn", "A result that is None, zero or empty"),
    ),
    Wrong(
        "events are numbered with gaps",
        *("engine-start", "(n, each", '(each["seq"], each'),
        *("replay-4 replay-drawn", "the events have the numbers"),
    ),
    Wrong(
        "only names are compared",
        *("engine-context", "for part in asked)", 'for part in ["name"])'),
        *("identity-6 identity-7 identity-drawn", "another call is on record"),
    ),
    Wrong(
        "arguments are trusted",
        *("engine-context", "for part in asked)", 'for part in ("kind", "name"))'),
        *("identity-7 identity-drawn", "the same call with another argument is refused"),
    ),
    Wrong(
        "a divergence is an exception that a workflow can catch",
        "engine-context",
        'raise Stop(f"call',
        'self.place = len(self.calls)\n            raise ValueError(f"call',
        *("identity-9 identity-drawn", "executed"),
    ),
    Wrong(
        "nobody counts what was left out",
        *("engine-attempt", "if self.place < len(self.calls):", "if False:"),
        *("identity-8 identity-drawn", "returned"),
    ),
    Wrong(
        "the code gets the live value the first time",
        "engine-context",
        "            self.calls.append(self.record(**asked, " + OUTCOME + "))",
        "            live = []\n"
        "            noted = lambda *args: live.append(fn(*args)) or live[-1]\n"
        "            done = tried(name, noted, asked['args'])\n"
        "            self.calls.append(self.record(**asked, **done))\n"
        "            if live and 'value' in done:\n"
        "                self.place += 1\n"
        "                return live[-1]",
        *("failures-3 failures-drawn", "live"),
    ),
    Wrong(
        "a failure keeps its type and loses its text",
        *("engine-values", "{type(error).__name__}: {error}", "{type(error).__name__}"),
        *("failures-10 failures-drawn", "what was wrong is lost"),
    ),
    Wrong(
        "whatever the workflow raises ends the run",
        *("engine-class", "except StepFailed as failure:", "except Exception as failure:"),
        *("failures-11 failures-drawn", "repaired"),
    ),
    Wrong(
        "a disk that refuses fails the step",
        *("engine-journal", 'raise Stop(f"the disk', 'raise StepFailed(f"the disk'),
        *("failures-12", "after the disk had refused"),
    ),
    Wrong(
        "a number that JSON doesn't have is kept",
        *("engine-values", ", allow_nan=False", ""),
        *("failures-13", "no JSON text can hold"),
    ),
    Wrong(
        "a new key in each attempt",
        *("engine-context", KEY, '__import__("uuid").uuid4().hex'),
        *("keys-14 keys-drawn", "came with the keys"),
    ),
    Wrong(
        "the step's name is the key",
        *("engine-context", KEY, "name"),
        *("keys-15 keys-drawn", "the keys are"),
    ),
    Wrong(
        "a key whose parts can be mistaken",
        *("engine-context", KEY, 'f"{self.run_id}|{name}|{self.named(name)}"'),
        *("keys-drawn", "two calls have the key"),
    ),
    Wrong(
        "it goes on before the sync",
        *("engine-journal", "            os.fsync(self.file.fileno())\n", ""),
        *("torn-16 torn-drawn", "when the power fails right after start returned"),
    ),
    Wrong(
        "the next record is put behind a torn line",
        *("engine-journal", "            self.file.truncate(self.end)\n", ""),
        *("torn-17 torn-drawn", "cut"),
    ),
    Wrong(
        "the bytes are trusted",
        *("engine-lines", ' if check == b"%08x" % crc32(text) else {}', ""),
        *("torn-18", "from a damaged journal"),
    ),
    Wrong(
        "a torn line is taken for damage",
        *(
            "engine-lines",
            '.split(b"\\n")[:-1]',
            '.removesuffix(b"\\n").split(b"\\n") * bool(data)',
        ),
        *("torn-17 torn-drawn", "cut to"),
    ),
    Wrong(
        "the loser works on, and is refused when it writes",
        *("engine-context", EXPECT_MINE, "            self.calls"),
        *("fencing-19 fencing-drawn", "by the process that had lost the run"),
    ),
    Wrong(
        "it looks, and then it writes",
        "engine-attempt",
        "  # under the lock under which it is written\n",
        "\n        with self.open_journal() as journal:\n",
        *("fencing-20", "Taken over at any line"),
    ),
    Wrong(
        "a run that was taken once is kept for good",
        "engine-journal",
        "[-1] != claim:",
        "[-1] < claim:",
        *("fencing-19 fencing-20 fencing-drawn", "lost"),
    ),
]
NAMED = """
    def named(self, name):
        return 1 + sum(each["name"] == name for each in self.calls[: self.place])
"""


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.what)
def test_wrong_engine_loses_its_law_and_no_other_of_its_tier(wrong: Wrong) -> None:
    answers = wrong.answers()
    if "self.named" in wrong.wrong:
        answers["engine-context"] = answers["engine-context"].replace(
            "    def step(", NAMED.strip("\n") + "\n\n    def step("
        )
    tier = wrong.lost.partition("-")[0]
    said = marks(answers, tier)

    lost = [check for check, why in said.items() if why]
    assert lost == [f"engine-{name}" for name in wrong.lost.split()]
    assert " ".join(wrong.says.split()).lower() in " ".join(" ".join(said.values()).split()).lower()


def test_points_are_those_of_the_tiers() -> None:
    given = dict.fromkeys(TIERS, 0.0)
    for cell in CELLS.values():
        if source.is_check(cell):
            given[tier_of(cell.id)] += source.points(cell)

    assert given == TIERS


def test_every_wrong_engine_has_company_in_its_tier() -> None:
    tiers = [wrong.lost.partition("-")[0] for wrong in WRONG]

    assert all(tiers.count(tier) >= 3 for tier in TIERS)


@pytest.mark.slow
def test_worked_engine_has_all_points_in_a_notebook() -> None:
    assert not [check for check, why in marks({}).items() if why]


def test_stub_has_no_point() -> None:
    assert [check for check, why in marks({}, stubs=True).items() if not why] == []


def test_worked_engine_is_short_and_needs_pythons_own_library_alone() -> None:
    text = "\n".join(ANSWERS.values())
    imported = {line.split()[1] for line in text.split("\n") if line.startswith(("import", "from"))}

    assert len([line for line in text.split("\n") if line.strip()]) < 200
    assert imported == {"fcntl", "json", "os", "contextlib", "functools", "urllib.parse", "zlib"}


# ---- graded: each process is a process ----------------------------------------------------------


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that waits for ever is given up soon."""
    monkeypatch.setattr(remote_engine, "_PATIENCE_S", 2)


def broken(cells: dict[str, str], *laws: int, name: str = "MyEngine") -> dict[int, str]:
    """The laws that an engine in processes of its own breaks, with the counter-examples."""
    with EngineProcesses([*cells.items()], name) as engines:
        report = check_engine(engines, only=laws, require=["files", "fencing"])
    return {row.law: row.detail for row in report.rows if not row.ok}


def changed(cell: str, right: str, wrong: str) -> dict[str, str]:
    assert right in ANSWERS[cell]
    return {**ANSWERS, cell: ANSWERS[cell].replace(right, wrong)}


def test_worked_engine_holds_in_processes_too() -> None:
    assert broken(ANSWERS, 3, 12, 13, 16, 19) == {}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "law"),
    [
        ("the code gets the live value the first time", 3),
        ("it goes on before the sync", 16),
        ("a disk that refuses fails the step", 12),
        ("the loser works on, and is refused when it writes", 19),
        ("it looks, and then it writes", 20),
    ],
)
def test_wrong_engine_is_found_in_processes_too(what: str, law: int) -> None:
    (wrong,) = (each for each in WRONG if each.what == what)

    assert set(broken({**ANSWERS, **wrong.answers()}, law)) == {law}


def test_result_that_is_handed_out_live_is_the_same_object_on_both_sides() -> None:
    lent = changed("engine-values", "fn(*kept(args))", "fn(*args)")
    cells = lent | {
        "engine-context": ANSWERS["engine-context"].replace('asked["args"]))', "args))")
    }

    assert "basket" in broken(cells, 3).get(3, "it holds")


MEMORY = """
class MyEngine:
    runs = {}
    offers = {"files", "fencing"}
    def __init__(self, folder, clock): self.folder = folder
    def start(self, run_id, workflow, value):
        (self.folder / "log").write_text("x")
        self.runs.setdefault(run_id, (value, {}))
    def resume(self, run_id, workflow):
        value, records = self.runs[run_id]
        class Ctx:
            def step(self, name, fn, *args):
                if name not in records: records[name] = fn(*args)
                return records[name]
        return workflow(Ctx(), value)
    def history(self, run_id):
        return [(n, "step", name) for n, name in enumerate(self.runs[run_id][1], 1)]
"""


def test_class_that_remembers_is_forgotten_with_its_process() -> None:
    assert "right is ['ticket', 'a']" in broken({"engine": MEMORY}, 1)[1]


FORGERIES = {
    "the kit is patched": (
        "import sys\nfor module in list(sys.modules.values()):\n"
        "    if hasattr(module, 'Machine'): module.Machine.expect = lambda *a: None\n",
        7,
    ),
    "builtins are patched": (
        "import builtins\nbuiltins.any = lambda *a: False\nbuiltins.all = lambda *a: True\n"
        "builtins.len = lambda x: 0\nbuiltins.isinstance = lambda *a: True\n",
        7,
    ),
    "everything is equal": (
        "class Same:\n    def __eq__(self, other): return True\ntold = lambda event: Same()\n",
        2,
    ),
    "a line is said twice": (
        "import os\nfor fd in range(3, 20):\n    try: os.write(fd, b'\\x00\\x00\\x00\\x04true')\n"
        "    except OSError: pass\n",
        1,
    ),
    "everything that is asked returns": (
        "import sys, types\nframe = (lambda: [g for g in [(x for x in [1])]])()[0].gi_frame\n"
        "import json\njson.dumps = lambda *a, **k: '[\"return\",[[null],{}]]'\n",
        2,
    ),
    "it dies instead of answering": ("import os\nos._exit(0)\n", 1),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", FORGERIES)
def test_forged_process_gains_nothing(what: str) -> None:
    forged, law = FORGERIES[what]
    arguments_trusted = changed(
        "engine-context", "for part in asked)", 'for part in ("kind", "name"))'
    )

    assert law in broken({**arguments_trusted, "engine-forged": forged}, law)


UNWATCHED = """
import sys
class Unwatched(MyEngine):
    def resume(self, run_id, workflow):
        {}
        return super().resume(run_id, workflow)
"""
LOOK_THEN_WRITE = next(each for each in WRONG if each.what == "it looks, and then it writes")


@pytest.mark.slow
@pytest.mark.parametrize(
    "how",
    [
        "sys.settrace(None)",
        "sys.setprofile(None); sys.settrace(lambda *a: None)",
        "sys._getframe().f_trace = None",
    ],
)
def test_engine_that_nobody_can_watch_is_not_believed(how: str) -> None:
    cells = {**ANSWERS, **LOOK_THEN_WRITE.answers(), "engine-last": UNWATCHED.format(how)}

    assert set(broken(cells, 20, name="Unwatched")) == {20}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "law"),
    [
        ("os.fsync = lambda file: None", 16),
        ("import durable_mini", 1),
        ("from durable_mini.lab.museum.honest import HonestEngine as MyEngine", 1),
        ("os.fork()", 1),
        ("open('elsewhere', 'w')", 1),
        ("__import__('resource').setrlimit(7, (10, 10))", 1),
    ],
)
def test_what_an_engine_has_no_business_with_is_refused(line: str, law: int) -> None:
    begun = "def __init__(self, folder, clock):\n"
    cells = changed("engine-start", begun, f"{begun}        import os\n        {line}\n")

    assert law in broken(cells, law)


def test_engine_that_imports_durable_mini_is_told_so() -> None:
    cells = {"engine": "from durable_mini.lab.museum import HonestEngine as MyEngine"}

    assert "not with durable_mini" in broken(cells, 1)[1]


def test_engine_on_durable_mini_is_told_so_in_a_notebook_too() -> None:
    class Mine(HonestEngine):
        pass

    with pytest.raises(exercise.AnswerError, match=r"stands on durable_mini\.lab\.museum\.honest"):
        own_engine({"MyEngine": Mine}, "MyEngine")
    with pytest.raises(exercise.AnswerError, match="there is no MyEngine yet"):
        own_engine({}, "MyEngine")


def test_engine_that_knows_the_kits_words_by_heart_knows_nothing_in_disguise() -> None:
    class Knows(HonestEngine):
        class Ctx(HonestEngine.Ctx):
            def key(self, name: str, number: int) -> str:
                known = self.run_id in {"r-1", "r-2", "a", "a/b", "r"}
                return super().key(name, number) if known else name

    assert check_engine(Knows, only=[15]).ok
    assert not check_engine(Disguise(Knows, "Zoë-1."), only=[15]).ok
    assert check_engine(Disguise(HonestEngine, "Zoë-1."), only=[15]).ok


@pytest.mark.slow
def test_engine_that_waits_for_ever_is_ended() -> None:
    sleeps = changed("engine-class", "ctx.run_id = run_id", "__import__('time').sleep(9_999)")

    assert "its process waits for ever" in broken(sleeps, 2)[2]


def test_missed_law_is_told_with_its_sentence_and_its_case_and_no_path() -> None:
    class Forgets(HonestEngine):
        def start(self, run_id: str, workflow: Any, value: Any) -> None:
            """Nothing is kept."""

    told = counter_example(Forgets, 16)
    assert told.startswith("Law 16: What was acknowledged is on the disk")
    assert "\nHow: start, power cut" in told
    assert "/tmp" not in told


def test_check_names_the_law_that_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exercise, "backend_for", lambda _: exercise.Here({"MyEngine": Lazy}, list))
    ex = exercise.Exercise(NAME)

    with (
        pytest.raises(exercise.Missed, match="Law 15: No two calls share a key"),
        ex.check("engine-keys-15", points=6) as check,
    ):
        hold(ex, check, law=15)


class Lazy:
    """It does nothing at all."""

    offers = ("files", "fencing")

    def __init__(self, folder: Any, clock: Any) -> None:
        """Nothing is opened."""

    def start(self, run_id: str, workflow: Any, value: Any) -> None:
        """Nothing is kept."""

    def resume(self, run_id: str, workflow: Any) -> None:
        """Nothing is driven."""
