"""Tables 3.2 and 4.2 of [PredBayes] with our numbers beside its own.

`mse_SET_…` against table 3.2 (homogeneous), `nll_SET_…` against table 4.2 (sorted).
`product_and_beta_as_printed`: sets on which the product's MSE and the β model's NLL are both within
its ± 2 standard errors, or better.
"""

import csv
from argparse import Namespace
from pathlib import Path

import numpy as np

from benchmarks.cells import Cells
from benchmarks.predictive.data import FILES
from benchmarks.predictive.printed import measure
from benchmarks.predictive.summary import standard_error
from benchmarks.registry import Figures

NAMES = {
    "air": "Air Quality",
    "bike": "Bike",
    "wine": "Wine Quality",
    "estate": "Real Estate",
    "forest": "Forest Fire",
}
MSE = {"product": "BCM (ours)", "d_product": "D BCM (ours)"}
NLL = {
    "mixture": "Mixture",
    "product": "Product",
    "beta": "β -PredBayes (ours)",
    "d_beta": "D β -PredBayes (ours)",
}
"""Our names, and those of the anchors, of table 3.2 and of table 4.2."""
TABLES = (("mse", "homogeneous", 10, MSE), ("nll", "sorted", 5, NLL))
TITLES = {"mse": "Table 3.2: MSE, homogeneous", "nll": "Table 4.2: NLL, sorted"}
ASKED = (("mse", "product"), ("nll", "beta"))
QUICK_SEEDS = 2

_ABOUT = """Ours ± standard error (the papers' ± theirs), sums over batches of 100 test rows as in
the papers' code. **Bold**: of what is asked for, what is within two of their standard errors or
better."""
_NOTE = """Products are better than printed on all sets but forest. Five clients of
variance 2 and little more multiply to .4, so that a product's NLL tells the error of its mean:
.75 a row on air, .94, .95 and .93 on bike, wine and estate and 1.39 on forest as printed; ours are
.33, .27, .64, .45 and 1.41. So means under the sorted split were far worse there than here, and
than table 3.2's own (.32, .17, .59, .32, 1.40). Why, the papers do not say."""


def run(cells: Cells, options: Namespace) -> tuple[Figures, str]:
    """Return the figures, and a table with [PredBayes]'s numbers beside."""
    anchors = options.data.parent / "anchors"
    figures: dict[str, float] = {}
    good = dict.fromkeys(FILES, True)
    header = ["", *FILES]
    parts = ["# As printed", _ABOUT]
    for what, split, seeds, methods in TABLES:
        keys = {(name, seed): f"{name}/{split}/{seed}" for name in FILES for seed in range(seeds)}
        if options.quick:
            keys = {key: cell for key, cell in keys.items() if key[1] < QUICK_SEEDS}
        wanted = {cell: (name, options.data, split, seed) for (name, seed), cell in keys.items()}
        done = cells.measure_all(measure, wanted)
        lines = [f"## {TITLES[what]}", "", _line(header), _line(["---"] * len(header))]
        for method, theirs in methods.items():
            row = [theirs]
            for name in FILES:
                values = [done[cell][what][method] for (of, _), cell in keys.items() if of == name]
                mean = figures[f"{what}_{name}_{method}"] = float(np.mean(values))
                anchor, error = _anchor(anchors / f"predspace_{what}.csv", NAMES[name], theirs)
                said = f"{mean:.2f} ± {standard_error(values):.2f} ({anchor:.2f} ± {error:.2f})"
                if (what, method) in ASKED:
                    within = mean <= anchor + 2 * error
                    good[name] &= within
                    said = f"**{said}**" if within else said
                row.append(said)
            lines.append(_line(row))
        parts.append("\n".join(lines))
    figures["product_and_beta_as_printed"] = sum(good.values())
    parts.append(
        f"Product's MSE and β's NLL both within, or better: {sum(good.values())} of {len(good)} "
        f"sets. {_NOTE}"
    )
    return figures, "\n\n".join(parts) + "\n"


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _anchor(path: Path, dataset: str, method: str) -> tuple[float, float]:
    """Return what a table of [PredBayes] has, and its standard error."""
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            if (row["seed"], row["dataset"], row["method"]) == ("001", dataset, method):
                value = next(row[key] for key in row if key.endswith("as_printed"))
                return float(value), float(row["se"])
    return float("nan"), float("nan")
