"""Training on grids: rounding dies out instead of growing."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from client_sdk.simulation import simulate
from kernels.features.linear_part import with_log_ratio
from kernels.features.urk import starting_weights
from kernels.layer.statistics import Statistics
from kernels.model.model import Model
from kernels.model.prediction import predict
from kernels.reproducible import on_grid
from kernels.rounds.kernel import exact
from kernels.rounds.shared.grid import TARGET_STEP, feature_steps, gridded, regenerated
from kernels.rounds.shared.sufficient import contribution_of, statistics_blocks
from privacy.encoding import Encoding
from privacy.layout import Layout
from tests.dealing import DEALING
from tests.kernels.rounds import tables
from tests.kernels.rounds.sums import add_plainly

ROWS = 120
MODEL = Model(tables.SCHEMA, tables.KERNEL, max_rows=1000)


def _rows(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    angles = torch.rand(ROWS, MODEL.kernel.samples, generator=generator, dtype=torch.float64) * 6
    phi = torch.cat([angles.cos(), angles.sin()], 1) / MODEL.kernel.normalising_square**0.5
    y = torch.randn(ROWS, MODEL.targets, generator=generator, dtype=torch.float64)
    return phi, y


def _beside(log_ratio: float, **model: int) -> Model:
    kernel = replace(tables.BESIDE, samples=model.pop("samples", tables.KERNEL.samples))
    weights = with_log_ratio(starting_weights(kernel), log_ratio)
    return Model(tables.SCHEMA, kernel, weights=weights, **model)


@pytest.mark.parametrize("log_ratio", [-3.0, 0.0, 0.7, 2.75])
def test_a_linear_part_has_a_grid_and_a_fixed_point_of_its_own_scale(log_ratio: float) -> None:
    """In a program of usual size: 100 samples, 100,000 rows a site, 16 sites."""
    model = _beside(log_ratio, max_rows=100_000, samples=100)
    generator = torch.Generator().manual_seed(4)
    x = 3 * torch.randn(ROWS, model.kernel.inputs, generator=generator, dtype=torch.float64)
    y = torch.randn(ROWS, model.targets, generator=generator, dtype=torch.float64)
    phi = model.urk.features(x).detach()
    whole = gridded(model, [(phi, y)])
    relative = (on_grid(phi, feature_steps(model)) - phi).abs().amax(0) / phi.abs().amax(0)
    assert float(relative.max()) < 2.0**-12
    edges = range(0, ROWS + 1, 10)
    parts = [gridded(model, [(phi[a:b], y[a:b])]) for a, b in pairwise(edges)]
    encoding = Encoding.finest(Layout(statistics_blocks(model)), max_clients=16)
    total = add_plainly(encoding, [contribution_of(part, model) for part in parts])
    summed = regenerated(total, model)
    assert torch.equal(summed.scatter, whole.scatter)
    assert torch.equal(summed.cross, whole.cross)
    assert summed.rounding == 0.0


@given(st.lists(st.integers(1, ROWS - 1), max_size=30, unique=True), st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_statistics_on_grids_are_the_same_to_the_last_bit_for_every_division(
    cuts: list[int], seed: int
) -> None:
    phi, y = _rows(seed)
    whole = gridded(MODEL, [(phi, y)])
    edges = [0, *sorted(cuts), ROWS]
    parts = [gridded(MODEL, [(phi[a:b], y[a:b])]) for a, b in pairwise(edges)]
    encoding = Encoding.finest(Layout(statistics_blocks(MODEL)), max_clients=1000)
    total = add_plainly(encoding, [contribution_of(part, MODEL) for part in parts])
    summed = regenerated(total, MODEL)
    assert torch.equal(summed.scatter, whole.scatter)
    assert torch.equal(summed.cross, whole.cross)
    assert torch.equal(summed.target_squares, whole.target_squares)
    assert summed.rounding == 0.0


def test_statistics_on_grids_are_those_of_features_and_targets_within_half_a_step() -> None:
    phi, y = _rows(0)
    steps = feature_steps(MODEL)
    rounded = on_grid(phi, steps)
    assert bool(((rounded - phi).abs() <= steps / 2).all())
    expected = Statistics.of_features(rounded, on_grid(y, TARGET_STEP))
    in_chunks = gridded(MODEL, [(phi[:50], y[:50]), (phi[50:], y[50:])])
    assert torch.equal(in_chunks.scatter, expected.scatter)
    assert torch.equal(in_chunks.cross, expected.cross)


def test_a_sum_of_too_many_sites_to_regenerate_declares_its_rounding() -> None:
    model = replace(MODEL, max_rows=100_000)
    phi, y = _rows(0)
    encoding = Encoding.finest(Layout(statistics_blocks(model)), max_clients=250)
    total = add_plainly(encoding, [contribution_of(gridded(model, [(phi, y)]), model)] * 250)
    assert regenerated(total, model).rounding > 0


@pytest.fixture(scope="module")
def trained() -> list[Model]:
    """Return models after many steps on the same rows, dealt to other numbers of sites."""
    sites = [tables.site(seed=seed) for seed in range(8)]
    program = tables.program(exact.Spec(steps=40, penalties=(3.0,)))
    divisions = [
        [tables.together(sites[first : first + size]) for first in range(0, 8, size)]
        for size in (8, 4, 1)
    ]
    return [simulate(program, each, DEALING, secure=False).model for each in divisions]


@pytest.mark.full
def test_many_steps_give_the_same_weights_to_the_last_bit_for_every_division(
    trained: list[Model],
) -> None:
    pooled, *others = trained
    for model in others:
        assert torch.equal(model.urk.weights, pooled.urk.weights)


def test_many_steps_give_the_same_predictions_for_every_division(
    trained: list[Model],
) -> None:
    pooled, *others = trained
    table = tables.table(50, seed=99)
    expected = predict(pooled, table)
    for model in others:
        gap = (predict(model, table).mean - expected.mean).abs() / expected.variance.sqrt()
        assert float(gap.max()) < 1e-8
