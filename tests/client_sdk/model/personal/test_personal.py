"""A hospital's own model over the global kernel: what it is made of, and what it is worth."""

import os
import stat
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from client_sdk.errors import (
    HomeDamaged,
    ModelNotFound,
    ModelNotSaved,
    PersonalDamaged,
    PersonalExposed,
    RowsNotAmong,
    StartUnavailable,
)
from client_sdk.home.home import Home
from client_sdk.model.gain import gain
from client_sdk.model.model import GlobalModel
from client_sdk.model.personal.gain import Better
from client_sdk.model.personal.layers import Start, own_layers
from client_sdk.model.personal.model import PersonalModel
from client_sdk.simulation import Simulated, simulate
from kernels.layer.posterior import Posterior, Spectrum
from kernels.layer.refit import refit
from kernels.layer.statistics import Statistics
from kernels.model.model import known
from kernels.rounds.automatic import automatic_program
from kernels.rounds.site.site import Part, Site
from kernels.tables.targets import Target
from tests.dealing import DEALING
from tests.kernels.rounds import every_kind, noisy
from tests.kernels.rounds.tables import Table

PROGRAM = noisy.program(held_out=0.3)


def unlike(rows: int, *, seed: int, shift: float = 1.0) -> Table:
    """Return a hospital whose patients respond like the others', and a bit more."""
    table = noisy.table(rows, seed=seed)
    dose = np.asarray(table["dose"], dtype=np.float64)
    response = np.asarray(table["response"]) + shift * np.cos(2 * dose)
    return {"dose": dose, "response": response, "twice": 2 * response}


def opposite(rows: int, *, seed: int) -> Table:
    """Return a hospital whose patients respond with the opposite sign."""
    table = noisy.table(rows, seed=seed)
    return {name: own if name == "dose" else -np.asarray(own) for name, own in table.items()}


def trained(*tables: Table) -> Simulated:
    return simulate(PROGRAM, tables, DEALING, secure=False)


def rmse(model: GlobalModel | PersonalModel, table: Table) -> float:
    said = model.predict(table).mean[:, 0]
    return float(np.sqrt(np.mean((said - np.asarray(table["response"])) ** 2)))


def test_from_the_kernel_it_is_the_layer_of_the_own_rows_alone() -> None:
    own = noisy.table(120, seed=1)
    model = trained(own, *(noisy.table(120, seed=seed) for seed in (2, 3)))
    personal = model.personal(own, start="kernel")
    site = Site.of_table(noisy.SCHEMA, own, held_out=0.3, dealing=DEALING)
    x, y = site.table(Part.TRAINING, model.model)
    statistics = Statistics.of_table(model.model.urk, x, y)
    layer = Posterior.of(statistics, refit(Spectrum.of(statistics)))
    new = noisy.table(50, seed=9)
    all_new = Site.of_table(noisy.SCHEMA, new, held_out=0.0, dealing=DEALING)
    at, _ = all_new.table(Part.TRAINING, model.model)
    said = layer.predict(model.model.urk.features(at).detach())
    standardiser = known(model.model.standardiser, "moments")
    mean, _ = standardiser.in_units(said.mean, said.variance)
    assert np.allclose(personal.predict(new).mean, mean.numpy())
    assert personal.power == 0
    assert personal.card.rows == len(x)


def test_where_the_hospitals_are_alike_it_takes_what_the_others_know() -> None:
    own = noisy.table(25, seed=1)
    model = trained(own, *(noisy.table(400, seed=seed) for seed in (2, 3)))
    alone, helped = model.personal(own, start="kernel"), model.personal(own)
    new = noisy.table(2000, seed=9)
    assert helped.start == Start.POSTERIOR
    assert helped.power >= 1 / 16
    assert rmse(helped, new) < rmse(alone, new)
    assert rmse(helped, new) < rmse(model, new) * 1.05


def test_where_the_hospital_is_unlike_all_others_it_takes_nothing_from_them() -> None:
    own = opposite(300, seed=1)
    model = trained(own, *(noisy.table(400, seed=seed) for seed in (2, 3)))
    personal = model.personal(own)
    assert personal.power < 1 / 16
    new = opposite(2000, seed=9)
    assert rmse(personal, new) < 0.5 * rmse(model, new)
    found = known(personal.gain, "gain")
    assert {line.better for line in found.lines} == {Better.PERSONAL}
    assert "better with the personal model" in str(personal)


def test_between_the_two_it_is_better_than_either() -> None:
    """A hospital that is a bit unlike the others: over several draws of all rows."""
    errors = []
    for draw in range(6):
        own = unlike(40, seed=100 * draw + 1)
        model = trained(own, *(noisy.table(400, seed=100 * draw + k) for k in (2, 3)))
        new = unlike(1000, seed=100 * draw + 9)
        alone, helped = model.personal(own, start="kernel"), model.personal(own)
        errors.append([rmse(each, new) for each in (helped, alone, model)])
    helped_by, alone_by, global_by = np.mean(errors, axis=0)
    assert helped_by < global_by
    assert helped_by < alone_by * 1.02


def test_the_gain_is_that_over_the_global_model_and_agrees_with_the_global_models_own() -> None:
    own = noisy.table(200, seed=1)
    model = trained(own, *(noisy.table(200, seed=seed) for seed in (2, 3)))
    site = Site.of_table(noisy.SCHEMA, own, held_out=0.3, dealing=DEALING)
    personal = known(model.personal(own, start="kernel").gain, "gain")
    other = gain(model.model, site)
    assert personal.rows == other.rows
    for mine, theirs in zip(personal.lines, other.lines, strict=True):
        assert mine.personal == pytest.approx(theirs.local)
        assert mine.from_global == pytest.approx(theirs.federated)
        assert mine.gain == pytest.approx(-theirs.gain)
        assert mine.error == pytest.approx(theirs.error)


def test_its_intervals_cover_new_patients_although_its_rows_are_few() -> None:
    """Thirty rows, with noise three times that of the others."""
    inside = []
    for draw in range(12):
        own = noisy.table(30, seed=50 * draw + 1, noise=1.5)
        model = trained(own, *(noisy.table(300, seed=50 * draw + k) for k in (2, 3)))
        new = noisy.table(500, seed=50 * draw + 9, noise=1.5)
        found = model.personal(own).intervals(new, 0.9)
        assert found.kind == "student_t"
        lower, upper = found["response"]
        response = np.asarray(new["response"])
        inside.append(np.mean((lower <= response) & (response <= upper)))
    assert 0.84 < np.mean(inside) < 0.96


def test_rows_that_did_not_take_part_count_beside_those_of_the_model() -> None:
    model = trained(*(noisy.table(300, seed=seed) for seed in (2, 3, 4)))
    own = unlike(60, seed=1, shift=3.0)
    site = Site.of_table(noisy.SCHEMA, own, held_out=0.3, dealing=DEALING)
    apart = own_layers(model.model, site, start=Start.POSTERIOR, took_part=False)
    rows = site.count(Part.TRAINING)
    pooled = known(model.model.statistics, "linear").count
    assert known(apart.model.statistics, "linear").count == round(rows + apart.power * pooled)
    many = Site.of_table(noisy.SCHEMA, noisy.table(2000, seed=5), held_out=0.3, dealing=DEALING)
    with pytest.raises(RowsNotAmong, match="took_part=False"):
        own_layers(model.model, many, start=Start.POSTERIOR)


def test_a_hospital_whose_home_has_not_computed_the_model_did_not_take_part(
    tmp_path: Path,
) -> None:
    trained_model = trained(*(noisy.table(300, seed=seed) for seed in (2, 3, 4)))
    model = GlobalModel(trained_model.artifact, home=tmp_path / "home")
    own = noisy.table(60, seed=1)
    with pytest.raises(HomeDamaged, match="home="):
        model.personal(own)
    Home(tmp_path / "home").identity()
    personal = model.personal(own)
    assert personal.card.global_model == model.id
    said = known(personal._fitted.statistics, "linear").count
    assert said == round(personal.card.rows + personal.power * trained_model.artifact.card.rows)


# -- every kind of model


def test_two_kernels_and_complete_layers_are_personal_in_every_part() -> None:
    program = automatic_program(noisy.SCHEMA, min_sites=1, max_sums=60, max_features=20)
    tables = [unlike(120, seed=1, shift=2.0), *(noisy.table(120, seed=seed) for seed in (2, 3))]
    model = simulate(program, tables, DEALING, secure=False)
    assert model.model.withheld is not None
    personal = model.personal(tables[0])
    fitted = personal._fitted
    assert known(fitted.withheld, "completion").statistics is not None
    assert (fitted.second is None) == (model.model.second is None)
    site = Site.of_table(noisy.SCHEMA, tables[0], held_out=program.held_out, dealing=DEALING)
    held_out = site.count(Part.STOPPING) + site.count(Part.CALIBRATION)
    alone = own_layers(model.model, site).model
    with_all = known(alone.statistics, "linear").count
    assert with_all == known(alone.judged.statistics, "linear").count + held_out == 120
    # At power 1 of all rows it is the global model.
    assert torch.equal(fitted.urk.weights, model.model.urk.weights)


def test_outcomes_of_every_kind_have_layers_and_recalibration_of_their_own() -> None:
    tables = every_kind.hospitals(3)
    model = simulate(every_kind.program(), tables, DEALING, secure=False)
    personal = model.personal(tables[0])
    assert personal.start == Start.KERNEL
    predicted = personal.predict(tables[1])
    assert {own.target.name for own in predicted.outcomes} == {
        own.name for own in every_kind.SCHEMA.outcomes
    }
    assert predicted["readmitted"].sets(0.9).shape == (120, 2)
    assert personal.survival(tables[1]).mean.shape == (120, 3)
    lines = known(personal.gain, "gain").lines
    assert [line.target for line in lines] == [
        "stay",
        *(o.name for o in every_kind.SCHEMA.outcomes),
    ]
    with pytest.raises(StartUnavailable, match=r"readmitted.*start=\"kernel\""):
        model.personal(tables[0], start="posterior")
    with pytest.raises(StartUnavailable, match="one of kernel, posterior"):
        model.personal(tables[0], start="layer")


def test_with_differential_privacy_it_starts_from_the_kernel_without_noise() -> None:
    targets = Target("response", "1", -8, 8), Target("twice", "1", -16, 16)
    program = replace(PROGRAM, schema=replace(noisy.SCHEMA, targets=targets))
    tables = [noisy.table(300, seed=seed) for seed in range(3)]
    model = simulate(program, tables, DEALING, epsilon=50.0, delta=1e-5, secure=False)
    personal = model.personal(tables[0])
    assert personal.start == Start.KERNEL
    assert personal._fitted.privacy is None
    assert known(personal._fitted.statistics, "linear").noise is None
    assert known(personal.gain, "gain").rows > 0
    with pytest.raises(StartUnavailable, match="noise"):
        model.personal(tables[0], start="posterior")


# -- files


def made() -> PersonalModel:
    own = noisy.table(80, seed=1)
    return trained(own, *(noisy.table(80, seed=seed) for seed in (2, 3))).personal(own)


def test_it_is_kept_for_its_owner_alone_and_is_the_same_when_it_is_read(tmp_path: Path) -> None:
    personal, folder = made(), tmp_path / "mine"
    before = os.umask(0)
    try:
        personal.save(folder)
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(each.stat().st_mode) for each in folder.iterdir()} == {0o600}
    assert "must not leave the hospital" in (folder / "personal.json").read_text()
    read = PersonalModel.load(folder)
    new = noisy.table(30, seed=9)
    assert read.card == personal.card
    assert np.array_equal(read.predict(new).variance, personal.predict(new).variance)
    lower, upper = read.intervals(new).lower, personal.intervals(new).lower
    assert np.array_equal(lower, upper)
    made_again = replace(personal.card, power=0.5)
    PersonalModel(personal._fitted, made_again).save(folder)
    assert PersonalModel.load(folder).power == 0.5
    assert len([*folder.iterdir()]) == 2


def test_a_copy_that_others_can_read_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    made().save(folder)
    next(folder.glob("*.safetensors")).chmod(0o640)
    with pytest.raises(PersonalExposed, match="chmod"):
        PersonalModel.load(folder)


def test_what_is_not_a_whole_personal_model_is_refused_by_name(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    made().save(folder)
    with pytest.raises(ModelNotFound, match="personal"):
        GlobalModel.load(folder)
    layers = next(folder.glob("*.safetensors"))
    data = layers.read_bytes()
    layers.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(PersonalDamaged, match="damaged"):
        PersonalModel.load(folder)
    layers.unlink()
    with pytest.raises(ModelNotFound, match=layers.name):
        PersonalModel.load(folder)
    card = folder / "personal.json"
    card.write_text(card.read_text().replace('"version":1', '"version":2'))
    with pytest.raises(PersonalDamaged, match="version 2"):
        PersonalModel.load(folder)
    card.write_text("{}")
    with pytest.raises(PersonalDamaged, match="does not describe"):
        PersonalModel.load(folder)
    with pytest.raises(ModelNotFound):
        PersonalModel.load(tmp_path / "nothing")


def test_it_does_not_overwrite_a_global_model(tmp_path: Path) -> None:
    own = noisy.table(60, seed=1)
    model = trained(own, noisy.table(60, seed=2), noisy.table(60, seed=3))
    model.save(tmp_path / "model")
    with pytest.raises(ModelNotSaved, match="not part of a personal model"):
        model.personal(own).save(tmp_path / "model")
