"""Taking away any one guarantee of the engine turns a test red."""

from __future__ import annotations

from collections.abc import Callable

import mutations
import pytest


@pytest.mark.slow
@pytest.mark.parametrize("mutation", mutations.MUTATIONS, ids=lambda mutation: mutation.name)
def test_mutation_of_the_engine_turns_a_test_red(
    mutation: mutations.Mutation, figure: Callable[[str], None]
) -> None:
    red = mutations.verdict(mutation).red

    assert red is not None, f"{mutation.name} in {mutation.file} goes unnoticed"
    figure(f"{mutation.name}: {red}")


def test_mutation_that_no_longer_fits_the_engine_is_refused() -> None:
    stale = mutations.MUTATIONS[0]._replace(replacements=(("no such text", ""),))

    with pytest.raises(ValueError, match="stands 0 times"):
        mutations.verdict(stale)
