"""The global model at a hospital: predictions, intervals, files, card, plot."""

import json
import os
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from matplotlib.figure import Figure

from client_sdk import GlobalModel, gain
from client_sdk.errors import (
    ModelNotFound,
    ModelNotSaved,
    NotATable,
    PlotUnavailable,
    UnknownTarget,
)
from client_sdk.model.card import ModelCard
from kernels.errors import (
    DamagedArtifact,
    KernelsError,
    NotFitted,
    OneVariance,
    PredictionError,
    TableRefused,
    UnknownMethod,
)
from kernels.model import prediction
from kernels.model.artifact import Artifact
from kernels.model.card import Card
from kernels.rounds.judging import recalibration
from tests.dealing import DEALING
from tests.kernels.rounds import noisy, tables
from tests.kernels.rounds.artifacts import (
    CREATED,
    PLAIN,
    PRIVACY,
    STUDENTS,
    WITH_STUDENTS,
    artifact,
)

MODEL = GlobalModel(artifact())
ROWS = tables.table(40, seed=9)


def load(folder: str | Path) -> GlobalModel:
    """Read a model that no hospital has signed; test_vouching has the others."""
    return GlobalModel.load(folder, uncertified=True)


def test_predictions_are_those_of_the_kernel_room() -> None:
    ours, theirs = MODEL.predict(ROWS), prediction.predict(artifact().model, ROWS)
    assert np.array_equal(ours.mean, theirs.mean.numpy())
    assert np.array_equal(ours.variance, theirs.variance.numpy())
    assert np.array_equal(ours.latent_variance, theirs.latent_variance.numpy())
    assert np.array_equal(ours.noise_variance, theirs.noise_variance.numpy())
    for kind in ("conformal", "student_t", "gaussian"):
        lower, upper = getattr(theirs, kind)(0.8)
        mine = ours.intervals(0.8, kind=kind)
        assert np.array_equal(mine.lower, lower.numpy())
        assert np.array_equal(mine.upper, upper.numpy())
    assert np.array_equal(MODEL.intervals(ROWS, 0.8).upper, ours.intervals(0.8).upper)


def test_what_came_over_the_wire_predicts_the_same() -> None:
    own = MODEL.artifact
    card = json.loads(json.dumps(own.card.to_plain()))
    again = GlobalModel.from_artifact(own.to_bytes(), card, expected_id=MODEL.id)
    assert np.array_equal(again.predict(ROWS).variance, MODEL.predict(ROWS).variance)
    with pytest.raises(DamagedArtifact):
        GlobalModel.from_artifact(own.to_bytes(), card, expected_id="f" * 64)
    with pytest.raises(DamagedArtifact):
        GlobalModel.from_artifact(own.to_bytes()[:-1], card)


def test_each_target_has_its_own_columns() -> None:
    predictions = MODEL.predict(ROWS)
    cost = predictions["cost"]
    assert np.array_equal(cost.mean, predictions.mean[:, 1])
    assert np.allclose(cost.variance, cost.latent_variance + cost.noise_variance)
    intervals = predictions.intervals(0.9)
    lower, upper = intervals["cost"]
    assert bool((lower < cost.mean).all() and (cost.mean < upper).all())
    frame = pd.DataFrame(predictions.to_dict() | intervals.to_dict())
    assert np.array_equal(frame["cost.mean"], cost.mean)
    assert np.array_equal(frame["cost.upper"], upper)
    assert frame["stay.noise_variance"].nunique() == 1
    assert len(frame) == len(predictions) == len(intervals) == 40
    for each in (predictions, intervals):
        with pytest.raises(UnknownTarget, match="predicts stay, cost"):
            each["costs"]


def test_all_methods_predict_the_same_rows() -> None:
    model = GlobalModel(artifact(STUDENTS))
    assert model.methods == WITH_STUDENTS
    assert MODEL.methods == ("fedbnr",)
    compared = {method: model.predict(ROWS, method=method) for method in model.methods}
    assert np.array_equal(model.predict(ROWS).mean, compared["fedbnr"].mean)
    for method, predictions in compared.items():
        theirs = prediction.predict(artifact(STUDENTS).model, ROWS, method=method)
        assert predictions.method == method
        assert np.array_equal(predictions.mean, theirs.mean.numpy())
        assert np.array_equal(predictions["cost"].variance, theirs.variance.numpy()[:, 1])
        (piece,) = model.predict_in_pieces(ROWS, method=method)
        assert np.array_equal(piece.mean, predictions.mean)
        intervals = model.intervals(ROWS, 0.8, method=method)
        assert intervals.kind == ("student_t" if method == "fedbnr" else "gaussian")
        parts = "stay.latent_variance" in predictions.to_dict()
        assert parts == (method == "fedbnr")
    with pytest.raises(OneVariance):
        _ = compared["product"]["stay"].noise_variance
    with pytest.raises(UnknownMethod, match="its methods are: fedbnr"):
        MODEL.predict(ROWS, method="product")


def test_dataframes_are_tables_too() -> None:
    expected = MODEL.predict(ROWS).mean
    frame = pd.DataFrame(ROWS)
    assert np.array_equal(MODEL.predict(frame).mean, expected)
    assert np.array_equal(MODEL.predict(pl.from_pandas(frame)).mean, expected)
    with pytest.raises(NotATable, match="list is not a supported table"):
        MODEL.predict([1, 2])
    with pytest.raises(TableRefused, match="lactate"):
        MODEL.predict({"age": [1.0], "ward": ["medical"]})


def test_it_speaks_scikit_learns_language() -> None:
    assert MODEL.feature_names_in_.tolist() == ["age", "lactate", "ward"]
    assert MODEL.n_features_in_ == 3


def test_rows_outside_the_bounds_are_flagged() -> None:
    rows = {"age": [50.0, 121.0], "lactate": [1.0, 1.0], "ward": ["medical"] * 2}
    assert MODEL.predict(rows).extrapolates.tolist() == [False, True]


def test_intervals_cover_new_rows() -> None:
    """At least 90 % of 2,000 new rows are inside, up to the error of 500 calibration rows."""
    program = noisy.program(recalibration.Spec(min_rows=1))
    outcome = _simulated(program, noisy.dealt(noisy.table(2000, seed=1, freedom=3), 4))
    new = noisy.table(2000, seed=2, freedom=3)
    for name, (lower, upper) in (
        (name, outcome.intervals(new, 0.9)[name]) for name in ("response", "twice")
    ):
        inside = ((lower <= new[name]) & (new[name] <= upper)).mean()
        assert 0.86 < inside < 0.95, name


def _simulated(program: Any, parts: list[Any]) -> GlobalModel:
    from client_sdk import simulate

    outcome = simulate(program, parts, DEALING, secure=False)
    made = Artifact.of(
        outcome.model,
        program=program,
        members=len(parts),
        sums=outcome.sums,
        privacy=PRIVACY,
        created=CREATED,
    )
    return GlobalModel(made)


def test_a_model_without_recalibration_offers_gaussian_intervals_only() -> None:
    plain = GlobalModel(artifact(PLAIN)).predict(ROWS)
    with pytest.raises(NotFitted, match="recalibration"):
        plain.intervals(0.9)
    assert len(plain.intervals(0.9, kind="gaussian")) == 40
    with pytest.raises(PredictionError, match="conformal, student_t, gaussian"):
        plain.intervals(0.9, kind="bayesian")
    with pytest.raises(PredictionError, match="between 0 and 1"):
        plain.intervals(90, kind="gaussian")


def test_reprs_show_no_prediction() -> None:
    predictions = MODEL.predict(ROWS)
    assert repr(predictions) == "Predictions(40 rows of stay, cost)"
    assert repr(predictions["stay"]) == "TargetPredictions(40 rows of stay)"
    assert repr(predictions.intervals()) == "Intervals(student_t, 0.9: 40 rows of stay, cost)"
    assert repr(MODEL) == f"GlobalModel({MODEL.id}, predicts stay, cost)"


def test_a_saved_model_is_the_same_to_the_last_bit(tmp_path: Path) -> None:
    MODEL.save(tmp_path / "deep" / "stay")
    again = load(str(tmp_path / "deep" / "stay"))
    assert again.id == MODEL.id
    assert again.artifact.to_bytes() == MODEL.artifact.to_bytes()
    assert np.array_equal(again.predict(ROWS).variance, MODEL.predict(ROWS).variance)


def test_saving_over_a_model_leaves_no_trace_of_it(tmp_path: Path) -> None:
    GlobalModel(artifact(PLAIN)).save(tmp_path)
    MODEL.save(tmp_path)
    MODEL.save(tmp_path)
    assert load(tmp_path).id == MODEL.id
    assert sorted(each.suffix for each in tmp_path.iterdir()) == [".json", ".safetensors"]


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("call", ["fsync", "replace"])
@pytest.mark.parametrize("nth", range(4))
def test_a_save_that_is_interrupted_leaves_a_whole_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, nth: int
) -> None:
    former = GlobalModel(artifact(PLAIN))
    former.save(tmp_path)
    real, calls = getattr(os, call), 0

    def interrupted(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > nth:
            raise Killed
        return real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(os, call, interrupted)
        if call == "fsync" or nth < 2:
            with pytest.raises(Killed):
                MODEL.save(tmp_path)
        else:
            MODEL.save(tmp_path)
    found = load(tmp_path).id
    replaced = nth == 3 if call == "fsync" else nth >= 2
    assert found == (MODEL.id if replaced else former.id)
    MODEL.save(tmp_path)
    assert load(tmp_path).id == MODEL.id


def test_a_full_disk_is_named_and_the_former_model_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    former = GlobalModel(artifact(PLAIN))
    former.save(tmp_path)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ModelNotSaved, match="No space left"):
        MODEL.save(tmp_path)
    assert load(tmp_path).id == former.id
    assert len(list(tmp_path.iterdir())) == 2


def test_folders_that_hold_no_model_are_named(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"card\.json"):
        load(tmp_path)
    (tmp_path / "thesis.docx").write_text("mine")
    with pytest.raises(ModelNotSaved, match="choose a new folder"):
        MODEL.save(tmp_path)
    with pytest.raises(ModelNotSaved, match="cannot write the model"):
        MODEL.save(tmp_path / "thesis.docx")
    MODEL.save(tmp_path / "stay")
    (tmp_path / "stay" / f"{MODEL.artifact.card.artifact}.safetensors").unlink()
    with pytest.raises(ModelNotFound, match="safetensors"):
        load(tmp_path / "stay")


@pytest.mark.parametrize("suffix", [".json", ".safetensors"])
def test_damaged_files_are_refused_by_name(tmp_path: Path, suffix: str) -> None:
    MODEL.save(tmp_path)
    (path,) = (each for each in tmp_path.iterdir() if each.suffix == suffix)
    whole = path.read_bytes()
    for position in range(0, len(whole), len(whole) // 20):
        path.write_bytes(whole[:position])
        with pytest.raises(KernelsError):
            load(tmp_path)
    path.write_bytes(b"\xff" + whole[1:])
    with pytest.raises(KernelsError):
        load(tmp_path)


def test_the_card_is_a_mapping_that_reads_well() -> None:
    card = MODEL.card
    assert card["members"] == 3
    assert dict(card) == MODEL.artifact.card.to_plain()
    text = repr(card)
    for part in (
        MODEL.id,
        "stay (d), cost (EUR)",
        "3 hospitals",
        "no differential privacy",
        "RMSE",
    ):
        assert part in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 100
    plain = repr(GlobalModel(artifact(PLAIN)).card)
    assert "not recalibrated" in plain
    assert "RMSE" not in plain


def test_a_hostile_name_neither_runs_in_a_notebook_nor_moves_a_cursor() -> None:
    text = MODEL.artifact.card.to_json().replace('"d"', r'"<script>x\u001b[2J</script>"')
    card = ModelCard(Card.from_json(text))
    html = card._repr_html_()
    assert "<script>" not in html
    assert "\x1b" not in html + repr(card)
    open_tags: list[str] = []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attrs: open_tags.append(tag)
    parser.handle_endtag = lambda tag: open_tags.remove(tag)
    parser.feed(html)
    assert open_tags == []


def test_the_calibration_plot_shows_the_cards_curves() -> None:
    axes = Figure().subplots()
    assert MODEL.plot_calibration("cost", ax=axes) is axes
    evaluation = MODEL.artifact.card.evaluation
    assert evaluation is not None
    assert evaluation.recalibrated is not None
    assert evaluation.conformal is not None
    curves = [tuple(line.get_ydata()) for line in axes.lines[1:]]
    assert curves == [
        evaluation.gaussian[1].curve,
        evaluation.recalibrated[1].curve,
        evaluation.conformal[1],
    ]
    assert "cost" in axes.get_title("left")
    with pytest.raises(UnknownTarget, match="stay, cost"):
        MODEL.plot_calibration("costs", ax=axes)
    with pytest.raises(NotFitted, match="evaluation"):
        GlobalModel(artifact(PLAIN)).plot_calibration(ax=axes)


def test_the_calibration_of_another_method_is_drawn_by_its_name() -> None:
    axes, model = Figure().subplots(), GlobalModel(artifact(STUDENTS))
    model.plot_calibration("cost", method="mixture", ax=axes)
    evaluation = model.artifact.card.evaluation
    assert evaluation is not None
    (curve,) = [tuple(line.get_ydata()) for line in axes.lines[1:]]
    assert (evaluation.others[1].method, curve) == (
        "mixture",
        evaluation.others[1].quality[1].curve,
    )
    with pytest.raises(UnknownMethod, match="evaluated methods: fedbnr"):
        MODEL.plot_calibration(method="mixture", ax=axes)


def test_without_matplotlib_a_plot_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(PlotUnavailable, match="pip install matplotlib"):
        MODEL.plot_calibration()


def test_a_site_sees_its_own_gain() -> None:
    site = tables.site(60, seed=1)
    assert np.array_equal(MODEL.gain(site).rmse, gain(artifact().model, site).rmse)
