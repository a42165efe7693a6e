"""A site's own gain, which stays at the site."""

from pathlib import Path

import numpy as np
import pytest
import torch

from client_sdk.errors import HomeDamaged
from client_sdk.home.home import Home
from client_sdk.model.gain import Line, Verdict, gain
from client_sdk.model.model import GlobalModel
from client_sdk.model.paired import of_roots, standard_error
from client_sdk.simulation import simulate
from kernels.errors import EmptyTable, NotFitted
from kernels.layer.posterior import Posterior, Spectrum
from kernels.layer.refit import refit
from kernels.layer.statistics import Statistics
from kernels.model.model import known
from kernels.model.prediction import predict
from kernels.rounds.automatic import automatic_program
from kernels.rounds.judging import recalibration
from kernels.rounds.layer import linear
from kernels.rounds.site.site import Part, Site
from kernels.scores.metrics import Scores
from tests.dealing import DEALING
from tests.kernels.rounds import every_kind, noisy, tables


def test_a_small_site_gains_from_many_others() -> None:
    small = Site.of_table(noisy.SCHEMA, noisy.table(600, seed=1), held_out=0.98, dealing=DEALING)
    others = [
        Site.of_table(noisy.SCHEMA, noisy.table(400, seed=seed), held_out=0.2, dealing=DEALING)
        for seed in range(2, 7)
    ]
    model = simulate(noisy.program(), [small, *others], DEALING, secure=False).model
    own = gain(model, small)
    assert own.rows == sum(len(small.records[p]) for p in (Part.STOPPING, Part.CALIBRATION))
    assert bool((own.rmse > 0).all())
    assert bool((own.nll > 0).all())
    # In units: twice the response has twice the error and a log loss that is larger by log 2.
    assert float(own.federated.rmse()[1] / own.federated.rmse()[0]) == pytest.approx(2, rel=0.01)


def test_both_models_are_what_they_claim_to_be() -> None:
    sites = [tables.site(80, seed=seed) for seed in range(3)]
    model = tables.fitted(sites, linear.Spec(), recalibration.Spec(min_rows=1))
    plain = tables.fitted(sites, linear.Spec())
    own = gain(model, sites[0])
    x, y = sites[0].table(Part.TRAINING, model)
    statistics = Statistics.of_table(model.urk, x, y)
    local = Posterior.of(statistics, refit(Spectrum.of(statistics)))
    held_out = [sites[0].table(part, model) for part in (Part.STOPPING, Part.CALIBRATION)]
    local_scores, federated_scores = Scores.zero(2), Scores.zero(2)
    standardiser = known(model.standardiser, "moments")
    for (x, _), part in zip(held_out, (Part.STOPPING, Part.CALIBRATION), strict=True):
        records = sites[0].records[part]
        targets = known(records.targets, "moments")
        predicted = local.predict(model.urk.features(x).detach())
        mean, variance = standardiser.in_units(predicted.mean, predicted.variance)
        local_scores += Scores.of(mean, variance, targets)
        served = predict(plain, records)
        federated_scores += Scores.of(served.mean, served.variance, targets)
    for measure in ("rmse", "nll", "crps"):
        assert torch.allclose(getattr(own.local, measure)(), getattr(local_scores, measure)())
        assert torch.allclose(
            getattr(own.federated, measure)(), getattr(federated_scores, measure)()
        )


def test_it_needs_a_finished_model_training_rows_and_held_out_rows() -> None:
    sites = [tables.site(seed=seed) for seed in range(2)]
    with pytest.raises(NotFitted, match="linear"):
        gain(tables.fitted(sites), sites[0])
    model = tables.fitted(sites, linear.Spec())
    nothing = {
        part: rows.take(torch.zeros(len(rows), dtype=torch.bool))
        for part, rows in sites[0].records.items()
    }
    training = {Part.TRAINING: sites[0].records[Part.TRAINING]}
    with pytest.raises(EmptyTable, match="training"):
        gain(model, Site(nothing))
    with pytest.raises(EmptyTable, match="no held-out rows"):
        gain(model, Site(nothing | training))


def test_a_small_site_gains_for_outcomes_of_every_kind() -> None:
    def site(rows: int, seed: int, held_out: float) -> Site:
        rows_of = every_kind.table(rows, seed=seed)
        return Site.of_table(every_kind.SCHEMA, rows_of, held_out=held_out, dealing=DEALING)

    small = site(400, 1, 0.9)
    others = [site(250, seed, 0.2) for seed in range(2, 7)]
    model = simulate(every_kind.program(), [small, *others], DEALING, secure=False).model
    own = gain(model, small)
    assert [each.target for each in own.outcomes] == list(every_kind.SCHEMA.outcomes)
    assert {each.rows for each in own.outcomes} == {own.rows}
    assert all(each.log_loss > 0 for each in own.outcomes), own.outcomes
    assert bool((own.nll > 0).all())


def test_alone_a_site_has_the_federations_model_of_outcomes() -> None:
    site = Site.of_table(every_kind.SCHEMA, every_kind.table(300), held_out=0.3, dealing=DEALING)
    program = every_kind.program(sums=12)
    model = simulate(program, [site], DEALING, secure=False).model
    for each in gain(model, site).outcomes:
        assert each.local == pytest.approx(each.federated, abs=2e-3), each.target.name


def test_a_model_without_real_targets_has_a_gain() -> None:
    model = every_kind.artifact(every_kind.READMITTED).model
    site = Site.of_table(model.schema, every_kind.table(200, seed=1), held_out=0.5, dealing=DEALING)
    own = gain(model, site)
    assert own.targets == ()
    assert own.rows == own.outcomes[0].rows > 50


# -- of any table


def test_it_takes_a_table_and_judges_by_the_rows_that_were_held_out() -> None:
    own = [noisy.table(200, seed=seed) for seed in range(3)]
    model = simulate(noisy.program(), own, DEALING, secure=False)
    site = Site.of_table(noisy.SCHEMA, own[0], held_out=noisy.program().held_out, dealing=DEALING)
    found, expected = model.gain(own[0]), gain(model.model, site)
    assert found.rows == expected.rows < 200
    assert torch.equal(found.rmse, expected.rmse)
    assert torch.equal(found.rmse_error, expected.rmse_error)


def test_rows_that_were_dealt_elsewhere_are_not_judged_by_a_guess(tmp_path: Path) -> None:
    model = GlobalModel(every_kind.artifact(every_kind.READMITTED))
    with pytest.raises(HomeDamaged, match="home="):
        model.gain(every_kind.table(50), home=tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()
    home = Home(tmp_path / "home")
    home.identity()
    (line,) = model.gain(every_kind.table(200, seed=1), home=home.path).lines
    assert (line.target, line.score) == ("readmitted", "log loss")


def test_held_out_rows_that_the_layer_has_are_judged_without_them() -> None:
    program = automatic_program(noisy.SCHEMA, min_sites=1, max_sums=40, max_features=20)
    own = [noisy.table(150, seed=seed) for seed in range(3)]
    model = simulate(program, own, DEALING, secure=False)
    assert model.model.withheld is not None
    site = Site.of_table(noisy.SCHEMA, own[0], held_out=program.held_out, dealing=DEALING)
    found = model.gain(site)
    without = gain(model.model.judged, site)
    assert torch.equal(found.federated.squared_errors, without.federated.squared_errors)


# -- how sure it is, and what it says


def test_the_standard_error_is_that_of_the_differences_of_rows() -> None:
    random = torch.Generator().manual_seed(1)
    rows, repeats, found = 400, 300, []
    keys = [bytes([i // 256, i % 256]) for i in range(rows)]
    for _ in range(repeats):
        shared = torch.randn(rows, 1, generator=random, dtype=torch.float64)
        local = (2 * shared + torch.randn(rows, 1, generator=random).double()).square()
        federated = (2 * shared).square()
        found.append(
            (
                float(local.mean().sqrt() - federated.mean().sqrt()),
                float(standard_error(of_roots(local, federated), keys)),
            )
        )
    differences, errors = np.array(found).T
    assert errors.mean() == pytest.approx(differences.std(), rel=0.15)


def test_rows_of_one_patient_are_one_observation() -> None:
    influences = torch.tensor([[1.0], [-1.0], [2.0], [-2.0]], dtype=torch.float64)
    repeated = influences.repeat_interleave(25, 0)
    alone = standard_error(influences, [b"a", b"b", b"c", b"d"])
    patients = [each for each in (b"a", b"b", b"c", b"d") for _ in range(25)]
    assert torch.allclose(standard_error(repeated, patients), alone)
    assert bool(standard_error(influences, [b"a"] * 4).isnan())


def test_a_site_that_is_better_off_alone_is_told_so() -> None:
    """One site whose response has the opposite sign, and many rows."""
    other = noisy.table(1500, seed=1)
    names = [target.name for target in noisy.SCHEMA.targets]
    for name in names:
        other[name] = -np.asarray(other[name])
    tables_of_all = [other, *(noisy.table(1500, seed=seed) for seed in range(2, 6))]
    model = simulate(noisy.program(), tables_of_all, DEALING, secure=False)
    found = model.gain(other)
    assert {line.verdict for line in found.lines} == {Verdict.ALONE}
    assert "predicts its own patients better without the federation" in str(found)
    alike = [noisy.table(100, seed=seed) for seed in range(5)]
    helped = simulate(noisy.program(), alike, DEALING, secure=False).gain(alike[0])
    assert "without the federation" not in str(helped)


def test_a_difference_within_its_error_is_not_called_one() -> None:
    assert Verdict.of(0.1, 0.06) is Verdict.UNCLEAR
    assert Verdict.of(0.1, 0.04) is Verdict.FEDERATION
    assert Verdict.of(-0.1, 0.04) is Verdict.ALONE
    assert Verdict.of(0.1, float("nan")) is Verdict.UNCLEAR
    line = Line("stay", "RMSE", "d", 2.55, 2.31, 0.24, 0.05)
    assert str(line) == (
        "stay: RMSE 2.31 d with the federation, 2.55 d alone: better with the federation, by 0.24 "
        "± 0.05"
    )
