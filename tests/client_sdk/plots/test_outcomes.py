"""Plots of outcomes show the numbers that they were given, and refuse shapes that do not fit."""

from collections.abc import Iterator

import numpy as np
import pytest
from matplotlib import pyplot

from client_sdk import GlobalModel
from client_sdk.errors import PlotUnavailable, UnknownTarget
from client_sdk.plots import reliability, roc, survival
from kernels.errors import NotFitted
from tests.kernels.rounds import every_kind


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    pyplot.close("all")


def test_the_reliability_curve_leaves_out_bins_without_rows() -> None:
    axes = reliability.draw([0.1, 0.5, 0.9], [0.2, 0.0, 0.8], [30, 0, 10], title="$died$")
    curve = axes.lines[-1]
    assert curve.get_xdata().tolist() == [0.1, 0.9]
    assert curve.get_ydata().tolist() == [0.2, 0.8]
    assert "error 10.0 points" in curve.get_label()
    assert "$died$, 40 held-out rows" in axes.get_title(loc="left")
    with pytest.raises(PlotUnavailable, match="each bin"):
        reliability.draw([0.1], [0.2, 0.3], [1], title="died")


def test_the_roc_curve_has_its_ends_and_its_area() -> None:
    axes = roc.draw([0.0, 0.5], [0.5, 1.0], title="died")
    curve = axes.lines[-1]
    assert curve.get_xydata().tolist() == [[0, 0], [0, 0.5], [0.5, 1], [1, 1]]
    assert curve.get_label() == "area 0.875"
    with pytest.raises(PlotUnavailable, match="rise"):
        roc.draw([0.5, 0.0], [0.5, 1.0], title="died")


def test_survival_curves_start_at_one_and_many_have_no_labels() -> None:
    edges, curves = [1.0, 3.0], np.array([[0.9, 0.5], [0.8, 0.2]])
    axes = survival.draw(
        edges, curves, variances=curves / 100, title="days", unit="d", labels=["a", "$b$"]
    )
    assert [line.get_ydata().tolist() for line in axes.lines] == [[1, 0.9, 0.5], [1, 0.8, 0.2]]
    assert axes.lines[0].get_xdata().tolist() == [0, 1, 3]
    assert len(axes.collections) == 2, "a band for each"
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["a", "$b$"]
    many = survival.draw(edges, np.repeat(curves, 5, 0), title="days", unit="d")
    assert many.get_legend() is None
    with pytest.raises(PlotUnavailable, match="each edge"):
        survival.draw([1.0], curves, title="days", unit="d")


def test_a_model_draws_the_survival_of_rows() -> None:
    model, rows = GlobalModel(every_kind.artifact()), every_kind.table(3, seed=9)
    axes = model.plot_survival(rows, labels=["first", "second", "third"])
    assert axes.lines[1].get_ydata()[1:].tolist() == model.survival(rows).mean[1].tolist()
    assert axes.get_xlabel() == "d"


def test_a_model_draws_the_reliability_and_the_roc_of_its_held_out_rows() -> None:
    model = GlobalModel(every_kind.judged())
    evaluation = model.artifact.card.evaluation
    assert evaluation is not None
    for own in evaluation.outcomes:
        if own.kind != "count":
            axes = model.plot_reliability(own.name)
            assert tuple(axes.lines[-1].get_ydata()) == own.quality.curve.observed
            assert bool(axes.collections) == (own.kind != "time_to_event"), "bars of shares"
    area = evaluation.outcomes[0].further["AUC"]
    assert model.plot_roc().lines[-1].get_label() == f"area {area:.3f}"
    with pytest.raises(UnknownTarget, match="readmitted, discharged, days"):
        model.plot_reliability("visits")
    with pytest.raises(NotFitted, match="evaluation"):
        GlobalModel(every_kind.artifact()).plot_roc()
