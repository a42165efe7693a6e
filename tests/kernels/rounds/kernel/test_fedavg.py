"""Phase 1 by federated averaging."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from client_sdk.simulation import simulate
from kernels import storage
from kernels.errors import ProgramError, StateError, StatisticsError
from kernels.layer.posterior import SCALE_BITS, Spectrum
from kernels.layer.refit import refit
from kernels.layer.statistics import Statistics
from kernels.model.model import Model
from kernels.rounds.kernel import fedavg
from kernels.rounds.program import Program
from kernels.rounds.shared.local_training import Fit, starting_scales, train_locally
from kernels.rounds.shared.site_mean import Weighting
from kernels.rounds.site.site import Part, Site
from tests.conformance.algorithm import AlgorithmConformance, ChosenByHeldOutError
from tests.dealing import DEALING
from tests.kernels.rounds import outcomes as small
from tests.kernels.rounds import sums, tables

THESIS = fedavg.Spec(rounds=1, local_steps=3, scales=fedavg.Scales.AVERAGED, validate=False)


class TestFedAvg(ChosenByHeldOutError):
    algorithm = fedavg
    # Adam divides a gradient by its own size, so the rounding of its sum over rows is amplified
    # where it is small, by up to 1/ε = 10⁸ in a step.
    tolerance = 1e-6

    def spec(self) -> Any:
        return fedavg.Spec(rounds=2, local_steps=3)

    def harmful(self, *, patience: int) -> Any:
        return fedavg.Spec(rounds=5, local_steps=5, learning_rate=0.15, patience=patience)


class TestAsInTheThesis(AlgorithmConformance):
    algorithm = fedavg
    tolerance = 1e-6

    def spec(self) -> Any:
        return replace(THESIS, rounds=2)


class TestWithoutHeldOutRows(AlgorithmConformance):
    algorithm = fedavg
    tolerance = 1e-6

    def spec(self) -> Any:
        return fedavg.Spec(rounds=1, local_steps=1)

    def sites(self) -> list[Site]:
        return [tables.site(seed=seed, held_out=0.0) for seed in range(3)]


class TestByRowsWithAProximalTerm(AlgorithmConformance):
    algorithm = fedavg
    tolerance = 1e-6

    def spec(self) -> Any:
        return fedavg.Spec(
            rounds=2, local_steps=2, weighting=Weighting.ROWS, proximal=0.1, patience=0
        )


class TestWithOutcomes(AlgorithmConformance):
    algorithm = fedavg
    tolerance = 1e-6

    def spec(self) -> Any:
        return fedavg.Spec(rounds=1, local_steps=2)

    def sites(self) -> list[Site]:
        return [small.site(30, seed=seed, schema=small.MIXED) for seed in range(3)]

    def model(self, sites: list[Site]) -> Model:
        return small.fitted(sites)


def test_with_outcomes_training_lowers_the_held_out_error() -> None:
    sites = [small.site(80, seed=seed, schema=small.ALONE) for seed in range(2)]
    spec = fedavg.Spec(rounds=4, local_steps=5, learning_rate=0.02)
    last = sums.after_all(fedavg, spec, small.fitted(sites, kernel=small.DEEP), sites)
    assert last.best.step > 0
    assert last.best.error < last.history[0].held_out_error


@pytest.mark.parametrize("weighting", list(Weighting))
def test_a_round_is_the_mean_of_what_sites_trained(weighting: Weighting) -> None:
    sites, model = _sites_and_model(rows=(20, 40, 60))
    spec = replace(THESIS, weighting=weighting)
    state = fedavg.initial(spec, model)
    fits, rows = [], []
    for site in sites:
        x, y = site.table(Part.TRAINING, model)
        start = Fit.of(model, state.scales)
        fits.append(
            train_locally(model.kernel, start, x, y, steps=3, learning_rate=0.01, proximal=0.0)
        )
        rows.append(float(len(y)) if weighting is Weighting.ROWS else 1.0)
    shares = torch.tensor(rows, dtype=torch.float64) / sum(rows)

    after = sums.after_one(fedavg, state, sites).model
    for part, found in (
        ("weights", after.weights),
        ("log_noise", after.hyperparameters.noise_variance.log() / 2),
        ("log_prior", after.hyperparameters.prior_variance.log() / 2),
    ):
        mean = shares @ torch.stack([getattr(fit, part) for fit in fits])
        rounding = 1e-9 if part == "weights" else 2.0**-SCALE_BITS
        assert torch.allclose(found, mean, rtol=0, atol=rounding)


@pytest.mark.parametrize("weighting", list(Weighting))
def test_a_site_without_rows_has_no_weight(weighting: Weighting) -> None:
    sites, model = _sites_and_model(rows=(20, 40))
    spec = replace(THESIS, weighting=weighting)
    without = sums.after_all(fedavg, spec, model, sites).model
    joined = sums.after_all(fedavg, spec, model, [*sites, _empty(sites[0])]).model
    assert torch.allclose(joined.weights, without.weights, rtol=0, atol=1e-9)


def test_nothing_to_train_on_is_refused_by_name() -> None:
    sites, model = _sites_and_model(rows=(20,))
    with pytest.raises(StatisticsError, match="no site has rows"):
        sums.after_one(fedavg, fedavg.initial(THESIS, model), [_empty(sites[0])])


def test_it_stops_when_patience_is_over() -> None:
    sites, model = _sites_and_model(rows=(40, 40))
    spec = fedavg.Spec(rounds=50, local_steps=2, learning_rate=1.0, patience=2)
    last = sums.after_all(fedavg, spec, model, sites)
    assert last.round == last.best.step + 2 < 50
    assert torch.equal(last.model.weights, last.best.weights)


def test_without_held_out_rows_the_last_model_is_kept() -> None:
    sites = [tables.site(30, seed=seed, held_out=0.0) for seed in range(2)]
    model = tables.fitted(sites)
    last = sums.after_all(fedavg, fedavg.Spec(rounds=2, local_steps=1, patience=1), model, sites)
    assert last.best.step == last.round == 2
    assert all(progress.held_out_error is None for progress in last.history)


def test_sigma_and_lambda_are_fitted_to_all_rows_at_the_weights_kept() -> None:
    sites, model = _sites_and_model(rows=(30, 50))
    kept = sums.after_all(fedavg, fedavg.Spec(rounds=2, local_steps=3), model, sites).model
    table = tables.together(sites).table(Part.TRAINING, kept)
    expected = refit(Spectrum.of(Statistics.of_table(kept.urk, *table)))
    for part in ("noise_variance", "prior_variance"):
        found = getattr(kept.hyperparameters, part)
        assert torch.allclose(found, getattr(expected, part), rtol=1e-4)


def test_refitting_without_validation_is_left_to_the_linear_layer() -> None:
    sites, model = _sites_and_model(rows=(30, 50))
    spec = fedavg.Spec(rounds=2, local_steps=1, validate=False)
    assert sums.after_all(fedavg, spec, model, sites).model.hyperparameters is None


def test_training_lowers_the_error_of_the_whole_program() -> None:
    spec = fedavg.Spec(rounds=6, local_steps=10, learning_rate=0.02)
    simulated = simulate(tables.program(spec), tables.tables(3, rows=60), DEALING, secure=False)
    history = simulated.states[1].history
    assert simulated.states[1].best.error < 0.8 * history[0].held_out_error


@pytest.mark.parametrize("spec", [fedavg.Spec(rounds=1, local_steps=2), THESIS])
def test_masks_change_nothing(spec: fedavg.Spec) -> None:
    program = Program.from_json(tables.program(spec).to_json())
    hidden, plain = (simulate(program, tables.tables(3), DEALING, secure=s) for s in (True, False))
    for one, other in zip(hidden.states, plain.states, strict=True):
        assert storage.encode(one) == storage.encode(other)


def test_a_state_with_scales_of_other_targets_is_refused() -> None:
    _, model = _sites_and_model(rows=(20,))
    state = fedavg.initial(THESIS, model)
    with pytest.raises(StateError, match="must have 2 values, one per target, not 3"):
        replace(state, scales=starting_scales(3))


@pytest.mark.parametrize(
    "wrong",
    [
        {"rounds": 0},
        {"rounds": True},
        {"local_steps": 2.5},
        {"learning_rate": 0.0},
        {"learning_rate": float("nan")},
        {"proximal": -1.0},
        {"patience": -1},
        {"validate": 1},
        {"weighting": "size"},
        {"scales": "guessed"},
    ],
)
def test_impossible_parameters_are_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(ProgramError, match=next(iter(wrong))):
        fedavg.Spec(**wrong)


def _sites_and_model(rows: tuple[int, ...]) -> tuple[list[Site], Model]:
    sites = [tables.site(n, seed=seed) for seed, n in enumerate(rows)]
    return sites, tables.fitted(sites)


def _empty(site: Site) -> Site:
    return Site(
        {
            part: rows.take(torch.zeros(len(rows), dtype=torch.bool))
            for part, rows in site.records.items()
        }
    )
