"""A model at home says what its columns do: as arrays, as frames and as plots."""

from collections.abc import Iterator

import numpy as np
import pytest
from matplotlib import pyplot

from client_sdk import GlobalModel
from client_sdk.errors import PlotUnavailable, UnknownTarget
from client_sdk.events import Event, StepLearnt, Waiting
from client_sdk.plots import effects as effects_plot
from client_sdk.plots import importance, learning
from kernels.errors import PredictionError
from kernels.model.effects import column_effects
from tests.kernels.rounds import every_kind


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    pyplot.close("all")


@pytest.fixture(scope="module")
def model() -> GlobalModel:
    return GlobalModel(every_kind.judged())


def test_effects_are_those_of_the_model_the_most_important_first(model: GlobalModel) -> None:
    found = model.effects(target="stay")
    assert found.columns == model.importance("stay").columns == ("lactate", "age", "ward")
    plain = {own.column.name: own for own in column_effects(model.artifact.model)}
    age = found["age"]
    assert age.cells.dtype == np.float64
    assert age.mean.tolist() == plain["age"].of("stay").mean[:, 0].tolist()
    assert age.deviation.shape == age.cells.shape
    assert np.isnan(np.asarray(found["lactate"].cells, np.float64)[-1]), "missing"
    assert found["ward"].cells.tolist() == ["medical", "surgical"]
    assert model.effects(["ward"], target="discharged")["ward"].mean.shape == (2, 3)
    assert model.effects().target.name == "readmitted"


def test_importance_is_sorted_and_alone_is_never_more_than_total(model: GlobalModel) -> None:
    for target in model.schema.targets:
        found = model.importance(target.name)
        assert sorted(found.columns) == ["age", "lactate", "ward"]
        assert (np.diff(found.total) <= 0).all()
        assert (found.alone <= found.total).all()
    assert repr(model.importance("visits")).startswith("Importance(for visits: age")


def test_frames_have_a_row_for_every_point_and_every_column(model: GlobalModel) -> None:
    frame = model.effects(target="discharged").to_pandas()
    assert len(frame) == 3 * (17 + 18 + 2)
    assert set(frame["of"]) == {"home", "transfer", "hospice"}
    missing = frame[frame["level"] == "missing"]
    assert list(missing["column"]) == ["lactate"] * 3
    assert missing["value"].isna().all()
    assert (frame["upper"] - frame["lower"]).to_numpy() == pytest.approx(4 * frame["deviation"])
    assert list(model.importance().to_pandas().columns) == ["column", "alone", "total"]


def test_unknown_targets_and_columns_are_named(model: GlobalModel) -> None:
    with pytest.raises(UnknownTarget, match="unknown target 'cost'; the model predicts readmitted"):
        model.importance("cost")
    with pytest.raises(PredictionError, match="unknown column 'height'"):
        model.effects(["height"])
    with pytest.raises(PredictionError, match="no effect of 'age' here; there are those of ward"):
        model.effects(["ward"])["age"]


def test_every_target_is_drawn_with_its_bands(model: GlobalModel) -> None:
    for target in model.schema.targets:
        found = model.effects(target=target.name)
        panels = found.plot()
        assert [axes.get_title(loc="left").partition(",")[0] for axes in panels] == [*found.columns]
        for axes, column in zip(panels, found.columns, strict=True):
            own = found[column]
            first = own.mean if own.mean.ndim == 1 else own.mean[:, 0]
            drawn = axes.lines[0].get_ydata()
            assert list(drawn) == first[: len(drawn)].tolist()
            assert axes.collections, "a band, or a bar for each level"
            assert axes.get_ylim() == panels[0].get_ylim()
    assert "risk of died by 30 d" in panels[0].figure.get_supylabel()


def test_a_single_column_is_drawn_on_given_axes(model: GlobalModel) -> None:
    axes = pyplot.subplots()[1]
    assert model.effects(["age"], target="stay").plot(ax=axes) is axes
    assert axes.get_ylabel() == "mean stay, d"
    with pytest.raises(PlotUnavailable, match="exactly one"):
        model.effects(["age", "ward"]).plot(ax=axes)
    with pytest.raises(PlotUnavailable, match="at least one"):
        effects_plot.draw([], "stay")


def test_bars_are_the_numbers_and_long_lists_are_cut(model: GlobalModel) -> None:
    axes = model.importance("stay").plot()
    widths = [bar.get_width() for bar in axes.patches]
    found = model.importance("stay")
    assert widths == [*found.total, *found.alone]
    names, shares = [f"$c${place}" for place in range(50)], np.linspace(1, 0, 50)
    axes = importance.draw(names, shares, shares, target="y")
    assert len(axes.patches) == 2 * importance.MOST
    assert "the first 20 of 50 columns" in axes.get_title(loc="left")
    with pytest.raises(PlotUnavailable, match="each column"):
        importance.draw(["a"], [0.1, 0.2], [0.1], target="y")


def test_the_learning_curve_is_that_of_the_last_run_by_sum() -> None:
    events: list[Event] = [
        StepLearnt("before", "exact", 9, {"evidence": -1.0}),
        Waiting("others"),
        StepLearnt("run", "exact", 2, {"held_out_error": 0.9, "evidence": -40.0}),
        StepLearnt("run", "exact", 4, {"held_out_error": 0.5, "evidence": -30.0}),
        StepLearnt("run", "exact", 4, {"held_out_error": 0.5, "evidence": -30.0}),
    ]
    axes = learning.draw(events)
    assert axes.lines[0].get_xydata().tolist() == [[2, 0.9], [4, 0.5]]
    assert axes.get_ylabel() == "held out error"
    assert learning.draw(events, "evidence").lines[0].get_ydata().tolist() == [-40, -30]
    assert str(events[-1]) == "exact, after 4 sums: held out error 0.5, evidence -30"
    with pytest.raises(PlotUnavailable, match="no step has the metric 'loss'; there are held_out"):
        learning.draw(events, "loss")
    with pytest.raises(PlotUnavailable, match="no step of training"):
        learning.draw(events[1:2])
