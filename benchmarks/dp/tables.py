"""The privacy benchmark's table in Markdown."""

import math
from collections.abc import Mapping
from pathlib import Path

from benchmarks.dp.figures import Means
from benchmarks.dp.plan import AUTO, BASELINES, LOCAL, SEEDS, SEEDS_OF_MANY, Cell
from benchmarks.dp.routes import ROUTES

TITLES: Mapping[str, str] = {
    "ccpp": "CCPP",
    "sml": "SML",
    "parkinsons": "Parkinsons",
    "bike": "Bike",
}
_ORDER = AUTO, *ROUTES, LOCAL, *BASELINES
_HEAD = f"""# Differential privacy: RMSE / NLL / ECE by ε

δ = 1e-5, the unit is the row. Means over seeds {SEEDS[0]} to {SEEDS[-1]} for `auto` (as far as
`dp.auto.cells.json` has them) and `elbo` with 10 clients and the methods of others, over the first
{SEEDS_OF_MANY} for `elbo` with 100 clients; all else is seed {SEEDS[0]}. `auto` is the private
program of a session that states none, `elbo`, `public_kernel` and `exact` are programs by hand
(`benchmarks/dp/routes.py`), ECE of their recalibrated noise-aware posterior; `local` is
`public_kernel` with each client private by itself; one client has all rows in one place, as the
methods of others have: `adassp`, `ridge` (noisy statistics taken for exact ones) and Opacus.
"""


def write_table(means: Means, path: Path) -> None:
    """Write every mean: a row per method and number of clients."""
    lines = [_HEAD]
    for dataset, title in TITLES.items():
        own = {cell: score for cell, score in means.items() if cell.dataset == dataset}
        epsilons = sorted({cell.epsilon for cell in own})
        heads = ["∞ (no privacy)" if math.isinf(each) else f"{each:g}" for each in epsilons]
        lines += [f"## {title}", "", "| method | clients | " + " | ".join(heads) + " |"]
        lines.append("| --- " * (len(heads) + 2) + "|")
        rows = {cell._replace(epsilon=0.0): None for cell in own}
        for row in sorted(rows, key=lambda row: (_ORDER.index(row.method), row[3:])):
            scores = [own.get(row._replace(epsilon=each)) for each in epsilons]
            texts = [_text(score) if score else "" for score in scores]
            name = row.method
            name += f", {row.colluders} collude" if row.colluders else ""
            name += f", {row.dropouts} drop out" if row.dropouts else ""
            lines.append(f"| {name} | {row.clients} | " + " | ".join(texts) + " |")
        lines.append("")
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(lines))


def read_table(path: Path) -> dict[Cell, dict[str, float]]:
    """Return the means of a table that `write_table` wrote, to its three and two decimals."""
    datasets = {title: name for name, title in TITLES.items()}
    found: dict[Cell, dict[str, float]] = {}
    dataset, epsilons = "", list[float]()
    for line in path.read_text().splitlines():
        if line.startswith("## "):
            dataset = datasets[line.removeprefix("## ")]
        if not line.startswith("| ") or line.startswith("| ---"):
            continue
        name, clients, *texts = (text.strip() for text in line.strip("|").split("|"))
        if name == "method":
            epsilons = [math.inf if "∞" in text else float(text) for text in texts if text]
            continue
        method, *condition = name.split(", ")
        number, what = condition[0].split(" ", 1) if condition else ("0", "")
        for epsilon, text in zip(epsilons, texts, strict=True):
            if text:
                cell = Cell(method, dataset, epsilon, int(clients))
                if what:
                    colluders, dropouts = (
                        (int(number), 0) if what == "collude" else (0, int(number))
                    )
                    cell = cell._replace(colluders=colluders, dropouts=dropouts)
                rmse, nll, ece = map(float, text.split("/"))
                found[cell] = {"rmse": rmse, "nll": nll, "ece": ece}
    return found


def _text(score: Mapping[str, float]) -> str:
    return f"{score['rmse']:.3f} / {score['nll']:.2f} / {score['ece']:.3f}"
