"""Phase 1 by kernel distillation."""

from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from client_sdk.simulation import simulate
from kernels import storage
from kernels.errors import NotFitted, ProgramError, StateError, StatisticsError, TableRefused
from kernels.features.spec import Architecture, KernelSpec
from kernels.features.urk import URK
from kernels.layer.statistics import Statistics
from kernels.model.model import Model
from kernels.rounds.kernel import distillation
from kernels.rounds.kernel.distillation import distillation_loss
from kernels.rounds.program import Program
from kernels.rounds.registry import restore
from kernels.rounds.shared.grid import WEIGHT_STEP
from kernels.rounds.shared.local_training import Fit, minimise, starting_scales, train_locally
from kernels.rounds.shared.pooled import Pooled
from kernels.rounds.shared.public_set import columns_of, public_table
from kernels.rounds.site.site import Part, Site
from tests.conformance.algorithm import AlgorithmConformance, ChosenByHeldOutError
from tests.dealing import DEALING
from tests.kernels.rounds import sums, tables

PUBLIC = columns_of(tables.table(12, seed=77))
THESIS = distillation.Spec(
    public=PUBLIC,
    rounds=2,
    local_steps=3,
    distillation_steps=3,
    alphas=(100.0,),
    validate=False,
)
VALIDATED = replace(THESIS, alphas=(1.0, 100.0), validate=True)


class TestDistillation(ChosenByHeldOutError):
    algorithm = distillation
    # As for federated averaging: Adam amplifies the rounding of small gradients.
    tolerance = 1e-6

    def spec(self) -> Any:
        return VALIDATED

    def harmful(self, *, patience: int) -> Any:
        return replace(VALIDATED, rounds=4, distillation_rate=0.05, patience=patience)


class TestAsInTheThesis(AlgorithmConformance):
    algorithm = distillation
    tolerance = 1e-6

    def spec(self) -> Any:
        return THESIS


class TestWithoutHeldOutRows(AlgorithmConformance):
    algorithm = distillation
    tolerance = 1e-6

    def spec(self) -> Any:
        return replace(VALIDATED, rounds=1, alphas=(100.0,))

    def sites(self) -> list[Site]:
        return [tables.site(seed=seed, held_out=0.0) for seed in range(3)]


def test_the_summed_teacher_is_the_mean_of_the_kernels_computed_in_one_place() -> None:
    sites, model = _sites_and_model(rows=(20, 40, 60))
    public, _ = public_table(PUBLIC, model)
    kernels = []
    for weights in _trained(sites, model):
        with torch.no_grad():
            kernels.append(URK(model.kernel, weights)(public, public).to_dense())
    expected = torch.stack(kernels).mean(0)
    state = distillation.initial(THESIS, model)
    total = sums.total(distillation, state, [*sites, _empty(sites[0])])
    teacher = torch.tensor(total["gram"]) / float(total["sites"])
    assert torch.allclose(teacher, expected, rtol=0, atol=1e-12)

    after = distillation.update(state, total)
    with torch.no_grad():
        distilled = after.model.urk(public, public).to_dense()
    mismatch = (distilled - expected).square().mean().item()
    assert after.history[0].mismatch == pytest.approx(mismatch, abs=2.0**-30)

    _, labels = public_table(PUBLIC, model)
    end = minimise(
        lambda urk, log_noise, log_prior: distillation_loss(
            urk.features(public),
            labels,
            expected,
            log_noise=log_noise,
            log_prior=log_prior,
            alpha=100.0,
        ),
        model.kernel,
        Fit.of(model, starting_scales(2)),
        steps=3,
        learning_rate=0.01,
        damping=distillation.DAMPING,
    )
    # Only rounding to the grid after each step differs.
    assert torch.allclose(after.model.weights, end.weights, rtol=0, atol=3 * WEIGHT_STEP)
    # What the next round's training goes on from.
    for part in ("noise_variance", "prior_variance"):
        found, sought = (getattr(each, part) for each in (after.scales, end.hyperparameters))
        assert torch.allclose(found, sought, rtol=8 * WEIGHT_STEP)
        assert not torch.allclose(found, torch.ones(2).double(), rtol=1e-3)


def test_the_gradient_is_that_of_the_dense_formula() -> None:
    generator = torch.Generator().manual_seed(3)
    _, model = _sites_and_model(rows=(20,))
    x, y = public_table(PUBLIC, model)
    root = torch.randn(len(x), 4, generator=generator, dtype=torch.float64)
    scales = [torch.tensor(v, dtype=torch.float64) for v in ([-0.5, 0.1], [0.3, -0.2])]

    def gradients(loss: Any) -> tuple[Tensor, ...]:
        urk = URK(model.kernel)
        noise, prior = (value.clone().requires_grad_() for value in scales)
        value = loss(urk.features(x), noise, prior)
        return value.detach(), *torch.autograd.grad(value, (urk.weights, noise, prior))

    def ours(phi: Tensor, log_noise: Tensor, log_prior: Tensor) -> Tensor:
        return distillation_loss(
            phi, y, root @ root.mT, log_noise=log_noise, log_prior=log_prior, alpha=7.0
        )

    def dense(phi: Tensor, log_noise: Tensor, log_prior: Tensor) -> Tensor:
        gram, loss = phi @ phi.mT, torch.zeros((), dtype=torch.float64)
        for target in range(2):
            covariance = (2 * log_prior[target]).exp() * gram
            covariance = covariance + (2 * log_noise[target]).exp() * torch.eye(len(x)).double()
            normal = torch.distributions.MultivariateNormal(
                torch.zeros(len(x)).double(), covariance
            )
            loss = loss - normal.log_prob(y[:, target]) / len(x)
        return loss + 7.0 * ((gram - root @ root.mT) ** 2).sum() / len(x) ** 2

    for found, expected in zip(gradients(ours), gradients(dense), strict=True):
        assert torch.allclose(found, expected, rtol=1e-8, atol=1e-10)


def test_distilling_longer_lowers_the_loss_and_comes_near_the_teacher() -> None:
    sites, model = _sites_and_model(rows=(40, 40))
    spec = replace(THESIS, rounds=1, local_steps=20, alphas=(1000.0,))
    few = sums.after_all(distillation, replace(spec, distillation_steps=2), model, sites)
    many = sums.after_all(distillation, replace(spec, distillation_steps=100), model, sites)
    (few,), (many,) = few.history, many.history
    assert many.loss_after < few.loss_after < few.loss_before == many.loss_before
    assert many.mismatch < 0.1 * few.mismatch


def test_nothing_of_a_site_s_weights_is_sent_or_kept() -> None:
    sites, model = _sites_and_model(rows=(20, 40))
    theirs = _trained(sites, model)
    state = distillation.initial(THESIS, model)
    assert [block.name for block in distillation.layout(state).blocks] == ["gram", "sites"]
    state = sums.after_one(distillation, state, sites)
    for data in (storage.encode(state), storage.encode(state, broadcast=True)):
        kept = restore(data)
        assert kept.model.weights.shape == theirs[0].shape
        for weights in (*theirs, torch.stack(theirs).mean(0)):
            assert not torch.isclose(kept.model.weights, weights, rtol=0, atol=1e-7).all()
            assert weights.numpy().tobytes() not in data


def test_a_site_without_rows_is_no_teacher() -> None:
    sites, model = _sites_and_model(rows=(20, 40))
    empty = _empty(sites[0])
    state = distillation.initial(THESIS, model)
    without = sums.total(distillation, state, sites)
    joined = sums.total(distillation, state, [*sites, empty])
    assert float(joined["sites"]) == 2
    assert np.allclose(joined["gram"], without["gram"], rtol=0, atol=1e-12)
    with pytest.raises(StatisticsError, match="no site has rows"):
        distillation.update(state, sums.total(distillation, state, [empty]))


def test_kernels_without_a_norm_have_a_documented_bound() -> None:
    sites, model = _sites_and_model(rows=(20, 40))
    kernel = KernelSpec(inputs=5, architecture=Architecture.POLYNOMIAL, samples=6)
    model = replace(model, kernel=kernel)
    state = sums.after_one(distillation, distillation.initial(THESIS, model), sites)
    assert distillation.layout(state).block("gram").bound == pytest.approx(6 * 100.0**2)


def test_the_public_set_is_on_the_scale_of_all_sites_and_survives_the_program() -> None:
    _, model = _sites_and_model(rows=(20, 40))
    read = Program.from_json(tables.program(THESIS).to_json()).stages[1]
    assert read == THESIS
    x, y = public_table(read.public, model)
    as_site = Site.of_table(tables.SCHEMA, tables.table(12, seed=77), held_out=0.0, dealing=DEALING)
    expected_x, expected_y = as_site.table(Part.TRAINING, model)
    assert torch.equal(x, expected_x)
    assert torch.equal(y, expected_y)


def test_a_public_set_need_not_say_whose_rows_they_are() -> None:
    _, model = _sites_and_model(rows=(20,))
    model = replace(model, schema=replace(tables.SCHEMA, patient="patient"))
    assert len(public_table(PUBLIC, model)[0]) == 12


def test_a_public_set_that_does_not_fit_the_schema_is_refused_at_once() -> None:
    _, model = _sites_and_model(rows=(20,))
    with pytest.raises(TableRefused, match="ward"):
        distillation.initial(distillation.Spec(public=PUBLIC[:2]), model)
    with pytest.raises(NotFitted, match="moments"):
        distillation.initial(THESIS, replace(model, standardiser=None))


@pytest.mark.parametrize(
    "wrong",
    [
        {"scales": starting_scales(3)},
        {"scales": None},
        {"run": 3},
        {"round": 3},
        {"pooled": Pooled(Statistics.zero(features=3, targets=2))},
    ],
)
def test_a_state_that_is_not_of_its_program_is_refused(wrong: dict[str, Any]) -> None:
    _, model = _sites_and_model(rows=(20,))
    with pytest.raises(StateError):
        replace(distillation.initial(VALIDATED, model), **wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"public": ()},
        {"public": "age"},
        {"public": (("age", (1.0,)), ("stay", ()))},
        {"public": (("age", (float("inf"),)),)},
        {"public": (("age", (object(),)),)},
        {"distillation_steps": 0},
        {"distillation_rate": 2.0},
        {"alphas": (1.0, -1.0)},
        {"alphas": ()},
        {"alphas": 100.0},
        {"alphas": (1.0, 100.0), "validate": False},
        {"validate": 1},
        {"patience": -1},
    ],
)
def test_impossible_parameters_are_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(ProgramError, match=next(iter(wrong))):
        distillation.Spec(**{"public": PUBLIC, **wrong})


def test_there_is_a_pass_for_each_alpha_from_the_same_start_and_the_best_of_all_is_kept() -> None:
    sites, model = _sites_and_model(rows=(40, 40, 40))
    spec = replace(VALIDATED, alphas=(1000.0, 1.0, 100.0), distillation_rate=0.02, patience=0)
    last = sums.after_all(distillation, spec, model, sites)
    assert [(each.run, each.step) for each in last.history] == [
        (run, round_) for run in range(3) for round_ in range(3)
    ]
    passes = [last.history[3 * run : 3 * run + 3] for run in range(3)]
    assert len({each[0].held_out_error for each in passes}) == 1
    assert all(each[0].loss_before is None for each in passes)
    # Each pass is what it would be alone.
    alone = [
        sums.after_all(distillation, replace(spec, alphas=(alpha,)), model, sites)
        for alpha in spec.alphas
    ]
    for several, one in zip(passes, alone, strict=True):
        for found, expected in zip(several, one.history, strict=True):
            assert asdict(replace(found, run=0)) == asdict(expected)
    best = min(alone, key=lambda state: state.best.error)
    assert len({state.best.error for state in alone}) == 3
    assert last.best.error == best.best.error
    assert torch.equal(last.model.weights, best.model.weights)


def test_patience_counts_within_each_pass() -> None:
    sites, model = _sites_and_model(rows=(40, 40))
    spec = replace(VALIDATED, rounds=6, distillation_rate=0.02, alphas=(1.0, 1e4), patience=3)
    last = sums.after_all(distillation, spec, model, sites)
    first, second = ([each for each in last.history if each.run == run] for run in (0, 1))
    assert (len(first), last.best.run, last.best.step) == (5, 0, 1)
    # Never as good as the first pass, but late to its own best.
    assert len(second) == 7


def test_several_alphas_need_held_out_rows_and_say_so_before_anything_is_trained() -> None:
    sites = [tables.site(30, seed=seed, held_out=0.0) for seed in range(2)]
    state = distillation.initial(VALIDATED, tables.fitted(sites))
    state = sums.after_one(distillation, state, sites)
    with pytest.raises(ProgramError, match="held-out rows"):
        sums.after_one(distillation, state, sites)


def test_without_held_out_rows_the_last_model_is_kept() -> None:
    sites = [tables.site(30, seed=seed, held_out=0.0) for seed in range(2)]
    spec = replace(VALIDATED, alphas=(100.0,), patience=1)
    last = sums.after_all(distillation, spec, tables.fitted(sites), sites)
    assert last.best.step == 2
    assert [each.held_out_error for each in last.history] == [None] * 3
    assert torch.equal(last.model.weights, last.best.weights)


def test_validating_changes_nothing_in_what_is_distilled() -> None:
    sites, model = _sites_and_model(rows=(30, 50))
    spec = replace(THESIS, validate=True, patience=0)
    plain = sums.after_all(distillation, THESIS, model, sites)
    validated = sums.after_all(distillation, spec, model, sites)
    assert [each.loss_after for each in plain.history] == [
        each.loss_after for each in validated.history[1:]
    ]


def test_training_lowers_the_error_of_the_whole_program() -> None:
    spec = replace(VALIDATED, rounds=3, local_steps=10, distillation_steps=30)
    simulated = simulate(tables.program(spec), tables.tables(3, rows=60), DEALING, secure=False)
    state = simulated.states[1]
    assert state.best.error < 0.8 * state.history[0].held_out_error


@pytest.mark.parametrize("spec", [replace(THESIS, rounds=1), replace(VALIDATED, rounds=1)])
def test_masks_change_nothing(spec: distillation.Spec) -> None:
    program = Program.from_json(tables.program(spec).to_json())
    hidden, plain = (simulate(program, tables.tables(3), DEALING, secure=s) for s in (True, False))
    for one, other in zip(hidden.states, plain.states, strict=True):
        assert storage.encode(one) == storage.encode(other)


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


def _trained(sites: list[Site], model: Model) -> list[Tensor]:
    start = Fit.of(model, starting_scales(model.targets))
    return [
        train_locally(
            model.kernel,
            start,
            *site.table(Part.TRAINING, model),
            steps=3,
            learning_rate=0.01,
            proximal=0.0,
        ).weights
        for site in sites
    ]
