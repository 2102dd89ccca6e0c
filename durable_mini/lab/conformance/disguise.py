"""An engine in disguise: the same laws, and every text that the engine meets is another one.

Guarantees: names, run ids and texts in values all get a mark before the engine sees them, and lose
it on their way back. So an engine that knows the kit's own words by heart knows nothing here.
Leaves to others: drawing the mark; and what is about one and the same object, since values are
copied on the way.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from durable_mini.clock import SystemClock
from durable_mini.lab.conformance.adapter import Factory, Workflow
from durable_mini.lab.conformance.surroundings import Surroundings


class Disguise:
    """A factory whose engines see other texts than the kit does.

    Args:
        factory: of the engine.
        mark: what every text begins with; nothing that the kit says itself.
    """

    def __init__(self, factory: Factory, mark: str) -> None:
        self._factory, self._mark = factory, mark
        self.surroundings = getattr(factory, "surroundings", Surroundings())

    def __call__(self, folder: Path, clock: SystemClock) -> _Disguised:
        """A process of the engine."""
        return _Disguised(self._factory(folder, clock), self)

    def on(self, value: Any) -> Any:
        """A value as the engine sees it."""
        return _changed(value, self._mark.__add__)

    def off(self, value: Any) -> Any:
        """A value of the engine as the kit sees it."""
        return _changed(value, lambda text: text.replace(self._mark, ""))

    def workflow(self, workflow: Workflow) -> Workflow:
        """A workflow as the engine sees it."""

        def disguised(ctx: Any, value: Any) -> Any:
            return self.on(workflow(_Context(ctx, self), self.off(value)))

        return disguised

    def body(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """A body as the engine sees it; keys are its own and stay as they are."""

        def body(*args: Any, **options: Any) -> Any:
            return self.on(fn(*self.off(args), **options))

        return body


class _Disguised:
    def __init__(self, engine: Any, as_: Disguise) -> None:
        self._engine, self._as = engine, as_
        self.offers = getattr(engine, "offers", ())
        self.close = getattr(engine, "close", lambda: None)

    def start(self, run_id: str, workflow: Workflow, value: Any) -> None:
        self._engine.start(self._as.on(run_id), self._as.workflow(workflow), self._as.on(value))

    def resume(self, run_id: str, workflow: Workflow) -> Any:
        try:
            told = self._engine.resume(self._as.on(run_id), self._as.workflow(workflow))
        except BaseException as error:
            error.args = self._as.off(error.args)
            raise
        return self._as.off(told)

    def history(self, run_id: str) -> Any:
        return self._as.off(self._engine.history(self._as.on(run_id)))


class _Context:
    def __init__(self, ctx: Any, as_: Disguise) -> None:
        self._ctx, self._as = ctx, as_

    def __getattr__(self, method: str) -> Callable[..., Any]:
        def call(name: str, fn: Callable[..., Any], *args: Any) -> Any:
            durable = getattr(self._ctx, method)
            return self._as.off(durable(self._as.on(name), self._as.body(fn), *self._as.on(args)))

        return call


def _changed(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {_changed(key, change): _changed(one, change) for key, one in value.items()}
    if isinstance(value, list | tuple | set):
        return type(value)(_changed(one, change) for one in value)
    return value
