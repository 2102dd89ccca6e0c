"""Every case of the kit can fail: an engine for each that no exhibit of the museum breaks.

Each is an honest engine with one fault, and breaks the case that it is made for. Two more break a
case in a way of their own.
"""

from __future__ import annotations

import pytest

from durable_mini.lab.conformance import LAWS, check_engine
from durable_mini.lab.conformance.laws import sentence
from durable_mini.lab.museum.honest import Context, HonestEngine, StepFailed, Stop
from durable_mini.lab.museum.patient import PatientContext, PatientEngine

pytestmark = pytest.mark.slow


class StartsAtOnce(HonestEngine):
    def start(self, run_id, workflow, value):
        super().start(run_id, workflow, value)
        super().resume(run_id, workflow)


class StartsOnlyOnce(HonestEngine):
    def start(self, run_id, workflow, value):
        if self.read(run_id)[0]:
            raise ValueError("this id is taken")
        super().start(run_id, workflow, value)


class StartsInTwoWrites(HonestEngine):
    def start(self, run_id, workflow, value):
        if not self.read(run_id)[0]:
            self.write(run_id, {"kind": "start", "name": "run"})
            self.write(run_id, {"kind": "input", "name": "run", "value": value})

    def read(self, run_id):
        events, size = super().read(run_id)
        if len(events) > 1:
            events[0]["value"] = events[1]["value"]
        return events, size


class ThrowsEndedRunsAway(HonestEngine):
    def resume(self, run_id, workflow):
        result = super().resume(run_id, workflow)
        self.path(run_id, "journal").unlink()
        return result


class HandsOutTheInputAsItCame(HonestEngine):
    def start(self, run_id, workflow, value):
        self.value = value
        super().start(run_id, workflow, value)

    def drive(self, ctx, workflow):
        return super().drive(ctx, lambda of, value: workflow(of, getattr(self, "value", value)))


class WritesOneCallLater(HonestEngine):
    """What it hands out is what it will write, with all that happened to it meanwhile."""

    class Ctx(Context):
        late = None

        def call(self, kind, name, fn, args, more):
            if self.recorded({"kind": kind, "name": name, "args": list(args)}):
                return self.calls[self.place - 1]["value"]
            self.write_late()
            value = fn(*args, **more)
            self.late = {"kind": kind, "name": name, "args": list(args), "value": value}
            return value

        def write_late(self):
            if self.late is not None:
                late, self.late = self.late, None
                super().record(late)

        def record(self, event):
            self.write_late()
            return super().record(event)


class NumbersFromZero(HonestEngine):
    def history(self, run_id):
        return [(number - 1, kind, name) for number, kind, name in super().history(run_id)]


class SaysNothingOfAFullDisk(HonestEngine):
    def start(self, run_id, workflow, value):
        try:
            super().start(run_id, workflow, value)
        except Stop:
            return


class KeepsAnythingAsText(HonestEngine):
    def start(self, run_id, workflow, value):
        super().start(run_id, workflow, value if isinstance(value, str) else str(value))


class HasNoKeys(HonestEngine):
    class Ctx(Context):
        def key(self, name, number):
            return None


class ChangesItsKeyAtTheThirdAttempt(HonestEngine):
    class Ctx(Context):
        def key(self, name, number):
            return f"{super().key(name, number)}{self.token > 2}"


class TriesAgainAtOnce(PatientEngine):
    class Ctx(PatientContext):
        def tries(self, name):
            return super().tries(name)[0], 0.0


class TriesBadValues(PatientEngine):
    class Ctx(PatientContext):
        def again(self, tries, outcome):
            return self.retry is not None and tries < self.retry.max_attempts


class HearsOnlyWhileItWaits(PatientEngine):
    class Ctx(PatientContext):
        def in_time(self, signal, wait):
            return signal["seq"] > wait["seq"] and super().in_time(signal, wait)


class NapsBeforeItLetsGo(PatientEngine):
    class Ctx(PatientContext):
        def verdict(self, name, wait):
            try:
                return super().verdict(name, wait)
            except Stop:
                self.engine.clock.sleep(30.0)
                raise


class UndoesTheFirstFirst(PatientEngine):
    def unwind(self, ctx, why):
        ctx.undos.reverse()
        super().unwind(ctx, why)


class RegistersAfterTheEffect(PatientEngine):
    class Ctx(PatientContext):
        def compensate(self, name, fn, *args):
            self.to_come = fn, args

        def effect(self, name, fn, *args, **options):
            result = super().effect(name, fn, *args, **options)
            undo, of = self.to_come
            super().compensate(name, undo, *of)
            return result


class TellsEachAttemptOtherwise(PatientEngine):
    def resume(self, run_id, workflow):
        try:
            return super().resume(run_id, workflow)
        except StepFailed as failed:
            with self.alone(run_id) as holder:
                raise StepFailed(f"{failed} (attempt {self.token(holder)})") from None


class UndoesWhateverComesOfIt(PatientEngine):
    def drive(self, ctx, workflow):
        def undoing(of, value):
            result = workflow(of, value)
            of.unwind()
            return result

        return super().drive(ctx, undoing)


class HearsACancelLate(PatientEngine):
    class Ctx(PatientContext):
        def is_cancelled(self):
            return len(self.calls) > 2 and super().is_cancelled()


class LooksAtNoStructure(PatientEngine):
    def check_structure(self, admitted, workflow):
        """Whatever comes."""


class ForgetsWhatEffectsCost(PatientEngine):
    class Ctx(PatientContext):
        def effect(self, name, fn, *args, **options):
            return super().effect(name, fn, *args, **{**options, "cost": 0.0})


FAULTS = {
    (1, 1): StartsAtOnce,
    (1, 3): StartsOnlyOnce,
    (1, 5): StartsInTwoWrites,
    (2, 1): ThrowsEndedRunsAway,
    (3, 2): HandsOutTheInputAsItCame,
    (3, 3): WritesOneCallLater,
    (4, 1): NumbersFromZero,
    (12, 3): SaysNothingOfAFullDisk,
    (13, 4): KeepsAnythingAsText,
    (14, 1): HasNoKeys,
    (14, 3): ChangesItsKeyAtTheThirdAttempt,
    (21, 3): TriesAgainAtOnce,
    (21, 4): TriesBadValues,
    (22, 1): NapsBeforeItLetsGo,
    (23, 1): HearsOnlyWhileItWaits,
    (25, 1): UndoesTheFirstFirst,
    (25, 2): RegistersAfterTheEffect,
    (25, 4): TellsEachAttemptOtherwise,
    (25, 5): UndoesWhateverComesOfIt,
    (26, 2): HearsACancelLate,
    (27, 1): LooksAtNoStructure,
    (28, 1): ForgetsWhatEffectsCost,
}


@pytest.mark.parametrize(("law", "case"), FAULTS)
def test_case_is_broken_by_the_engine_that_is_made_for_it(law, case):
    (row,) = check_engine(FAULTS[law, case], only=[law]).rows

    assert sentence(LAWS[law - 1].cases[case - 1]) in row.broken
    assert row.detail
