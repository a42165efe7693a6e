"""The predictive benchmark: its splits, the papers' metric, and what its summary says of cells."""

import gzip
import json
from argparse import Namespace
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.cells import Cells
from benchmarks.predictive import printed_tables
from benchmarks.predictive.cost import costs
from benchmarks.predictive.data import FILES, SPLITS, as_printed, honest
from benchmarks.predictive.drawing import draw
from benchmarks.predictive.honest import COMMITTEES, METHODS
from benchmarks.predictive.printed import measure, summed
from benchmarks.predictive.summary import Summary
from kernels.rounds.site.site import Part

ROWS = 120


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Rows whose first column is their place in the file, and whose target follows the second."""
    random = np.random.default_rng(1)
    x = random.normal(size=(ROWS, 2))
    rows = np.column_stack([np.arange(ROWS), x, 3 * x[:, 0] + 0.1 * random.normal(size=ROWS)])
    lines = ["place,a,b,y", *(",".join(map(str, row)) for row in rows)]
    for name in FILES["wine"]:
        with gzip.open(tmp_path / f"{name}.csv.gz", "wt") as file:
            file.write("\n".join(lines))
    return tmp_path


@pytest.mark.parametrize("split", SPLITS)
def test_every_row_is_a_sites_or_public_or_for_testing(folder: Path, split: str) -> None:
    rows = honest("wine", folder, split=split, seed=3)
    counts = [sum(site.count(part) for part in list(Part)[:3]) for site in rows.sites]
    assert (sum(counts), len(rows.public), len(rows.test)) == (77, 19, 24)
    assert max(counts) - min(counts) <= 1
    assert not set(rows.public[:, 0]) & set(rows.test[:, 0])


def test_sorted_sites_have_ranges_of_their_own(folder: Path) -> None:
    """By the input that says most of the target."""
    tables = {
        split: [
            site.records[Part.TRAINING].numeric[:, 1]
            for site in honest("wine", folder, split=split, seed=3).sites
        ]
        for split in SPLITS
    }
    for low, high in zip(tables["sorted"], tables["sorted"][1:], strict=False):
        assert low.max() <= high.min()
    first, second = tables["homogeneous"][:2]
    assert first.max() > second.min()


def test_as_printed_the_end_of_the_file_is_for_testing(folder: Path) -> None:
    rows = as_printed("wine", folder, split="sorted", seed=3)
    everything = np.concatenate([*rows.clients, rows.server, rows.test])
    assert np.allclose(everything.mean(0), 0)
    assert np.allclose(everything.std(0), 1)
    assert len(rows.test) == 24
    assert rows.test[:, 0].min() > max(block[:, 0].max() for block in (*rows.clients, rows.server))
    assert [len(block) for block in rows.clients] == [15, 15, 15, 15, 17]


def test_the_papers_metric_adds_up_means_of_batches() -> None:
    losses = torch.cat([torch.full((100, 1), 2.0), torch.full((20, 1), 5.0)])
    assert summed(losses) == pytest.approx(7.0)


def test_as_printed_every_method_has_both_metrics(folder: Path) -> None:
    found = measure("wine", folder, "sorted", 1)
    assert (
        set(found["mse"])
        == set(found["nll"])
        == {*("product", "mixture", "beta", "d_product", "d_beta")}
    )
    assert found["mse"]["product"] < 1


# The summary


def _summary(**changed: float) -> Summary:
    """Two seeds in which every method's NLL is 1 or 1.2 and FedBNR's is the least."""
    cells = {}
    for seed, shift in ((10, 0.0), (11, 0.2)):
        cell = {f"{what}_{method}": 1.0 + shift for what in ("nll", "mse") for method in METHODS}
        cell |= {"nll_fedbnr": 0.9 + shift, "nll_auto": 0.8 + shift, "teacher_gap": 1e-12}
        cell |= {name: value + shift for name, value in changed.items()}
        cells |= {(name, split, seed): dict(cell) for name in FILES for split in SPLITS}
    return Summary(cells)


def test_what_is_held_is_said() -> None:
    summary = _summary()
    figures = summary.figures()
    assert figures["student_over_teacher_nll"] == pytest.approx(1)
    assert figures["fedbnr_best_or_near_sorted"] == len(FILES)
    assert figures["auto_best_or_near_sorted"] == len(FILES)
    assert all(bar.startswith("- yes") for bar in summary.bars())
    assert summary.tables().count("**FedBNR exact** | 1.00 ± 0.10 (1.10)") == len(SPLITS)


def test_a_student_far_from_its_teacher_is_named() -> None:
    summary = _summary(nll_d_rbcm=1.2)
    assert summary.figures()["student_over_teacher_nll"] == pytest.approx(1.3 / 1.1)
    (bar, *_) = summary.bars()
    assert bar.startswith("- NO")
    assert "air sorted rbcm 1.182" in bar


def test_near_zero_the_difference_counts() -> None:
    near = {f"nll_{method}": -0.1 for method in COMMITTEES}
    near |= {f"nll_d_{method}": -0.09 for method in COMMITTEES}
    summary = _summary(**near)
    assert summary.figures()["student_minus_teacher_nll"] == pytest.approx(0.01)
    assert summary.bars()[0].startswith("- yes")
    assert _summary(**{**near, "nll_d_beta": 0.0}).bars()[0].startswith("- NO")


@pytest.mark.parametrize(("lead", "near"), [(0.05, True), (0.15, False)])
def test_near_is_within_a_standard_error_of_the_best(lead: float, near: bool) -> None:
    """With two seeds 0.2 apart that is 0.1."""
    summary = _summary(nll_gpoe=0.9 - lead, nll_d_gpoe=0.9 - lead)
    assert summary.is_best_or_near("fedbnr", "wine", "sorted") is near


def test_the_picture_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.pictures.RESULTS", tmp_path)
    assert draw(_summary(nll_product=9.0), quick=True).stat().st_size > 10_000


def test_the_papers_numbers_stand_beside_ours(tmp_path: Path) -> None:
    anchors = tmp_path / "anchors"
    anchors.mkdir()
    for what, methods in (("mse", printed_tables.MSE), ("nll", printed_tables.NLL)):
        lines = [f"seed,dataset,method,{what}_as_printed,se"]
        for name in printed_tables.NAMES.values():
            lines += [f"001,{name},{method},1.0,0.1" for method in methods.values()]
        (anchors / f"predspace_{what}.csv").write_text("\n".join(lines))
    kept = {}
    for what, split, seeds, methods in printed_tables.TABLES:
        for name in FILES:
            value = 1.3 if (name, what) == ("bike", "nll") else 1.1
            cell = {what: dict.fromkeys(methods, value)}
            kept |= {f"{name}/{split}/{seed}": cell for seed in range(seeds)}
    path = tmp_path / "cells.json"
    path.write_text(json.dumps({"code": sha256(b"").hexdigest(), "cells": kept}))
    options = Namespace(data=tmp_path / "data", quick=False)
    figures, text = printed_tables.run(Cells(path, []), options)
    assert figures["product_and_beta_as_printed"] == 4
    assert "**1.10 ± 0.00 (1.00 ± 0.10)**" in text
    assert "| 1.30 ± 0.00 (1.00 ± 0.10) |" in text


def test_costs_are_ratios_for_several_numbers_of_clients() -> None:
    figures, table = costs(asked=(10,), seconds=1e-4)
    assert {"student_over_network_time", "loop_over_batched", "open_over_network_time_5"} <= set(
        figures
    )
    assert all(value > 0 for value in figures.values())
    assert len(table.splitlines()) == 3
