"""A state that was sent is the one that follows from the totals, up to a few steps, or refused."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch

from kernels.errors import StateDiffers
from kernels.layer.posterior import Hyperparameters, Spectrum
from kernels.layer.refit import objective
from kernels.rounds import agreement, replay
from kernels.rounds import position as positions
from kernels.rounds.agreement import deviations
from kernels.rounds.columns import moments
from kernels.rounds.kernel import exact
from kernels.rounds.layer import linear, update
from kernels.rounds.position import Position
from kernels.rounds.program import Program
from kernels.rounds.replay import Bits, OwnStep, Step
from kernels.rounds.shared.pooled import EVIDENCE_STEP
from privacy.encoding import Encoding
from tests.kernels.rounds import tables
from tests.kernels.rounds.sums import add_plainly

STAGES = (moments.Spec(), exact.Spec(steps=2, penalties=(3.0,)), linear.Spec())
PROGRAM = Program(tables.SCHEMA, tables.KERNEL, STAGES)


@cache
def walk() -> tuple[Position, ...]:
    """Return all positions of a run."""
    sites = [tables.site(seed=seed) for seed in range(3)]
    found = [positions.start(PROGRAM, None)]
    while not found[-1].finished:
        algorithm, state = found[-1].algorithm, found[-1].state
        encoding = Encoding.finest(algorithm.layout(state), max_clients=3)
        total = add_plainly(encoding, [algorithm.contribute(state, site) for site in sites])
        found.append(positions.after(found[-1], total)[0])
    return tuple(found)


def fitted() -> Position:
    """Return a position with fitted σ and λ, an evidence and moments of Adam."""
    return [each for each in walk() if each.stage == 1 and each.state.pooled is not None][1]


def with_noise_variance(position: Position, change: Callable[[Any], Any]) -> Position:
    """Return a position with another σ²."""
    scales = position.state.model.hyperparameters
    scales = replace(scales, noise_variance=change(scales.noise_variance))
    model = replace(position.state.model, hyperparameters=scales)
    return replace(position, state=replace(position.state, model=model))


def stepped(values: Any, steps: float) -> Any:
    """Return values, the first of which is moved by so many steps of σ²'s grid."""
    moved = values.clone()
    mantissa, exponent = math.frexp(float(values[0]))
    moved[0] = math.ldexp(mantissa + steps * 2.0**-16, exponent)
    return moved


def with_state(position: Position, **changes: Any) -> Position:
    """Return a position with other fields of its state."""
    return replace(position, state=replace(position.state, **changes))


def test_equal_positions_have_no_deviations() -> None:
    assert [deviations(each, each) for each in walk()] == [0] * len(walk())


def test_elements_one_step_off_are_counted() -> None:
    own = fitted()
    theirs = with_noise_variance(own, lambda own: stepped(own, 1))
    assert deviations(own, theirs) == 1
    both = with_state(theirs, evidence=own.state.evidence - EVIDENCE_STEP)
    assert deviations(own, both) == deviations(both, own) == 2


def test_the_model_of_an_earlier_stage_keeps_its_grids() -> None:
    own = next(each for each in walk() if each.stage == 2)
    theirs = with_noise_variance(own, lambda own: stepped(own, 1))
    assert own.state.model.hyperparameters is not None
    assert deviations(own, theirs) == 1


def test_what_the_next_stage_copies_from_the_model_may_be_a_step_off_as_well() -> None:
    program = replace(PROGRAM, stages=(moments.Spec(), linear.Spec(), update.Spec()))
    last = walk()[-1]
    own = Position(program, 1, 2, linear.State(last.state.model, linear.Spec()))
    theirs = with_noise_variance(own, lambda own: stepped(own, 1))
    own, theirs = (positions.next_stage(each) for each in (own, theirs))
    assert own.state.model.hyperparameters is None
    assert deviations(own, theirs) == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda own: with_noise_variance(own, lambda values: stepped(values, 200)),
        lambda own: with_noise_variance(own, lambda values: stepped(values, 0.5)),
        lambda own: with_noise_variance(own, lambda values: values * 0.5),
        lambda own: with_noise_variance(own, lambda values: torch.full_like(values, 1e-12)),
        lambda own: with_state(own, evidence=own.state.evidence + 2 * EVIDENCE_STEP),
        lambda own: with_state(own, evidence=own.state.evidence + EVIDENCE_STEP / 2),
        lambda own: with_state(own, evidence=None),
        lambda own: with_state(own, evidence=1),
        lambda own: with_state(own, first_moment=own.state.first_moment + 2.0**-60),
        lambda own: with_state(own, first_moment=own.state.first_moment[1:]),
        lambda own: with_state(own, history=()),
        lambda own: with_state(own, history=(*own.state.history, own.state.history[-1])),
        lambda own: with_state(own, step=0),
        lambda own: with_state(own, best_of_run=None),
        lambda own: with_state(own, rows=None, pooled=None),
        lambda own: replace(own, stage=2),
        lambda own: replace(own, sum_index=own.sum_index + 1),
        lambda own: replace(own, program=replace(PROGRAM, max_rows=999)),
        lambda own: replace(own, state=walk()[-1].state),
        lambda own: with_state(
            own,
            model=own.state.model.advanced(
                weights=own.state.model.weights + 2.0**-16,
                hyperparameters=own.state.model.hyperparameters,
            ),
        ),
    ],
)
def test_anything_else_is_refused_without_a_value_in_the_message(change: Any) -> None:
    own = fitted()
    with pytest.raises(StateDiffers) as refused:
        deviations(own, change(own))
    assert not any(letter.isdigit() for letter in str(refused.value))
    assert refused.value.code == "state.differs"


def test_scales_that_explain_the_sums_as_well_are_accepted_and_no_others() -> None:
    own = fitted()
    spectrum, scales = own.state.pooled.spectrum(tables.KERNEL), own.state.model.hyperparameters
    limit = 2.0**-30 * (own.state.pooled.rows + 1)

    def worse(theirs: Position) -> float:
        found = objective(spectrum, theirs.state.model.hyperparameters)
        return float((found - objective(spectrum, scales)).max())

    accepted = 0
    for steps in range(-40, 41):
        theirs = with_noise_variance(own, lambda values, steps=steps: stepped(values, steps))
        if abs(steps) <= 1 or worse(theirs) <= limit:
            accepted += abs(steps) > 1
            assert deviations(own, theirs) == int(steps != 0)
        else:
            with pytest.raises(StateDiffers):
                deviations(own, theirs)
    assert 0 < accepted < 78


def test_scales_beyond_their_bounds_explain_nothing() -> None:
    spectrum = fitted().state.pooled.spectrum(tables.KERNEL)
    inside, outside = (
        Hyperparameters.of(noise_variance=noise, prior_variance=1.0, targets=2)
        for noise in (1e-6, 1e-8)
    )
    assert bool(objective(spectrum, inside).isfinite().all())
    assert bool(objective(spectrum, outside).isinf().all())
    assert isinstance(spectrum, Spectrum)


def test_a_walk_of_one_step_a_sum_ends_at_the_budget() -> None:
    own = fitted()
    theirs = with_state(own, evidence=own.state.evidence + EVIDENCE_STEP)
    account, refused = agreement.agreement(PROGRAM), 0
    for _ in range(200):
        try:
            account = account.including(own, theirs)
        except StateDiffers:
            refused += 1
    assert account.spent == account.budget == 20
    assert refused == 180


@pytest.mark.parametrize(
    ("grid", "own", "theirs", "off"),
    [
        (Step(0.25), [1.0, 2.0, 3.0], [1.25, 2.0, 2.75], 2),
        (Bits(3), [1.0, 5.0], [0.875, 6.0], 2),
        (Bits(3), [0.875], [1.0], 1),
        (OwnStep(), [0.5, 0.25, 8.0], [0.5, 0.5, 7.75], 2),
    ],
)
def test_neighbours_on_each_kind_of_grid(
    grid: replay.Grid, own: list[float], theirs: list[float], off: int
) -> None:
    found = [torch.tensor(each, dtype=torch.float64) for each in (own, theirs)]
    assert agreement._Comparison({"x": grid}, None)._of_tensors(*found, "x") == off


@pytest.mark.parametrize(
    ("grid", "own", "theirs"),
    [
        (Step(0.25), [1.0], [1.5]),
        (Step(0.25), [1.0], [1.125]),
        (Step(0.25), [1.0], [math.nan]),
        (Bits(3), [1.0], [0.75]),
        (Bits(3), [5.0], [5.5]),
        (Bits(3), [1.0], [math.inf]),
        (OwnStep(), [0.5, 0.25], [0.5, 0.75]),
        (OwnStep(), [0.0, 0.0], [0.0, 1.0]),
    ],
)
def test_what_is_no_neighbour_is_refused(
    grid: replay.Grid, own: list[float], theirs: list[float]
) -> None:
    found = [torch.tensor(each, dtype=torch.float64) for each in (own, theirs)]
    with pytest.raises(StateDiffers):
        agreement._Comparison({"x": grid}, None)._of_tensors(*found, "x")
