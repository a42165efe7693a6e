"""Each sampler compared with closed-form posteriors: moments agree within Monte Carlo error."""

from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from kernels.errors import HyperparameterError, NotFitted, WeightsError, WrongShape
from kernels.samplers import cyclical_sghmc, psgld, sgld, swag
from kernels.samplers.cyclical_sghmc import Cycle
from kernels.samplers.diagnostics import split_rhat
from kernels.samplers.sampler import Sampler, minibatches, run
from tests.kernels.samplers.regression import Regression, deviations

CHAINS = 1000
WITHIN = 4.5
"""Standard errors allowed for the largest of nine moments: exceeded once in ten thousand runs."""


def _generator(seed: int = 1) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _ends(
    sampler: Sampler[Any], problem: Regression, *, steps: int, chains: int = CHAINS
) -> Tensor:
    """Return the parameters of independent chains after `steps` full-batch steps."""
    state, _ = run(
        sampler,
        problem.start(chains),
        [problem.table] * steps,
        keep=lambda _: False,
        generator=_generator(),
    )
    ends: Tensor = state.parameters
    return ends


# -- SGLD


def _sgld_law(problem: Regression, step_size: float) -> Tensor:
    identity = torch.eye(len(problem.mean)).double()
    shrunk = identity - step_size * problem.precision / (2 * problem.rows)
    return (problem.precision @ shrunk).inverse()


def test_sgld_has_the_posteriors_moments() -> None:
    problem = Regression.of(12)
    sampler = sgld.build(problem.log_posterior, step_size=0.003, temperature=1 / problem.rows)
    ends = _ends(sampler, problem, steps=900)
    assert deviations(ends, problem.mean, problem.covariance) < WITHIN
    # The check is sensitive enough: a fifth more noise is detected.
    hotter = sgld.build(problem.log_posterior, step_size=0.003, temperature=1.4 / problem.rows)
    ends = _ends(hotter, problem, steps=900)
    assert deviations(ends, problem.mean, problem.covariance) > WITHIN


def test_sglds_law_at_a_large_step_is_the_one_that_its_docstring_has() -> None:
    problem = Regression.of(12)
    sampler = sgld.build(problem.log_posterior, step_size=0.1, temperature=1 / problem.rows)
    ends = _ends(sampler, problem, steps=100)
    assert deviations(ends, problem.mean, _sgld_law(problem, 0.1)) < WITHIN
    assert deviations(ends, problem.mean, problem.covariance) > 2 * WITHIN


def test_temperature_divides_the_log_density() -> None:
    problem = Regression.of(12)
    sampler = sgld.build(problem.log_posterior, step_size=0.005, temperature=9 / problem.rows)
    ends = _ends(sampler, problem, steps=600)
    assert deviations(ends, problem.mean, 9 * problem.covariance) < WITHIN


# -- preconditioned SGLD

UNEVEN = (0.3, 1.0, 3.0)


def test_psgld_has_the_posteriors_moments_where_columns_differ_tenfold() -> None:
    problem = Regression.of(12, scales=UNEVEN)
    sampler = psgld.build(
        problem.log_posterior,
        step_size=0.004,
        adaptation_steps=300,
        temperature=1 / problem.rows,
    )
    ends = _ends(sampler, problem, steps=900)
    assert deviations(ends, problem.mean, problem.covariance) < WITHIN


def test_psgld_with_its_metric_held_is_sgld_in_that_metric() -> None:
    problem = Regression.of(12, scales=UNEVEN)
    squares = (problem.precision.diagonal() / problem.rows**2).expand(CHAINS, -1)
    metric = psgld.preconditioner(squares[0], steps=400).diag()
    sampler = psgld.build(
        problem.log_posterior,
        step_size=0.05,
        adaptation_steps=400,
        temperature=1 / problem.rows,
    )
    state = psgld.State(problem.start(CHAINS), squares, 400)
    generator = _generator()
    for _ in range(200):
        state = sampler.update(state, problem.table, generator)
    pull = 0.05 * metric @ problem.precision / (2 * problem.rows)
    law = (problem.precision @ (torch.eye(3).double() - pull)).inverse()
    assert deviations(state.parameters, problem.mean, law) < WITHIN
    assert deviations(state.parameters, problem.mean, problem.covariance) > WITHIN


def test_psglds_metric_is_held_after_adaptation() -> None:
    problem = Regression.of(20)
    sampler = psgld.build(problem.log_posterior, step_size=0.01, adaptation_steps=3)
    state, metrics = sampler.init(problem.start(2)), []
    for _ in range(6):
        state = sampler.update(state, problem.table, _generator())
        metrics.append(state.squares)
    changed = [not torch.equal(a, b) for a, b in pairwise(metrics)]
    assert changed == [True, True, False, False, False]


# -- cyclical SGHMC


def _sghmc_law(
    problem: Regression, *, step_size: float, cycle: Cycle, friction: float, steps: int
) -> tuple[Tensor, Tensor]:
    """Return mean and covariance of θ after `steps` steps from the mean, by recursion."""
    size = len(problem.mean)
    identity = torch.eye(size).double()
    law = torch.zeros(2 * size, 2 * size).double()
    for step in range(steps):
        now = step_size * cycle.share(step)
        pull = now * problem.precision / problem.rows
        kept = (1 - friction) * identity
        forward = torch.cat([torch.cat([identity - pull, kept], 1), torch.cat([-pull, kept], 1)])
        law = forward @ law @ forward.mT
        if cycle.samples(step):
            law += 2 * friction * now / problem.rows * identity.repeat(2, 2)
    return problem.mean, law[:size, :size]


def test_cyclical_sghmc_has_the_posteriors_moments_at_the_end_of_a_cycle() -> None:
    problem = Regression.of(12)
    cycle = Cycle(steps=400, sampling_steps=400)
    sampler = cyclical_sghmc.build(
        problem.log_posterior,
        step_size=0.03,
        cycle=cycle,
        friction=0.5,
        temperature=1 / problem.rows,
    )
    ends = _ends(sampler, problem, steps=400)
    assert deviations(ends, problem.mean, problem.covariance) < WITHIN


@pytest.mark.parametrize("sampling_steps", [30, 90])
def test_the_law_of_every_step_of_a_cycle_is_known(sampling_steps: int) -> None:
    problem = Regression.of(12)
    cycle = Cycle(steps=90, sampling_steps=sampling_steps)
    chosen = {"step_size": 0.1, "cycle": cycle, "friction": 0.9}
    sampler = cyclical_sghmc.build(problem.log_posterior, **chosen, temperature=1 / problem.rows)
    start = problem.mean.expand(CHAINS, -1)
    state, _ = run(
        sampler, start, [problem.table] * 170, keep=lambda _: False, generator=_generator()
    )
    mean, covariance = _sghmc_law(problem, **chosen, steps=170)
    assert deviations(state.parameters, mean, covariance) < WITHIN


def test_samples_are_the_ends_of_the_epochs_with_noise() -> None:
    problem = Regression.of(10)
    cycle = Cycle(steps=12, sampling_steps=6)
    sampler = cyclical_sghmc.build(problem.log_posterior, step_size=0.01, cycle=cycle)
    kept: list[int] = []
    keep = cyclical_sghmc.ends_of_epochs(cycle, batches=3)
    batches = minibatches(problem.table, rows=4, epochs=8, generator=_generator())
    _, samples = run(
        sampler,
        problem.start(1)[0],
        batches,
        keep=lambda state: keep(state) and not kept.append(state.step),
        generator=_generator(),
    )
    assert kept == [9, 12, 21, 24]
    assert samples.shape == (4, 3)


def test_a_cycle_explores_without_noise() -> None:
    problem = Regression.of(10)
    sampler = cyclical_sghmc.build(
        problem.log_posterior, step_size=0.01, cycle=Cycle(steps=10, sampling_steps=2)
    )
    start = problem.start(1)[0]
    ends = [
        run(sampler, start, [problem.table] * 8, keep=lambda _: False, generator=_generator(seed))
        for seed in (1, 2)
    ]
    assert torch.equal(ends[0][0].parameters, ends[1][0].parameters)


# -- SWAG


def test_swag_collects_the_moments_of_the_iterates() -> None:
    problem = Regression.of(30)
    sampler = swag.build(problem.log_posterior, step_size=0.05, burn_in=7, interval=2, rank=4)
    plain = sampler.init(problem.start(2))
    iterates = []
    for batch in minibatches(problem.table, rows=5, epochs=5, generator=_generator()):
        plain = sampler.update(plain, batch, _generator())
        if plain.step > 7 and plain.step % 2 == 1:
            iterates.append(plain.parameters)
    kept = torch.stack(iterates)
    assert plain.count == len(kept) == 11
    assert torch.allclose(plain.mean, kept.mean(0))
    assert torch.allclose(plain.variance, kept.var(0, correction=0))
    running = torch.stack([kept[: i + 1].mean(0) for i in range(11)])
    assert torch.allclose(plain.deviations, (kept - running)[-4:])


def test_swag_draws_half_of_the_diagonal_and_half_of_the_low_rank_covariance() -> None:
    generator = _generator()
    columns = torch.randn(4, 3, generator=generator, dtype=torch.float64)
    mean = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    variance = torch.tensor([0.3, 1.0, 2.0], dtype=torch.float64)
    state = swag.State(mean, mean, mean.square() + variance, columns, 9, 9)
    expected = variance.diag() / 2 + columns.mT @ columns / (2 * 3)
    draws = swag.sample(state, 20_000, generator=generator)
    assert deviations(draws, mean, expected) < WITHIN


def test_swags_spread_is_the_one_that_its_docstring_has() -> None:
    problem, rows, step_size = Regression.of(400), 10, 0.01
    sampler = swag.build(problem.log_posterior, step_size=step_size, burn_in=300, rank=2)
    # Drawn with replacement, as in the formula; epochs with every row once have a smaller spread.
    generator = _generator()
    drawn = (torch.randint(400, (rows,), generator=generator) for _ in range(4000))
    state, _ = run(
        sampler,
        problem.start(1)[0],
        ((problem.x[rows], problem.y[rows]) for rows in drawn),
        keep=lambda _: False,
        generator=generator,
    )
    expected = torch.full((3,), step_size / (2 * rows)).double()
    assert torch.allclose(state.variance, expected, rtol=0.25)
    assert ((state.mean - problem.mean).abs() < problem.covariance.diagonal().sqrt()).all()


def test_swag_without_iterates_says_what_it_needs() -> None:
    with pytest.raises(NotFitted, match="needs at least 2"):
        swag.sample(swag.init(torch.zeros(3)), 1, generator=_generator())


def test_a_chain_that_has_diverged_says_so() -> None:
    problem = Regression.of(12)
    sampler = sgld.build(problem.log_posterior, step_size=10.0)
    with pytest.raises(WeightsError, match="diverged within 400 steps"):
        _ends(sampler, problem, steps=400, chains=2)


# -- chains, and whether they agree


def test_rhat_is_one_for_chains_of_one_law_and_not_before() -> None:
    problem = Regression.of(12)
    sampler = sgld.build(problem.log_posterior, step_size=0.05, temperature=1 / problem.rows)
    _, samples = run(
        sampler,
        problem.start(8),
        [problem.table] * 1500,
        keep=lambda _: True,
        generator=_generator(),
    )
    chains = samples.transpose(0, 1)
    assert (split_rhat(chains[:, 500:]) < 1.02).all()
    assert (split_rhat(chains[:, :20]) > 1.2).all()
    stuck = chains[:, 500:].clone()
    stuck[0] += 1.0
    assert (split_rhat(stuck) > 1.2).all()
    with pytest.raises(WrongShape, match="samples"):
        split_rhat(chains[:, :3])


def test_an_epoch_has_every_row_once() -> None:
    x = torch.arange(7.0)
    drawn = list(minibatches((x, 2 * x), rows=3, epochs=2, generator=_generator()))
    assert [len(batch[0]) for batch in drawn] == [3, 3, 1] * 2
    for epoch in (drawn[:3], drawn[3:]):
        assert sorted(torch.cat([each for each, _ in epoch]).tolist()) == x.tolist()
    assert all(torch.equal(double, 2 * each) for each, double in drawn)


BUILDS: dict[str, Any] = {
    "sgld": lambda target, **changed: sgld.build(target, **{"step_size": 0.01, **changed}),
    "psgld": lambda target, **changed: psgld.build(
        target, **{"step_size": 0.01, "adaptation_steps": 5, **changed}
    ),
    "cyclical_sghmc": lambda target, **changed: cyclical_sghmc.build(
        target, **{"step_size": 0.01, "cycle": Cycle(steps=5, sampling_steps=5), **changed}
    ),
    "swag": lambda target, **changed: swag.build(
        target, **{"step_size": 0.01, "burn_in": 2, **changed}
    ),
}


@pytest.mark.parametrize("build", BUILDS.values(), ids=BUILDS)
def test_a_chain_is_a_function_of_its_generator_and_changes_nothing(build: Any) -> None:
    problem = Regression.of(20)
    start = problem.start(2)
    before = start.clone()
    first, second = (
        run(
            build(problem.log_posterior),
            start,
            minibatches(problem.table, rows=6, epochs=3, generator=_generator(5)),
            keep=lambda _: True,
            generator=_generator(6),
        )[1]
        for _ in range(2)
    )
    assert torch.equal(first, second)
    assert first.shape == (12, 2, 3)
    assert torch.equal(start, before)


@pytest.mark.parametrize("build", BUILDS.values(), ids=BUILDS)
def test_impossible_steps_are_refused_by_name(build: Any) -> None:
    with pytest.raises(HyperparameterError, match="step_size"):
        build(lambda *_: torch.zeros(()), step_size=0.0)


def test_a_cycle_samples_within_itself() -> None:
    with pytest.raises(HyperparameterError, match="sampling_steps must be from 1"):
        Cycle(steps=3, sampling_steps=4)
