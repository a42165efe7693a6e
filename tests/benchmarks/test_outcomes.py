"""The benchmark of outcomes: whose rows are whose, what is measured, and what scores are."""

import gzip
import math
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from lifelines import KaplanMeierFitter
from lifelines.exceptions import ConvergenceWarning

from benchmarks.outcomes import plan
from benchmarks.outcomes.dataset import Classes, Count, Dataset, TimeToEvent, YesNo, size
from benchmarks.outcomes.figures import TARGETS, best_pooled, figures_of, means_over_seeds
from benchmarks.outcomes.members import by_hospital_or_country, small_together, sorted_into
from benchmarks.outcomes.peers.alone import alone
from benchmarks.outcomes.peers.boosting import boosting
from benchmarks.outcomes.peers.convergence import NotConverged
from benchmarks.outcomes.peers.cox import cox
from benchmarks.outcomes.peers.design import Design
from benchmarks.outcomes.peers.fedavg import LINEAR, predict
from benchmarks.outcomes.peers.logistic import logistic
from benchmarks.outcomes.peers.negative_binomial import negative_binomial
from benchmarks.outcomes.peers.person_periods import person_periods, survival
from benchmarks.outcomes.plan import MINE, OPACUS, POOLED_OF, Cell, wanted
from benchmarks.outcomes.scores import (
    calibration_error,
    calibration_error_floor,
    integrated_brier,
    mean_survival,
    of_classes,
    of_yes_no,
    poisson_deviance,
    scores_of,
    uncensored,
)
from benchmarks.outcomes.sets import LOADERS
from benchmarks.outcomes.tables import TITLES, write_tables
from kernels.tables.schema import Categorical, Numeric


def made_up(rows: int = 400, **changes: object) -> Dataset:
    """A table whose event depends on x and on the ward; a tenth of x is missing."""
    random = np.random.default_rng(1)
    x = random.normal(size=rows)
    ward = random.choice(np.array(["a", "b"], dtype=object), rows)
    risk = 1 / (1 + np.exp(-2 * x - (ward == "b")))
    fields: dict[str, object] = {
        "name": "made_up",
        "inputs": (
            Numeric("x", "1", -9, 9, may_be_missing=True),
            Categorical("ward", ("a", "b"), may_be_missing=True),
        ),
        "outcome": YesNo("event"),
        "table": {
            "x": np.where(random.random(rows) < 0.1, np.nan, x),
            "ward": np.where(random.random(rows) < 0.05, None, ward),
            "event": (random.random(rows) < risk).astype(np.float64),
            "count": random.poisson(np.exp(1 + 0.5 * x)).astype(np.float64),
            "time": random.exponential(10 * np.exp(-x)).round(3),
            "dead": (random.random(rows) < 0.7).astype(np.float64),
            "patient": np.arange(rows) // 3,
        },
    }
    return Dataset(**{**fields, **changes})  # type: ignore[arg-type]


class TestMembers:
    def test_small_hospitals_of_a_country_are_one_member_and_small_countries_another(self) -> None:
        hospital = np.array([1] * 3 + [2] * 2 + [3] + [4] + [5])
        country = np.array([10] * 3 + [10] * 2 + [10] + [20] + [30])
        labels = by_hospital_or_country(hospital, country, least=3, least_country=2)
        assert labels.tolist() == ["hospital 1"] * 3 + ["country 10"] * 3 + ["others"] * 2

    def test_a_country_is_counted_without_the_patients_of_its_large_hospitals(self) -> None:
        hospital, country = np.array([1, 1, 1, 2]), np.array([10, 10, 10, 10])
        labels = by_hospital_or_country(hospital, country, least=3, least_country=2)
        assert labels.tolist() == ["hospital 1"] * 3 + ["others"]

    def test_hospitals_below_the_limit_are_together(self) -> None:
        labels = small_together(np.array([1.0, 1.0, 2.0, 3.0]), least=2)
        assert labels.tolist() == ["1", "1", "others", "others"]

    def test_sorted_members_do_not_overlap(self) -> None:
        age = np.random.default_rng(1).normal(size=103)
        labels = sorted_into(age, 10)
        assert set(np.bincount(labels)) == {10, 11}
        for member in range(9):
            assert age[labels == member].max() <= age[labels == member + 1].min()


class TestSplits:
    def test_no_patient_is_on_both_sides_or_with_two_members(self) -> None:
        split = made_up(patient="patient").split(3)
        sides = [set(table["patient"]) for table in (*split.members, split.test)]
        assert len(sides) == 11
        assert sum(map(len, sides)) == len(set.union(*sides)) == 134

    def test_a_fifth_is_for_testing_and_every_row_is_somewhere(self) -> None:
        data = made_up()
        split = data.split(0)
        assert size(split.test) == 80
        assert size(split.pooled) == 320
        every = np.concatenate([split.pooled["time"], split.test["time"]])
        assert sorted(every) == sorted(data.table["time"])

    def test_a_seed_decides_a_split_alone(self) -> None:
        data = made_up()
        one, same, other = (data.split(seed).test["time"] for seed in (1, 1, 2))
        assert one.tolist() == same.tolist() != other.tolist()

    def test_hospitals_keep_their_rows(self) -> None:
        data = made_up()
        hospitals = np.where(data.table["time"] > 5, "late", "early")
        early, late = made_up(hospitals=hospitals).split(0).members
        assert early["time"].max() <= 5 < late["time"].min()


class TestFiles:
    def test_a_measurement_of_zero_that_means_missing_is_missing(self, tmp_path: Path) -> None:
        header = "site,age,sex,cp,trestbps,chol,fbs,restecg,thalach,exang,oldpeak,slope,ca,thal"
        rows = ["va,60,1,4,0,0,,2,120,0,1.5,,,7,1", "cleveland,50,0,1,130,240,0,0,150,0,0,1,0,3,0"]
        with gzip.open(tmp_path / "heart_disease.csv.gz", "wt") as file:
            file.write("\n".join([f"{header},target", *rows]) + "\n")
        data = LOADERS["heart"](tmp_path)
        assert np.isnan(data.table["chol"]).tolist() == [True, False]
        assert np.isnan(data.table["trestbps"]).tolist() == [True, False]
        assert data.table["thal"].tolist() == ["reversible defect", "normal"]
        assert data.table["slope"].tolist() == [None, "up"]
        assert data.table["disease"].tolist() == [1, 0]

    def test_who_leaves_before_five_years_is_left_out_of_the_yes_no_outcome(
        self, tmp_path: Path
    ) -> None:
        header = "age,male,sample_year,kappa,lambda,flc_group,creatinine,mgus,time_d,death"
        ends = [(1825, 1), (1826, 1), (1825, 0), (1824, 0), (0, 1)]
        rows = [f"{60 + i},0,1997,1,1,5,,0,{time},{death}" for i, (time, death) in enumerate(ends)]
        with gzip.open(tmp_path / "flchain.csv.gz", "wt") as file:
            file.write("\n".join([header, *rows]) + "\n")
        data = LOADERS["flchain_5y"](tmp_path)
        assert data.table["age"].tolist() == [60, 61, 62, 64]
        assert data.table["dead_5y"].tolist() == [1, 0, 0, 1]
        assert not {"time_d", "death"} & set(data.table)

    def test_a_file_that_is_not_there_ends_the_run_with_its_name(self, tmp_path: Path) -> None:
        for name in LOADERS:
            with pytest.raises(SystemExit, match=str(tmp_path)):
                LOADERS[name](tmp_path)


class TestScores:
    def test_a_yes_no_outcome(self) -> None:
        scores = of_yes_no(np.array([1.0, 0.0, 1.0, 0.0]), np.array([0.8, 0.4, 0.3, 0.1]))
        assert scores["logloss"] == pytest.approx(-np.log([0.8, 0.6, 0.3, 0.9]).mean())
        assert scores["brier"] == pytest.approx((0.04 + 0.16 + 0.49 + 0.01) / 4)
        assert scores["auc"] == pytest.approx(3 / 4)
        assert scores["accuracy"] == pytest.approx(3 / 4)

    def test_classes(self) -> None:
        p = np.array([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]])
        scores = of_classes(np.array([0.0, 1.0]), p)
        assert scores["logloss"] == pytest.approx(-np.log([0.7, 0.3]).mean())
        assert scores["brier"] == pytest.approx((0.09 + 0.04 + 0.01 + 0.01 + 0.49 + 0.36) / 2)
        assert scores["accuracy"] == 0.5

    def test_calibration_is_by_bins_of_equally_many_rows(self) -> None:
        p = np.concatenate([np.full(90, 0.1), np.full(10, 0.9)])
        y = np.concatenate([np.tile([0.0] * 9 + [1.0], 9), np.zeros(10)])
        assert calibration_error(y, p) == pytest.approx(0.09)
        assert calibration_error(y[::-1], p[::-1]) == pytest.approx(0.09)

    def test_the_floor_of_ece_is_that_of_outcomes_drawn_from_the_predictions(self) -> None:
        random = np.random.default_rng(3)
        p = random.uniform(0.1, 0.9, 184)
        floor = calibration_error_floor(p)
        drawn = [calibration_error((random.random(184) < p) * 1.0, p) for _ in range(500)]
        assert floor == pytest.approx(np.mean(drawn), abs=3e-3)
        assert floor == calibration_error_floor(p)
        assert calibration_error_floor(np.zeros(184)) == 0
        assert of_yes_no((p > 0.5) * 1.0, p)["ece_floor"] == floor
        assert calibration_error_floor(np.repeat(p, 100)) < floor / 5

    def test_poisson_deviance(self) -> None:
        found = poisson_deviance(np.array([0.0, 2.0]), np.array([1.0, 1.0]))
        assert found == pytest.approx((2 + 2 * (2 * math.log(2) - 1)) / 2)

    def test_mean_survival_is_the_area_under_the_curve(self) -> None:
        found = mean_survival(np.array([[1.0, 0.5]]), np.array([2.0, 4.0]))
        assert found.tolist() == [2 + 1.5]

    def test_the_brier_score_weighs_those_who_stay_for_those_who_leave(self) -> None:
        # Of four, one leaves at 1, so the others count for 4/3 each after it: G = 3/4.
        time, event = np.array([1.0, 2.0, 3.0, 9.0]), np.array([0.0, 1.0, 1.0, 1.0])
        survival_at = np.array([[0.9, 0.9], [0.4, 0.2], [0.6, 0.3], [0.8, 0.7]])
        at_two = (0.4**2 + (1 - 0.6) ** 2 + (1 - 0.8) ** 2) * (4 / 3) / 4
        at_four = (0.2**2 + 0.3**2 + (1 - 0.7) ** 2) * (4 / 3) / 4
        found = integrated_brier(time, event, survival_at, np.array([2.0, 4.0]))
        assert found == pytest.approx((at_two + at_four) / 2)

    def test_without_censoring_it_is_the_plain_brier_score(self) -> None:
        random = np.random.default_rng(2)
        time, edges = random.exponential(size=50), np.array([0.5, 1.0, 2.0])
        p = random.random((50, 3))
        plain = ((p - (time[:, None] > edges)) ** 2).mean(axis=0)
        found = integrated_brier(time, np.ones(50), p, edges)
        assert found == pytest.approx(np.trapezoid(plain, edges) / 1.5)

    def test_the_weights_are_kaplan_and_meiers_of_censoring(self) -> None:
        random = np.random.default_rng(3)
        time = random.exponential(size=80)  # no ties: lifelines lets deaths wait for the censored
        event = (random.random(80) < 0.6).astype(np.float64)
        at = np.linspace(0, time.max(), 30)
        oracle = KaplanMeierFitter().fit(time, 1 - event).survival_function_at_times(at)
        assert uncensored(time, event, at) == pytest.approx(oracle.to_numpy())


class TestPeers:
    def test_missing_cells_are_the_mean_and_marked(self) -> None:
        data = made_up()
        design = Design.fit(data, data.table)
        x = design.of(data.table)
        missing = np.isnan(data.table["x"])
        assert x.shape[1] == 2 + 3
        assert (x[missing, 0] == 0).all()
        assert np.unique(x[missing, 1]).size == np.unique(x[~missing, 1]).size == 1
        assert x.mean(axis=0) == pytest.approx(np.zeros(5), abs=1e-12)

    def test_person_periods_end_where_someone_dies_or_leaves(self) -> None:
        outcome = TimeToEvent("t", "d", "dead", (1.0, 2.0, 3.0))
        rows = {"t": np.array([0.0, 2.0, 2.0, 2.5, 9.0]), "dead": np.array([1, 1, 0, 0, 1])}
        found = person_periods(outcome, rows)
        table = list(zip(found.patient, found.interval, found.event, strict=True))
        assert table == [
            *[(0, 0, 1)],
            *[(1, 0, 0), (1, 1, 1)],
            *[(2, 0, 0), (2, 1, 0)],
            *[(3, 0, 0), (3, 1, 0)],
            *[(4, 0, 0), (4, 1, 0), (4, 2, 0)],
        ]
        curve = survival(np.array([0.5, 0.0, 0.2]), 3)
        assert curve[0] == pytest.approx([0.5, 0.5, 0.4])

    def test_every_kind_of_outcome_is_learnt_by_who_has_all_rows_and_by_averaging(self) -> None:
        times = TimeToEvent("time", "d", "dead", (2.0, 5.0, 10.0, 20.0))
        few_rounds = replace(LINEAR, rounds=10)
        for outcome, fit, score in (
            (YesNo("event"), logistic, "auc"),
            (Count("count", "1", 50), negative_binomial, "deviance"),
            (times, cox, "concordance"),
        ):
            data = made_up(outcome=outcome)
            split = data.split(0)
            mean = np.full(size(split.test), split.pooled["count"].mean())
            constant = poisson_deviance(split.test["count"], mean)
            for p in (
                fit(data, split.pooled, split.test),
                boosting(data, split.pooled, split.test),
                predict(split, few_rounds),
            ):
                found = scores_of(outcome, split.test, p)[score]
                assert (
                    found < 0.9 * constant if score == "deviance" else found > 0.65
                )  # 0.5: chance

    def test_a_cox_regression_that_diverged_is_refused_and_not_scored(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        data = made_up(outcome=TimeToEvent("time", "d", "dead", (2.0, 5.0, 10.0)))
        split = data.split(0)
        cox(data, split.pooled, split.test)
        monkeypatch.setattr("benchmarks.outcomes.peers.cox.STEP", 3.0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            with pytest.raises(NotConverged, match="made_up"):
                cox(data, split.pooled, split.test)

    def test_a_hospital_with_one_class_predicts_shares(self) -> None:
        data = made_up(hospitals=np.where(made_up().table["event"] == 1, "ill", "well"))
        assert alone(data.split(0))["auc"] == 0.5

    def test_classes_are_predicted_from_principal_components(self) -> None:
        random = np.random.default_rng(4)
        digit = np.repeat([0.0, 1.0, 2.0], 60)
        pixels = random.normal(size=(3, 8))[digit.astype(int)] * 3 + random.normal(size=(180, 8))
        data = Dataset(
            name="digits",
            inputs=tuple(Numeric(f"p{i}", "1", -99, 99) for i in range(8)),
            outcome=Classes("digit", ("0", "1", "2")),
            table={**{f"p{i}": column for i, column in enumerate(pixels.T)}, "digit": digit},
            components=2,
        )
        split = data.split(0)
        assert Design.fit(data, split.pooled).of(split.test).shape == (36, 2)
        p = logistic(data, split.pooled, split.test)
        assert of_classes(split.test["digit"], p)["accuracy"] > 0.9


class TestFigures:
    def test_a_quick_run_measures_the_same_things_of_fewer_seeds(self) -> None:
        quick, whole = wanted(quick=True), wanted(quick=False)
        assert len(set(whole)) == len(whole) == 5 * len(quick)
        assert {c._replace(seed=-1) for c in quick} == {c._replace(seed=-1) for c in whole}
        assert {cell.dataset for cell in whole} == set(LOADERS) == set(TITLES)

    def test_the_best_pooled_method_is_that_of_the_mean_and_not_of_each_seed(self) -> None:
        done = self.made_up_scores()
        figures = figures_of(done)
        # Boosting is better on the first seed alone, logistic regression on average.
        assert figures["logloss_over_best_pooled_stroke"] == pytest.approx(0.55 / 0.5)
        assert figures["auc_stroke"] == 0.8

    def test_with_all_cells_every_target_is_a_figure(self, tmp_path: Path) -> None:
        figures = figures_of(self.made_up_scores())
        assert {target.figure for target in TARGETS} <= set(figures)
        assert figures["max_prediction_gap_clients"] == 3e-6
        assert figures["private_sets_no_worse_than_opacus"] == 3
        write_tables(self.made_up_scores(), figures, tmp_path / "outcomes.md")
        text = (tmp_path / "outcomes.md").read_text()
        assert "- NO: logloss_over_best_pooled_stroke ≤ 1.01, is 1.1" in text
        assert "| opacus_logistic, ε = 4 |" in text

    def test_without_ours_peers_are_reported_and_targets_are_not_measured(
        self, tmp_path: Path
    ) -> None:
        done = {cell: s for cell, s in self.made_up_scores().items() if cell.method != MINE}
        figures = figures_of(done)
        assert not {target.figure for target in TARGETS} & set(figures)
        assert figures["pooled_cox_concordance_flchain"] == 0.8
        assert best_pooled(means_over_seeds(done), "stroke") == "pooled_logistic"
        write_tables(done, figures, tmp_path / "outcomes.md")
        assert (tmp_path / "outcomes.md").read_text().count("- not measured: ") == len(TARGETS)

    @staticmethod
    def made_up_scores() -> dict[Cell, dict[str, float]]:
        done: dict[Cell, dict[str, float]] = {}
        for name, pooled in POOLED_OF.items():
            for method in (MINE, *pooled):
                for seed in (0, 1):
                    loss = {MINE: 0.55, "pooled_boosting": 0.3 + 0.5 * seed}.get(method, 0.5)
                    done[Cell(name, method, seed)] = {
                        "logloss": loss,
                        "auc": 0.8,
                        "ece": 0.02,
                        "accuracy": 0.9,
                        "deviance": 2.0,
                        "concordance": 0.8,
                        "cpu_s": 1.0,
                        **({"prediction_gap": 1e-6 + 2e-6 * seed} if method == MINE else {}),
                    }
        for name in plan.PRIVATE_SETS:
            for method, loss in ((MINE, 0.5), (OPACUS, 0.6)):
                for epsilon in plan.EPSILONS:
                    for seed in (0, 1):
                        scores = {"logloss": loss, "ece": 0.05, "cpu_s": 1.0}
                        done[Cell(name, method, seed, epsilon)] = scores
        return done
