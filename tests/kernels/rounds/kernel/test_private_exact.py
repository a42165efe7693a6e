"""Phase 1 by noisy steps along the gradient of the evidence; `test_private` has its conformance."""

import pytest

from kernels.errors import NotPrivate
from kernels.rounds.kernel import exact, private_exact
from kernels.rounds.plan import declared, stages_disclosed
from kernels.rounds.site.site import Part
from tests.kernels.rounds import private, tables


def test_without_differential_privacy_it_is_refused_in_favour_of_exact() -> None:
    with pytest.raises(NotPrivate, match="use `exact`"):
        private_exact.initial(private_exact.Spec(), tables.fitted([tables.site()]))


def test_with_differential_privacy_exact_is_refused_in_favour_of_it() -> None:
    with pytest.raises(NotPrivate, match="use `private_exact`"):
        private.program(exact.Spec(penalties=(1.0,)))


def test_it_discloses_two_sums_a_step_and_nothing_of_held_out_rows() -> None:
    spec = private_exact.Spec(steps=3)
    (stage,) = stages_disclosed(private.program(spec))
    assert stage.sums == 6
    assert "held-out" not in stage.words
    assert declared(private.program(spec))[0].reads == {Part.TRAINING}
