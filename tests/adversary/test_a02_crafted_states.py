"""A2: a state that is crafted to learn more about a table than its sums are charged for.

Broadcasts come from the coordinator. With differential privacy, a site that refuses after it has
read its rows has revealed something about them without a charge. And noise is sized for the rows of
one patient, not for the effect of rounding on everyone else's rows.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from kernels import storage
from kernels.errors import StateError
from kernels.features.rounding import feature_rounding
from kernels.features.urk import URK, starting_weights, weight_count
from kernels.layer.posterior import Hyperparameters
from kernels.layer.statistics import Noise, Statistics
from kernels.model.model import known
from kernels.noisy.evaluation import Clips
from kernels.rounds.algorithm import contributed
from kernels.rounds.broadcast import received
from kernels.rounds.columns import moments
from kernels.rounds.judging import evaluation, recalibration
from kernels.rounds.kernel import elbo, private_exact
from kernels.rounds.layer import linear
from kernels.rounds.program import Program
from kernels.rounds.registry import algorithm_of
from kernels.rounds.shared.clipped import row_gradients
from kernels.rounds.shared.pooled import Pooled
from kernels.scores.student_t import StudentT
from privacy.encoding import Encoding
from tests.kernels.rounds import private

_BOUNDS = moments.Spec(from_bounds=True)


def _state(whole: Program, weights: torch.Tensor | None = None) -> Any:
    """Return an honest state of the last stage, with other weights if given."""
    model = whole.start()
    for algorithm, spec in whole.algorithms():
        state = algorithm.initial(spec, model)
        model = state.model
    return state if weights is None else replace(state, model=replace(model, weights=weights))


def _received(whole: Program, state: Any) -> Any:
    return received(storage.encode(state, broadcast=True), whole, len(whole.stages) - 1)


def test_features_that_overflow_for_some_patients_only_are_asked_of_nobody() -> None:
    whole = private.program(_BOUNDS, linear.Spec(), schema=private.ROWS, kernel=private.SMOOTH)
    # 1/ℓ of the first column is so large that the oldest patients overflow, and others do not.
    weights = starting_weights(whole.kernel).index_fill(0, torch.tensor([0]), -709.5)
    state = _state(whole, weights)
    with pytest.raises(StateError, match="rounding"):
        _received(whole, state)
    # And if it were accepted, whether there is an answer would not depend on who is in the table.
    for age in ([60.0] * 30, [60.0] * 30 + [120.0]):
        cells = {**private.table(len(age), seed=1, outliers=0.0), "age": age}
        contributed(linear, state, private.site(cells, private.ROWS, held_out=0.0))


@pytest.mark.parametrize("rows", [3, 8195])
def test_weights_that_make_other_rows_features_of_rounding_are_refused(rows: int) -> None:
    kernel = replace(private.KERNEL, inputs=6)
    huge = starting_weights(kernel) * 2.0**40
    x = torch.randn(rows + 1, 6, dtype=torch.float64, generator=torch.manual_seed(0))
    y = torch.zeros(rows + 1, 1, dtype=torch.float64)
    tables = (x, y), (x[1:], y[1:])
    more, less = (Statistics.of_table(URK(kernel, huge), *table).scatter for table in tables)
    assert float((more - less).norm()) >= 1 - 1e-9
    whole = private.program(_BOUNDS, linear.Spec(), kernel=kernel)
    with pytest.raises(StateError, match="rounding"):
        _received(whole, _state(whole, huge))


@pytest.mark.parametrize("growth", [1.0, 4.0])
def test_weights_that_training_finds_are_accepted(growth: float) -> None:
    for kernel in (private.KERNEL, private.SMOOTH):
        whole = private.program(_BOUNDS, linear.Spec(), kernel=kernel)
        weights = starting_weights(kernel) * growth
        assert feature_rounding(URK(kernel, weights)) < 2.0**-30
        _received(whole, _state(whole, weights))


def test_infinities_that_a_later_layer_would_hide_are_found() -> None:
    weights = starting_weights(private.KERNEL)
    shapes = private.KERNEL.inputs * private.KERNEL.hidden[0]
    weights[:shapes] = 1e308
    weights[shapes : shapes + private.KERNEL.hidden[0]] = 0.0
    assert feature_rounding(URK(private.KERNEL, weights)) == float("inf")


def test_a_units_gradient_is_never_made_of_rounding() -> None:
    spec = private_exact.Spec(steps=2, penalty=1.0)
    whole = private.program(_BOUNDS, spec)
    features = whole.kernel.features
    noise = Noise(scatter=1.0, cross=1.0, target_squares=1.0, count=1.0)
    nothing = replace(Statistics.zero(features=features, targets=2), count=100, noise=noise)
    scales = Hyperparameters.of(noise_variance=1e-20, prior_variance=1.0, targets=2)
    state = _state(whole)
    model = replace(state.model, hyperparameters=scales)
    same_for_all = replace(state, model=model, pooled=Pooled(nothing))
    with pytest.raises(StateError, match="rounding"):
        private_exact.contribute(same_for_all, private.site(private.table(1, seed=1)))


@pytest.mark.parametrize("rows", range(1, 9))
def test_one_row_more_changes_no_other_rows_gradient_by_a_bit(rows: int) -> None:
    whole = private.program(_BOUNDS, private_exact.Spec(steps=2), kernel=private.SMOOTH)
    kernel = URK(whole.kernel)
    x = torch.randn(rows + 1, 6, dtype=torch.float64, generator=torch.manual_seed(1))
    y = torch.zeros(rows + 1, 1, dtype=torch.float64)

    def of_a_constant(x: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        features, pullback = kernel.features_and_row_pullback(x)
        return pullback(2e20 * features)

    alone = row_gradients(of_a_constant, x[1:], y[1:])
    assert torch.equal(row_gradients(of_a_constant, x, y)[1:], alone)


@pytest.mark.parametrize("where", ["weights", "noise", "mean"])
def test_an_elbo_state_is_within_what_training_gives(where: str) -> None:
    whole = private.program(_BOUNDS, elbo.Spec(steps=2))
    state = _state(whole)
    first = weight_count(whole.kernel)
    position, value = {"weights": (0, 1e300), "noise": (-1, -300.0), "mean": (first, 1e30)}[where]
    parameters = state.parameters.clone()
    parameters[position] = value
    with pytest.raises(StateError):
        replace(state, parameters=parameters)


@pytest.mark.parametrize("spec", [evaluation.Spec(recalibrated=False), recalibration.Spec()])
@pytest.mark.parametrize("size", [1e150, 1e300])
def test_a_model_that_overflows_for_some_rows_is_scored_as_any_other(
    spec: Any, size: float
) -> None:
    whole = private.program(*private.LAYER, spec, schema=private.ROWS)
    sites = [private.site(private.table(60, seed=s), private.ROWS) for s in range(3)]
    model = private.fitted(private.program(*private.LAYER, schema=private.ROWS), sites)
    honest = known(model.statistics, "linear")
    statistics = replace(honest, cross=honest.cross * size)
    model = replace(model, privacy=whole.privacy, statistics=statistics)
    algorithm = algorithm_of(spec)
    state = algorithm.initial(spec, model)
    layout = algorithm.layout(state)
    encoding = Encoding.noisy(layout, multiplier=1.0, honest=3, max_clients=3)
    silent = np.zeros(layout.length, dtype="<i8")
    for site in sites:
        encoding.encode(contributed(algorithm, state, site), noise=silent)


def test_hyperparameters_of_any_size_are_scored() -> None:
    clips = Clips.of(Hyperparameters(torch.tensor([1e-12]).double(), torch.tensor([1.0]).double()))
    residuals = torch.tensor([[1e300], [-1e300], [0.0]], dtype=torch.float64)
    variance = torch.tensor([[1e-300], [1e300], [1e-300]], dtype=torch.float64)
    for sums in (
        clips.of_model(residuals, variance),
        clips.of_laws([StudentT(freedom=2.5, scale=1e-3)], residuals, variance),
    ):
        assert all(bool(own.isfinite().all()) for own in sums.values())
