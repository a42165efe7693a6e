"""The privacy benchmark: what is measured, and what its figures are of."""

import gzip
import math
from pathlib import Path

import numpy as np
import pytest

from benchmarks.dp.data import DICTIONARY, Private
from benchmarks.dp.figures import _against_opacus, means_over_seeds, over_central
from benchmarks.dp.plan import BASELINES, CLIENTS, EPSILONS, LOCAL, MAIN, SEEDS, Cell, wanted
from benchmarks.dp.routes import ROUTES, charged, program
from benchmarks.dp.tables import read_table, write_table
from client_sdk.simulation import simulate


def test_every_route_is_measured_at_every_epsilon_and_with_few_and_many_clients() -> None:
    plan = wanted(quick=False)
    assert len(set(plan)) == len(plan)
    found = {cell[:4] for cell in plan if not cell.colluders + cell.dropouts}
    few, many = CLIENTS
    for dataset in DICTIONARY:
        for epsilon in EPSILONS:
            assert {(r, dataset, epsilon, few) for r in (*ROUTES, LOCAL)} <= found
            assert {(b, dataset, epsilon, 1) for b in BASELINES} <= found
            assert (MAIN, dataset, epsilon, many) in found
        assert {(r, dataset, 1.0, many) for r in (*ROUTES, LOCAL)} <= found
        assert (MAIN, dataset, math.inf, CLIENTS[0]) in found


def test_no_figure_is_of_a_seed_that_settings_were_chosen_by() -> None:
    seeds = {cell.seed for cell in wanted(quick=False)}
    assert seeds == set(SEEDS)
    assert not seeds & {0, 1, 2, 10, 11, 12, 100, 101, 102, 103}
    assert {cell.seed for cell in wanted(quick=True)} <= seeds


@pytest.mark.parametrize("route", ROUTES)
def test_a_route_costs_what_it_may_and_nearly_that(route: str) -> None:
    assert 0.97 < charged(route, 1.0).epsilon <= 1.0


def test_clients_can_recalibrate_without_noise(tmp_path: Path) -> None:
    names = DICTIONARY["ccpp"]
    random = np.random.default_rng(1)
    rows = np.column_stack([random.uniform(*bounds, 400) for bounds in names.values()])
    with gzip.open(tmp_path / "ccpp.csv.gz", "wt") as file:
        np.savetxt(file, rows, delimiter=",", header=",".join(names), comments="")
    data = Private.load("ccpp", tmp_path, clients=3, seed=SEEDS[0])
    asked = program(data, ROUTES["public_kernel"], math.inf)
    assert simulate(asked, data.sites, secure=False).model.recalibration is not None


def test_clients_are_compared_with_one_of_the_same_seed() -> None:
    scores = {
        Cell(MAIN, "ccpp", 1.0, 10, 10): {"rmse": 2.0},
        Cell(MAIN, "ccpp", 1.0, 10, 11): {"rmse": 50.0},
        Cell(MAIN, "ccpp", 1.0, 1, 10): {"rmse": 1.0},
    }
    assert over_central(scores, MAIN, 10) == pytest.approx(2.0)
    assert means_over_seeds(scores)[Cell(MAIN, "ccpp", 1.0, 10)]["rmse"] == 26.0


def test_a_table_is_read_as_it_was_written(tmp_path: Path) -> None:
    means = {
        Cell("auto", "ccpp", 0.5, 10): {"rmse": 4.25, "nll": 2.5, "ece": 0.125},
        Cell("elbo", "ccpp", math.inf, 10): {"rmse": 4.5, "nll": -2.25, "ece": 0.25},
        Cell("public_kernel", "sml", 1.0, 10, colluders=3): {"rmse": 2.0, "nll": 1.5, "ece": 0.5},
        Cell("public_kernel", "sml", 1.0, 10, dropouts=1): {"rmse": 3.0, "nll": 1.25, "ece": 0.75},
    }
    write_table(means, tmp_path / "dp.md")
    assert read_table(tmp_path / "dp.md") == means


def test_opacus_counts_with_its_better_model_of_each_set() -> None:
    rmse = {MAIN: 1.0, "opacus_network": 2.0, "opacus_linear": 0.5}
    done = {
        Cell(method, dataset, epsilon, 10 if method == MAIN else 1, seed): {"rmse": found}
        for method, found in rmse.items()
        for dataset in DICTIONARY
        for epsilon in EPSILONS
        for seed in SEEDS
    }
    figures = _against_opacus(done)
    assert figures["over_opacus_sml"] == pytest.approx(2.0)
    assert figures["over_opacus_sml_error"] == 0.0
    assert figures["sets_better_than_opacus"] == 0


def test_against_opacus_an_error_says_how_far_seeds_differ() -> None:
    done = {
        Cell(method, dataset, 1.0, 10 if method == MAIN else 1, seed): {"rmse": found}
        for method, by_seed in {
            MAIN: (1.0, 3.0),
            "opacus_network": (2.0, 2.0),
            "opacus_linear": (9.0, 9.0),
        }.items()
        for dataset in DICTIONARY
        for seed, found in enumerate(by_seed)
    }
    figures = _against_opacus(done)
    assert figures["over_opacus_ccpp"] == pytest.approx(1.0)
    assert figures["over_opacus_ccpp_error"] == pytest.approx(0.5)
