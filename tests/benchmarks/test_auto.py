"""The benchmark of automatic programs: its sets, its peers, its scores, and what figures mean."""

import gzip
import math
from argparse import Namespace
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import gpytorch
import numpy as np
import pytest
import torch
from scipy.stats import norm

from benchmarks.auto import command, ours, plan, scores, sets
from benchmarks.auto.figures import (
    best_candidate,
    compared_seeds,
    figures_of,
    margin,
    means_over_seeds,
    targets,
    within_best,
)
from benchmarks.auto.peers.boosting import boosting, likeliest
from benchmarks.auto.peers.central_gp import Process, central_gp, loss_and_slope
from benchmarks.auto.plan import (
    ALL_ROWS,
    AUTO,
    BOOSTING,
    CANDIDATE,
    CENTRAL_GP,
    QUICK,
    WHOLE,
    Cell,
    Size,
    curve_cells,
    wanted,
)
from benchmarks.auto.sets import LOADERS, REGRESSION, first_rows, load_real
from benchmarks.auto.sources import code_of
from benchmarks.auto.tables import write_tables
from benchmarks.fedbnr.gaussian import Regression, scaled
from benchmarks.outcomes.dataset import Count, Dataset, Real, TimeToEvent, YesNo, size
from benchmarks.outcomes.members import sorted_into
from kernels.features.spec import Architecture, KernelSpec
from kernels.rounds.columns import moments
from kernels.rounds.judging import recalibration
from kernels.rounds.layer import linear
from kernels.rounds.layer import outcomes as layer_of_outcomes
from kernels.rounds.program import Program
from kernels.scores.student_t import StudentT
from kernels.tables.schema import Numeric, Schema

TINY = Size(
    sets=("small",),
    seeds=(0,),
    rows=60,
    curve_sets=("small",),
    curve_rows=(40, 60),
    curve_seeds=(0,),
)


def write(folder: Path, name: str, rows: int = 150) -> None:
    """Write a file as those of the sets are: an input, a useless one with a gap, the target."""
    random = np.random.default_rng(3)
    x, gap = random.normal(size=(2, rows))
    y = np.sin(2 * x) + 0.1 * random.normal(size=rows)
    cells = [
        f"{a:.6f},{'' if b > 1 else f'{b:.6f}'},{c:.6f}" for a, b, c in zip(x, gap, y, strict=True)
    ]
    with gzip.open(folder / f"{name}.csv.gz", "wt") as file:
        file.write("\n".join(["x,gap,target", *cells]) + "\n")


def made_up(rows: int = 300) -> Dataset:
    """A table with a column for each kind of outcome."""
    random = np.random.default_rng(1)
    x = random.normal(size=rows)
    return Dataset(
        name="made_up",
        inputs=(Numeric("x", "1", -9, 9),),
        outcome=Real("y"),
        table={
            "x": x,
            "y": x + 0.5 * random.normal(size=rows),
            "event": (random.random(rows) < 1 / (1 + np.exp(-2 * x))).astype(np.float64),
            "count": random.poisson(np.exp(1 + 0.5 * x)).astype(np.float64),
            "time": random.exponential(10 * np.exp(-x)).round(3),
            "dead": (random.random(rows) < 0.7).astype(np.float64),
            "patient": np.arange(rows) // 3,
        },
        hospitals=sorted_into(x, 10),
    )


class Named(NamedTuple):
    """A candidate of the search, as the benchmark knows it."""

    name: str


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs of few sums in place of the search, and two candidates."""

    def program(schema: Schema, *_: object, **__: object) -> Program:
        kernel = KernelSpec(architecture=Architecture.LINEAR, inputs=len(schema.feature_names))
        layer = linear.Spec() if schema.real else layer_of_outcomes.Spec()
        return Program(schema, kernel, (moments.Spec(), layer, recalibration.Spec()))

    listed = (Named("linear"), Named("matern"))
    monkeypatch.setattr(ours.automatic, "automatic_program", program)
    monkeypatch.setattr(ours.automatic, "candidates", lambda schema: listed)
    monkeypatch.setattr(ours.automatic, "program_of_candidate", program)


class TestSets:
    def test_a_file_is_cut_into_ten_members_by_its_first_column(self, tmp_path: Path) -> None:
        write(tmp_path, "small")
        split = load_real("small", tmp_path).split(0)
        assert len(split.members) == 10
        assert size(split.test) == 30
        ends = [(member["x"].min(), member["x"].max()) for member in split.members]
        assert all(high <= low for (_, high), (low, _) in pairwise(ends))
        assert [column.may_be_missing for column in split.dataset.inputs] == [False, True]

    def test_a_number_that_means_missing_is_missing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with gzip.open(tmp_path / "airquality.csv.gz", "wt") as file:
            file.write("NO2,T,target\n" + "\n".join(f"{a},{a / 2},{a}" for a in range(-200, -180)))
        data = load_real("airquality", tmp_path)
        assert np.isnan(data.table["NO2"]).sum() == 1
        assert not np.isnan(data.table["target"]).any()
        assert [column.may_be_missing for column in data.inputs] == [True, False]

    def test_a_patient_is_with_one_member(self) -> None:
        data = sets._cut(replace(made_up(), patient="patient"))
        of_patient = {}
        for patient, member in zip(data.table["patient"], data.hospitals, strict=True):
            assert of_patient.setdefault(patient, member) == member
        assert len(set(of_patient.values())) == 10

    def test_fewer_rows_are_among_more_and_stay_where_they_are(self) -> None:
        split = made_up().split(0)
        few, more = first_rows(split, 30), first_rows(split, 90)
        assert size(few.pooled) == 30
        assert size(more.pooled) == 90
        assert set(few.pooled["y"]) < set(more.pooled["y"]) < set(split.pooled["y"])
        homes = {y: i for i, member in enumerate(split.members) for y in member["y"]}
        assert all(len({homes[y] for y in member["y"]}) == 1 for member in few.members)
        assert first_rows(split, ALL_ROWS) is split
        assert few.test is split.test

    def test_the_sets_are_those_of_the_plan(self) -> None:
        assert len(LOADERS) == 18
        assert set(REGRESSION) < set(LOADERS)
        assert set(QUICK.sets) <= set(WHOLE.sets) == set(LOADERS)


class TestScores:
    def test_a_gaussian_is_scored_by_its_density_per_unit(self) -> None:
        random = np.random.default_rng(2)
        mean, y = random.normal(size=(2, 50)) * 100
        found = scores.of_real(y, scores.Real(mean, np.full(50, 90.0**2)))
        assert found["nll"] == pytest.approx(-norm(mean, 90).logpdf(y).mean())
        assert found["nll_gaussian"] == pytest.approx(found["nll"])
        assert found["rmse"] == pytest.approx(np.sqrt(np.mean((y - mean) ** 2)))
        assert found["width_90"] == pytest.approx(2 * 1.6449 * 90, rel=1e-4)

    def test_beside_a_heavy_tailed_law_stands_the_gaussian_of_its_variance(self) -> None:
        y, law = np.array([-3.0, 0.5, 1.0]), StudentT(freedom=4.0, scale=0.7)
        found = scores.of_real(y, scores.Real(np.zeros(3), np.full(3, 2.0), law))
        deviation = math.sqrt(2 * law.variance)
        assert found["nll_gaussian"] == pytest.approx(-norm(0, deviation).logpdf(y).mean())
        density = law.log_density(torch.from_numpy(y / math.sqrt(2))).numpy()
        assert found["nll"] == pytest.approx(-np.mean(density) + math.log(2) / 2)

    def test_an_infinite_interval_covers_and_has_no_width(self) -> None:
        found = scores.interval(np.zeros(3), np.full(3, -np.inf), np.full(3, np.inf))
        assert found == {"coverage_90": 1.0}

    def test_sets_of_a_yes_no_cover_what_came(self) -> None:
        chosen = np.array([[True, False], [True, True], [False, False]])
        found = scores.in_sets(np.array([1.0, 1.0, 0.0]), chosen)
        assert found == {"coverage_90": pytest.approx(1 / 3), "set_size_90": 1.0}

    def test_a_time_is_scored_by_what_is_known_of_it(self) -> None:
        edges, survival = np.array([1.0, 2.0]), np.tile([0.7, 0.4], (6, 1))
        time = np.array([1.0, 2.0, 1.0, 2.5, 0.0, 0.9])
        event = np.array([1, 1, 0, 1, 1, 0])
        # Dead at e_1, at e_2; left at e_1; alive at e_2; dead at once; left before e_1: unknown.
        expected = -np.log([0.3, 0.3, 0.7, 0.4, 0.3]).mean()
        assert scores.time_log_loss(time, event, survival, edges) == pytest.approx(expected)

    def test_a_dispersion_is_found_again(self) -> None:
        random = np.random.default_rng(5)
        mean = random.uniform(1, 9, 4000)
        y = random.poisson(mean * random.gamma(2.0, 1 / 2.0, 4000)).astype(np.float64)
        assert likeliest(y, mean) == pytest.approx(2.0, rel=0.15)


class TestCentralProcess:
    random = torch.Generator().manual_seed(1)
    x = torch.randn(40, 3, generator=random, dtype=torch.float64)
    y = torch.sin(x[:, 0]) + 0.1 * torch.randn(40, generator=random, dtype=torch.float64)
    at = np.log([0.8, 1.5, 3.0, 1.3, 0.05])

    def test_evidence_and_predictions_are_those_of_gpytorch(self) -> None:
        kernel = scaled(gpytorch.kernels.MaternKernel(nu=2.5, ard_num_dims=3))
        model = Regression(self.x, self.y, kernel, inducing=None)
        kernel.base_kernel.lengthscale = torch.tensor([0.8, 1.5, 3.0], dtype=torch.float64)
        kernel.outputscale = 1.3
        model.likelihood.noise = 0.05
        loss, _ = loss_and_slope(self.at, self.x, self.y)
        assert loss == pytest.approx(model.loss().item(), rel=1e-6)
        tested = torch.randn(9, 3, generator=self.random, dtype=torch.float64)
        mean, variance = Process(self.x, self.y, self.at).predict(tested)
        own_mean, own_variance = model.believe(tested)
        assert torch.allclose(mean, own_mean, atol=1e-6)
        assert torch.allclose(variance, own_variance, atol=1e-6)

    def test_the_slope_is_that_of_the_loss(self) -> None:
        _, slope = loss_and_slope(self.at, self.x, self.y)
        for place, step in enumerate(1e-5 * np.eye(len(self.at))):
            above, _ = loss_and_slope(self.at + step, self.x, self.y)
            below, _ = loss_and_slope(self.at - step, self.x, self.y)
            assert slope[place] == pytest.approx((above - below) / 2e-5, rel=1e-4, abs=1e-9)

    def test_it_learns_with_its_own_units(self) -> None:
        split = made_up().split(0)
        found = scores.of_real(split.test["y"], central_gp(split))
        assert found["rmse"] == pytest.approx(0.5, abs=0.1)
        assert found["coverage_90"] == pytest.approx(0.9, abs=0.1)


@pytest.mark.parametrize(
    "outcome",
    [
        Real("y"),
        YesNo("event"),
        Count("count", "1", 200),
        TimeToEvent("time", "d", "dead", (2.0, 5.0, 10.0, 20.0)),
    ],
)
def test_every_kind_has_one_nll_from_boosting(outcome: object) -> None:
    split = replace(made_up(), outcome=outcome).split(0)  # type: ignore[arg-type]
    found = boosting(split)
    constant = {Real: 1.6, YesNo: 0.7, Count: 2.5, TimeToEvent: 1.7}[type(outcome)]
    assert 0 < found["nll"] < constant
    if isinstance(outcome, Real | Count):
        assert found["coverage_90"] > 0.75


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize(
    "outcome",
    [
        Real("y"),
        YesNo("event"),
        Count("count", "1", 200),
        TimeToEvent("time", "d", "dead", (2.0, 5.0, 10.0, 20.0)),
    ],
)
def test_what_is_served_of_every_kind_is_scored(outcome: object) -> None:
    found = ours.automatic_run(replace(made_up(150), outcome=outcome).split(0))  # type: ignore[arg-type]
    assert math.isfinite(found["nll"])
    assert ("coverage_90" in found) == (not isinstance(outcome, TimeToEvent))
    assert 0 < found["hospital_cpu_s"] < 5
    assert found["released"] > found["sums"] > 0


@pytest.mark.usefixtures("short")
def test_a_candidate_is_scored_like_auto() -> None:
    split = made_up(150).split(0)
    assert ours.candidate_names(split.dataset) == ("linear", "matern")
    alone, chosen = ours.candidate_run(split, "matern"), ours.automatic_run(split)
    assert alone["nll"] == chosen["nll"]
    assert set(alone) == set(chosen)


def test_what_hospitals_compute_is_timed_only_while_it_is_asked_for() -> None:
    before = ours.Rehearsed.contributed
    with ours.contributions_timed() as seconds:
        assert ours.Rehearsed.contributed is not before
    assert ours.Rehearsed.contributed is before
    assert seconds == []


@pytest.mark.usefixtures("short")
class TestPlan:
    def test_cells_are_listed_once_and_the_curve_shares_those_of_the_table(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write(tmp_path, "small")
        monkeypatch.setitem(plan.LOADERS, "small", lambda folder: load_real("small", folder))  # type: ignore[index]
        monkeypatch.setattr(plan, "REGRESSION", ("small",))
        cells = wanted(TINY, tmp_path)
        assert len(set(cells)) == len(cells)
        points = curve_cells(TINY, tmp_path)
        assert {rows for _, _, rows in points} == {40, 60}
        assert {cell for own in points.values() for cell in own} <= set(cells)
        whole = curve_cells(replace(TINY, rows=ALL_ROWS, curve_rows=(40, 10_000)), tmp_path)
        assert whole["small", AUTO, 120][0].rows == ALL_ROWS  # it has only 120

    def test_a_change_of_ours_measures_no_peer_again(self) -> None:
        codes = {code_of(Cell("ccpp", method)) for method in (AUTO, CENTRAL_GP, BOOSTING)}
        assert len(codes) == 3
        assert code_of(Cell("ccpp", AUTO)) == code_of(Cell("sml", f"{CANDIDATE}linear"))


class TestFigures:
    def test_a_margin_is_in_nats_or_a_share(self) -> None:
        assert margin(0.1) == margin(-0.1) == 0.02
        assert margin(-5.0) == pytest.approx(0.1)

    def test_with_all_cells_every_target_is_a_figure(self, tmp_path: Path) -> None:
        done, points = self.made_up_scores(), self.points()
        asked = replace(WHOLE, sets=("ccpp", "medpar"), seeds=(0, 1))
        figures = figures_of(done, points, asked)
        assert {target.figure for target in targets(figures)} <= set(figures)
        assert figures["sets"] == 2
        assert figures["sets_within_best_candidate"] == 1
        assert figures["sets_regression"] == 1
        assert figures["sets_at_or_below_central_gp"] == 1
        assert figures["sums_over_costliest"] == pytest.approx(30 / 20)
        assert figures["cpu_over_costliest"] == pytest.approx(6 / 2)
        assert figures["coverage_90"] == pytest.approx((0.8 * 100 + 1.0 * 300) / 400)
        assert (figures["coverage_90_least"], figures["coverage_90_most"]) == (0.8, 1.0)
        assert figures["curve_nll_over_central_gp"] == pytest.approx(-0.5)
        write_tables(done, points, asked, figures, tmp_path / "auto.md")
        text = (tmp_path / "auto.md").read_text()
        assert "- NO: coverage_90 ≤ 0.93, is 0.95" in text
        assert "| ccpp | 500 | 2 | 1 | small | 0.985 | yes | 1.5 | yes | 1.2 | 0.800 |" in text
        assert "| medpar | 500 | 2 | 2 | small | 1.9 | NO | – |  | 1.2 | 1.000 |" in text

    def test_of_peers_alone_nothing_of_ours_is_claimed(self, tmp_path: Path) -> None:
        done = {cell: own for cell, own in self.made_up_scores().items() if not cell.is_ours}
        asked = replace(WHOLE, sets=("ccpp", "medpar"), seeds=(0, 1))
        figures = figures_of(done, self.points(), asked)
        assert set(figures) == {"cpu_minutes"}
        write_tables(done, self.points(), asked, figures, tmp_path / "auto.md")
        assert (tmp_path / "auto.md").read_text().count("- not measured: ") == 8

    def test_methods_of_a_set_are_compared_over_the_same_seeds(self) -> None:
        done = self.made_up_scores()
        del done[Cell("ccpp", AUTO, 1)]
        done[Cell("ccpp", BOOSTING, 1)] = {"nll": 100.0}
        means = means_over_seeds(done, (0, 1))
        assert means[Cell("ccpp", BOOSTING)]["nll"] == 1.2
        assert compared_seeds(done, "ccpp", ALL_ROWS, (0, 1)) == (0,)
        assert compared_seeds(done, "medpar", ALL_ROWS, (0, 1)) == (0, 1)

    def test_a_method_without_one_of_these_seeds_has_no_mean(self) -> None:
        done = self.made_up_scores()
        del done[Cell("ccpp", BOOSTING, 1)]
        means = means_over_seeds(done, (0, 1))
        assert Cell("ccpp", BOOSTING) not in means
        assert Cell("ccpp", AUTO) in means

    def test_the_best_candidate_is_never_auto_or_a_peer(self) -> None:
        own = {AUTO: {"nll": 0.1}, BOOSTING: {"nll": 0.0}, f"{CANDIDATE}a": {"nll": 0.11}}
        assert best_candidate(own) == f"{CANDIDATE}a"
        assert within_best(own)
        assert best_candidate({BOOSTING: {"nll": 0.0}}) is None

    @staticmethod
    def points() -> dict[tuple[str, str, int], tuple[Cell, ...]]:
        return {("ccpp", method, 500): (Cell("ccpp", method, 0),) for method in (AUTO, CENTRAL_GP)}

    @staticmethod
    def made_up_scores() -> dict[Cell, dict[str, float]]:
        done = {}
        for name, (nll, best, covered, rows) in {
            "ccpp": (1.0, 0.985, 0.8, 100.0),
            "medpar": (2.0, 1.9, 1.0, 300.0),
        }.items():
            costs = {"test_rows": rows, "training_rows": 500.0, "cpu_s": 1.0}
            own = {"sums": 30.0, "released": 9.0, "hospital_cpu_s": 6.0}
            less = {**own, "sums": 20.0, "hospital_cpu_s": 2.0}
            for seed in (0, 1):
                done |= {
                    Cell(name, AUTO, seed): {"nll": nll, "coverage_90": covered, **own, **costs},
                    Cell(name, f"{CANDIDATE}small", seed): {"nll": best, **less, **costs},
                    Cell(name, f"{CANDIDATE}large", seed): {"nll": 3.0, **less, **costs},
                    Cell(name, BOOSTING, seed): {"nll": 1.2, **costs},
                }
                if name == "ccpp":
                    done[Cell(name, CENTRAL_GP, seed)] = {"nll": 1.5, **costs}
        return done


@pytest.mark.usefixtures("short")
def test_a_run_leaves_its_tables_and_goes_on_where_it_was_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, "small")
    monkeypatch.setitem(plan.LOADERS, "small", lambda folder: load_real("small", folder))  # type: ignore[index]
    for module in ("plan", "figures", "tables"):
        monkeypatch.setattr(f"benchmarks.auto.{module}.REGRESSION", ("small",))
    monkeypatch.setattr(command, "QUICK", TINY)
    monkeypatch.setattr(command, "RESULTS", tmp_path)
    monkeypatch.setattr("benchmarks.pictures.RESULTS", tmp_path)
    measured = []

    def one_by_one(work: object, wanted: dict[str, tuple[Cell, Path]]) -> object:
        for key, arguments in wanted.items():
            measured.append(key)
            yield key, plan.measure(*arguments)

    monkeypatch.setattr("benchmarks.kept.two_at_a_time", one_by_one)
    options = Namespace(quick=True, data=tmp_path, anew=False, only="")
    figures = command.run(options)
    assert figures["sets"] == figures["sets_regression"] == 1
    assert {target.figure for target in targets(figures)} <= set(figures)
    assert (tmp_path / "auto.quick.png").stat().st_size > 10_000
    assert "## small" in (tmp_path / "auto.quick.md").read_text()
    assert len(measured) == len(set(measured)) == 5 + 2
    assert command.run(options) == figures
    assert len(measured) == 7
    assert "yes: sets_within_best_candidate" in capsys.readouterr().out
