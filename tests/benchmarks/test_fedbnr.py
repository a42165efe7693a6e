"""The benchmark of FedBNR: its protocol, its baselines' arithmetic, its tables, what it keeps."""

import itertools
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from benchmarks.datasets import FILES, Dataset
from benchmarks.fedbnr import central, networks
from benchmarks.fedbnr.anchors import read_anchors
from benchmarks.fedbnr.claims import claims
from benchmarks.fedbnr.experts import Consensus, product
from benchmarks.fedbnr.families import FAMILIES, ROOT, ROWS
from benchmarks.fedbnr.protocol import CLIENTS, Column, Predictor, Table, Tables, by_size, follow
from benchmarks.fedbnr.scoring import Belief, scored
from benchmarks.fedbnr.significance import arrows, probability
from benchmarks.fedbnr.tables import Results, markdown
from benchmarks.kept import Kept, fingerprint
from kernels.tables.schema import Numeric, Schema
from kernels.tables.targets import Target


def table(rows: int, seed: int, inputs: int = 2) -> Table:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, inputs, generator=generator, dtype=torch.float64)
    return Table(x, x.sum(1, keepdim=True).sin())


# The protocol


def constant(value: float) -> Predictor:
    return lambda x: Belief(torch.full((len(x), 1), value, dtype=torch.float64))


def test_validation_chooses_the_round_and_the_least_test_error_stands_beside_it() -> None:
    x = torch.zeros(4, 1, dtype=torch.float64)
    tables = Tables((), Table(x, x), Table(x, x + 1), scale=10.0)
    rounds = [
        [constant(value)] for value in (2.0, 0.0, 1.0)
    ]  # 0 is best for validation, 1 for test
    found = follow(rounds, tables)
    assert found["rmse"] == pytest.approx(10.0)
    assert found["rmse_min"] == 0.0


def test_training_stops_after_rounds_that_validate_no_better() -> None:
    x = torch.zeros(1, 1, dtype=torch.float64)
    asked: list[int] = []

    def rounds() -> itertools.chain[Sequence[Predictor]]:
        def models(number: int) -> list[Predictor]:
            asked.append(number)
            return [constant(1.0 + number)]

        return itertools.chain(models(n) for n in range(100))

    found = follow(rounds(), Tables((), Table(x, x), Table(x, x), scale=1.0), patience=3)
    assert asked == [0, 1, 2, 3]
    assert found["rounds"] == 4


def test_without_a_global_model_the_clients_errors_are_averaged() -> None:
    x = torch.zeros(2, 1, dtype=torch.float64)
    tables = Tables((), Table(x, x), Table(x, x), scale=1.0)
    assert follow([[constant(1.0), constant(3.0)]], tables)["rmse"] == pytest.approx(2.0)


def test_scores_are_in_the_targets_unit() -> None:
    generator = torch.Generator().manual_seed(0)
    y = torch.randn(20_000, 1, generator=generator, dtype=torch.float64)
    belief = Belief(torch.zeros_like(y), torch.ones_like(y))
    plain, in_units = scored(belief, y, scale=1.0), scored(belief, y, scale=5.0)
    assert plain["rmse"] == pytest.approx(1.0, rel=0.02)
    assert plain["ece"] < 0.01
    assert plain["brier"] == pytest.approx(0.1675, abs=0.002)
    assert in_units["nll"] - plain["nll"] == pytest.approx(math.log(5.0))
    assert in_units["width_90"] == pytest.approx(5 * 2 * 1.645, rel=1e-3)


def test_public_rows_are_nobodys() -> None:
    rows = np.random.default_rng(0).normal(size=(400, 3))
    schema = Schema((Numeric("a", "1"), Numeric("b", "1")), (Target("y", "1"),))
    split = Dataset("made", schema, rows).split(clients=5, seed=1, public=0.8)
    held = [row for site in split.sites for own in site.records.values() for row in own.targets]
    everybody = {float(value) for value in torch.cat(held)} | {float(row[-1]) for row in split.test}
    public = {float(row[-1]) for row in split.public}
    assert len(public) == 32
    assert not public & everybody
    assert len(public | everybody) == 400


# Baselines


def test_proximal_admm_agrees_on_the_minimum_of_the_sum() -> None:
    weights, targets = torch.tensor([[1.0], [3.0]]), torch.tensor([[0.0, 4.0], [4.0, 0.0]])
    consensus = Consensus.start(torch.tensor([9.0, 9.0]), 2)
    for _ in range(2000):
        common = consensus.agreed(rho=1.0)
        gradients = weights * (common - targets)
        consensus = consensus.stepped(common, gradients, rho=1.0, damping=10.0)
    torch.testing.assert_close(consensus.agreed(1.0), torch.tensor([3.0, 1.0]))
    torch.testing.assert_close(consensus.own, consensus.common.expand(2, 2))


def test_the_duals_of_an_agreement_cancel() -> None:
    consensus = Consensus.start(torch.zeros(3), 4)
    gradients = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    stepped = consensus.stepped(consensus.agreed(2.0), gradients, rho=2.0, damping=20.0)
    expected = -gradients / 22
    torch.testing.assert_close(stepped.own, expected)
    torch.testing.assert_close(stepped.duals, 2 * expected)


def test_a_product_of_equal_experts_is_the_expert() -> None:
    mean, variance = product(torch.full((3, 2), 1.5), torch.full((3, 2), 0.25))
    torch.testing.assert_close(mean, torch.full((2,), 1.5))
    torch.testing.assert_close(variance, torch.full((2,), 0.25))


def test_clients_of_one_size_are_one_batch() -> None:
    clients = [table(rows, seed) for seed, rows in enumerate((4, 5, 4, 6))]
    batches = list(by_size(clients))
    assert sorted(i for members, _ in batches for i in members) == [0, 1, 2, 3]
    for members, batch in batches:
        for place, client in enumerate(members):
            assert torch.equal(batch.x[place], clients[client].x)


def test_a_batch_of_networks_trains_each_as_if_alone() -> None:
    clients = [table(7, 0), table(4, 1)]
    start = networks.starting(2, (8,), 1, generator=torch.Generator().manual_seed(0))

    def trained(tables: list[Table]) -> list[Tensor]:
        return networks.trained(start, *networks.padded(tables), networks.Local(10, 0.005, 0.3))

    together = trained(clients)
    for place, client in enumerate(clients):
        for ours, own in zip(together, trained([client]), strict=True):
            torch.testing.assert_close(ours[place], own[0], rtol=1e-4, atol=1e-5)


def test_a_strong_proximal_term_keeps_a_network_where_it_was() -> None:
    start = networks.starting(2, (8,), 1, generator=torch.Generator().manual_seed(0))
    rows = networks.padded([table(20, 0)])
    moved = {
        mu: sum(
            float((new[0] - old).square().sum())
            for new, old in zip(
                networks.trained(start, *rows, networks.Local(10, 0.005, mu)), start, strict=True
            )
        )
        for mu in (0.0, 10.0)
    }
    assert moved[10.0] < 0.5 * moved[0.0]


# Significance and tables


def test_the_signed_rank_test_counts_all_signs() -> None:
    differences = np.array([0.3, -0.1, 0.5, 0.7, 0.2])
    ranks = np.array([3, 1, 4, 5, 2])
    observed = ranks[differences > 0].sum()
    sums = [np.dot(ranks, signs) for signs in itertools.product((0, 1), repeat=5)]
    exact = np.mean([total >= observed for total in sums])
    assert probability(differences.tolist(), [0.0] * 5, higher=True) == pytest.approx(exact)


def test_three_seeds_can_have_no_arrow() -> None:
    assert arrows([9.0, 8.0, 7.0], [1.0, 1.0, 1.0]) == ""
    assert arrows([1.0] * 10, [2.0 + k for k in range(10)]) == "↓↓"


def results(row: str, values: dict[tuple[str, int, int], float], metric: str = "rmse") -> Results:
    return Results({(row, Column(*key)): {metric: value} for key, value in values.items()})


def test_a_table_has_the_thesis_beside_ours_and_a_dash_where_nothing_was_measured() -> None:
    found = results("FedBNR", {("sml", 10, 0): 0.3, ("sml", 10, 1): 0.5})
    text = markdown(found, {("rmse", "FedBNR", "sml", 10): 0.25})
    (line,) = (line for line in text.splitlines() if line.startswith("| FedBNR |"))
    assert "0.400 (0.25)" in line
    assert line.count(" – ") == 9
    assert line.endswith("| 0–2 |")


def test_a_central_row_stands_in_both_columns() -> None:
    found = results("Central GP", {("ccpp", 10, 0): 4.0})
    assert found.mean("Central GP", "rmse", "ccpp", 100) == 4.0


def test_without_anchors_there_are_only_our_numbers(tmp_path: Path) -> None:
    assert read_anchors(tmp_path) == {}
    (tmp_path / "fedbnr_rmse.csv").write_text(
        "dataset,clients,method,rmse\nSML,central,Central GP,0.21\nSML,100,FedBNR,0.44\n"
    )
    assert read_anchors(tmp_path) == {
        ("rmse", "Central URK", "sml", 10): 0.21,
        ("rmse", "Central URK", "sml", 100): 0.21,
        ("rmse", "FedBNR", "sml", 100): 0.44,
    }


def test_a_claim_that_does_not_hold_says_where_and_by_how_much() -> None:
    found = results("FedBNR exact", {("sml", 10, 0): 0.19, ("sml", 100, 0): 0.25})
    (claim,) = claims(found, {})
    assert (claim.held, claim.of) == (1, 2)
    assert str(claim).startswith("NO")
    assert claim.missed == ("sml 100 (0.250 > 0.200)",)


def test_a_claim_on_all_columns_is_open_until_they_are_measured() -> None:
    columns = [(dataset, clients, 0) for dataset in FILES for clients in CLIENTS]
    some, every = (
        next(claims(results("FedBNR exact", dict.fromkeys(own, 0.1)), {}))
        for own in (columns[:9], columns)
    )
    assert (some.verdict, every.verdict) == ("open", "yes")


def test_the_central_process_is_compared_on_the_splits_that_it_was_measured_on() -> None:
    ours = results("FedBNR exact", {("sml", 10, 0): 1.0, ("sml", 10, 1): 9.0}, "nll")
    central = results("Central GP", {("sml", 10, 0): 2.0}, "nll")
    both = Results({**ours.cells, **central.cells})
    (claim,) = claims(both, {})
    assert (claim.held, claim.of, claim.missed) == (1, 1, ())


def test_recalibrated_a_process_that_promises_too_little_is_wide_and_its_mean_is_the_same() -> None:
    held_out, new = table(2000, 0), table(5, 1)

    def overconfident(x: Tensor) -> Belief:
        return Belief(torch.zeros(len(x), 1), torch.full((len(x), 1), 0.01))

    deviation = float(held_out.y.std())
    belief = central.recalibrated(overconfident, held_out)(new.x)
    assert belief.mean.equal(overconfident(new.x).mean)
    assert belief.variance is not None
    assert 0.1 * belief.law.variance**0.5 == pytest.approx(deviation, rel=0.1)


# What is kept


def test_a_fingerprint_is_of_what_code_does_not_of_what_it_says(tmp_path: Path) -> None:
    source = tmp_path / "a.py"
    texts = (
        '"""One."""\nX = 1\n"""About X."""\ndef f():\n    """Two."""\n    return X\n',
        "X = 1  # a comment\n\n\ndef f():\n    return X\n",
        "X = 2\ndef f():\n    return X\n",
    )
    found = []
    for text in texts:
        source.write_text(text)
        found.append(fingerprint([source]))
    assert found[0] == found[1] != found[2]


def test_a_run_that_was_stopped_goes_on_unless_its_code_has_changed(tmp_path: Path) -> None:
    path = tmp_path / "cells.json"
    Kept(path).keep("exact/sml/10/0", "old", {"FedBNR exact": {"rmse": 0.2}})
    again = Kept(path)
    assert again.result("exact/sml/10/0", "old") == {"FedBNR exact": {"rmse": 0.2}}
    assert again.result("exact/sml/10/0", "new") is None
    assert again.result("exact/sml/10/1", "old") is None


def test_every_row_has_a_family_and_every_source_exists() -> None:
    assert {row for family in FAMILIES.values() for row in family.rows} == set(ROWS)
    for family in FAMILIES.values():
        assert all((ROOT / source).is_file() for source in family.sources)
        assert family.code()
