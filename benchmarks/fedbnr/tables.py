"""The tables: one for each metric, ours with [FedBNR]'s number in brackets, as Markdown."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.datasets import FILES
from benchmarks.fedbnr.anchors import Anchors
from benchmarks.fedbnr.families import FAMILIES, ROWS
from benchmarks.fedbnr.protocol import CLIENTS, Column
from benchmarks.fedbnr.significance import arrows, log_ratios, probability

TITLES = {
    "rmse": "RMSE at the round that validation rows choose",
    "rmse_min": "RMSE, the least of all rounds, as the thesis reports it (it peeks at test rows)",
    "ece": "Expected calibration error",
    "mce": "Maximum calibration error",
    "brier": "Brier score of the ten intervals (0.1675 if calibrated)",
    "nll": "Negative log predictive density",
    "ece_gaussian": "Expected calibration error before recalibration, of rows that have it",
    "nll_gaussian": "Negative log predictive density before recalibration, of rows that have it",
    "width_90": "Mean width of the central 90 % interval",
}
_ANCHORED = {"rmse": "rmse", "rmse_min": "rmse", "ece": "ece", "mce": "mce", "brier": "brier"}
_REFERENCE = {"rmse": "FedBNR", "rmse_min": "FedBNR"}
"""What a metric's arrows compare with: [FedBNR]'s choice; FedBNR-KD for the others."""

COLUMNS = [(dataset, clients) for dataset in FILES for clients in CLIENTS]

CENTRAL = {row for family in FAMILIES.values() for row in family.rows if family.clients != CLIENTS}


@dataclass(frozen=True, eq=False)
class Results:
    """Everything measured: by row and column what was found."""

    cells: Mapping[tuple[str, Column], Mapping[str, Any]]

    def by_seed(self, row: str, metric: str, dataset: str, clients: int) -> dict[int, float]:
        """Return a metric of a row in one column by seed; a central row stands in both."""
        held = CLIENTS[0] if row in CENTRAL else clients
        return {
            column.seed: float(found[metric])
            for (name, column), found in sorted(self.cells.items(), key=_order)
            if name == row
            and (column.dataset, column.clients) == (dataset, held)
            and metric in found
        }

    def mean(self, row: str, metric: str, dataset: str, clients: int) -> float | None:
        """Return the mean over seeds, or None if nothing was measured."""
        values = self.by_seed(row, metric, dataset, clients)
        return float(np.mean(list(values.values()))) if values else None

    def pairs(
        self, row: str, other: str, metric: str, dataset: str, clients: int
    ) -> tuple[list[float], list[float]]:
        """Return two rows' values of one column at the seeds that both have."""
        ours, theirs = (self.by_seed(name, metric, dataset, clients) for name in (row, other))
        seeds = sorted(ours.keys() & theirs.keys())
        return [ours[seed] for seed in seeds], [theirs[seed] for seed in seeds]

    def means(
        self, row: str, other: str, metric: str, dataset: str, clients: int
    ) -> tuple[float | None, float | None]:
        """Return two rows' means over the seeds that both have: of the same splits."""
        ours, theirs = self.pairs(row, other, metric, dataset, clients)
        return (float(np.mean(ours)), float(np.mean(theirs))) if ours else (None, None)


def _order(item: tuple[tuple[str, Column], object]) -> tuple[str, str, int, int]:
    (row, column), _ = item
    return row, column.dataset, column.clients, column.seed


def markdown(results: Results, anchors: Anchors) -> str:
    """Return all tables."""
    return "\n\n".join(_table(results, anchors, metric) for metric in TITLES) + "\n"


def _table(results: Results, anchors: Anchors, metric: str) -> str:
    reference = _REFERENCE.get(metric, "FedBNR-KD")
    names = [f"{dataset} {clients}" for dataset, clients in COLUMNS]
    header = ["", *names, f"p, {reference}", "seeds"]
    lines = [f"## {TITLES[metric]}", "", _line(header), _line(["---"] * len(header))]
    for row in ROWS:
        cells = [_cell(results, anchors, metric, row, reference, *column) for column in COLUMNS]
        if any(cells):
            overall = _overall(results, metric, row, reference)
            seeds = seeds_of(results, metric, row)
            lines.append(_line([row, *(cell or "–" for cell in cells), overall, seeds]))
    return "\n".join(lines)


def seeds_of(results: Results, metric: str, row: str) -> str:
    """Return how many seeds a row's means are of: the least and the most of any column."""
    counts = {len(results.by_seed(row, metric, *column)) for column in COLUMNS}
    return "–".join(str(count) for count in sorted({min(counts), max(counts)}))


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(
    results: Results,
    anchors: Anchors,
    metric: str,
    row: str,
    reference: str,
    dataset: str,
    clients: int,
) -> str:
    mean = results.mean(row, metric, dataset, clients)
    if mean is None:
        return ""
    pairs = results.pairs(row, reference, metric, dataset, clients)
    mark = arrows(*pairs) if row != reference and len(pairs[0]) > 1 else ""
    thesis = anchors.get((_ANCHORED.get(metric, ""), row, dataset, clients))
    beside = "" if thesis is None else f" ({thesis:.3g})"
    return f"{number(mean)}{' ' if mark else ''}{mark}{beside}"


def number(value: float) -> str:
    """Return three digits.

    >>> number(0.0123), number(3.456), number(17.31), number(-0.5)
    ('0.012', '3.46', '17.3', '-0.500')
    """
    size = abs(value)
    return f"{value:.3f}" if size < 1 else f"{value:.2f}" if size < 10 else f"{value:.1f}"


def _overall(results: Results, metric: str, row: str, reference: str) -> str:
    """Say how surely a row is worse (or better) than the reference over all columns together."""
    ratios: list[float] = []
    for column in COLUMNS:
        ours, theirs = results.pairs(row, reference, metric, *column)
        # An NLL may be negative: its difference is a log ratio of densities already.
        direct = metric.startswith("nll")
        ratios += np.subtract(ours, theirs).tolist() if direct else log_ratios(ours, theirs)
    if row == reference or not ratios:
        return ""
    zeros = [0.0] * len(ratios)
    worse = probability(ratios, zeros, higher=True)
    better = probability(ratios, zeros, higher=False)
    return f"worse {worse:.2g}" if worse < better else f"better {better:.2g}"
