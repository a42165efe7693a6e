"""The benchmark's tables in Markdown: the targets, all sets at a glance, every score, the curve."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from benchmarks.auto.figures import (
    Done,
    Points,
    best_candidate,
    by_method,
    compared_seeds,
    means_over_seeds,
    point,
    targets,
    within_best,
)
from benchmarks.auto.plan import (
    AUTO,
    BOOSTING,
    CANDIDATE,
    CENTRAL_GP,
    Cell,
    Size,
    methods_in_order,
)
from benchmarks.auto.sets import REGRESSION

_HEAD = """# Auto: sessions that state a schema and nothing else

Ten members sorted by the first column; a fifth of the rows, drawn by the seed, for testing. Means
± their standard errors over seeds {seeds}, or over those that ours were measured with while they
are fewer (column seeds). nll: −log density per unit of the target (real numbers), log loss
(yes/no), −log probability of the count, −log of what is known of a time; nll_gaussian: of the
Gaussian with the served mean and variance. ece: ten levels (real numbers) or ten bins (yes/no).
coverage_90: of the served 90 % intervals or sets; law_coverage_90: of the law's central interval.
hospital_cpu_s: CPU seconds of one hospital in a run; released: numbers in all sums. The central
process is exact, of at most 5,000 rows; boosting is scikit-learn's with a law from cross-fitting.
"""
_GLANCE = (
    "| set | rows | seeds | auto | best candidate | its NLL | within | central GP | at or below "
    "| boosting | coverage |"
)
_PLAIN = "cpu_s", "training_rows", "test_rows", "sums", "released"


def write_tables(
    done: Done, points: Points, asked: Size, figures: Mapping[str, float | int], path: Path
) -> None:
    """Write the targets, the glance, a table per set and the curve."""
    lines = [_HEAD.format(seeds=", ".join(map(str, asked.seeds)))]
    lines += [target.line(figures.get(target.figure)) for target in targets(figures)]
    lines += ["", "## NLL of all sets", "", _GLANCE, "| --- " * (_GLANCE.count("|") - 1) + "|"]
    means = means_over_seeds(done, asked.seeds)
    tables = {name: by_method(means, name, asked.rows) for name in asked.sets}
    tables = {name: own for name, own in tables.items() if own}
    seeds = {name: compared_seeds(done, name, asked.rows, asked.seeds) for name in tables}
    lines += [_at_a_glance(name, own, len(seeds[name])) for name, own in tables.items()]
    for name, own in tables.items():
        lines += ["", f"## {name}", "", *_scores(done, name, own, asked, seeds[name])]
    lines += ["", "## NLL by training rows", "", *_curve(done, points)]
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(lines) + "\n")


def _at_a_glance(name: str, own: Mapping[str, Mapping[str, float]], seeds: int) -> str:
    best = best_candidate(own)
    both = AUTO in own and best is not None
    beside = AUTO in own and CENTRAL_GP in own
    cells = [
        name,
        f"{next(iter(own.values()))['training_rows']:.0f}",
        str(seeds),
        _nll(own, AUTO),
        "" if best is None else best.removeprefix(CANDIDATE),
        "" if best is None else _nll(own, best),
        _yes(within_best(own)) if both else "",
        _nll(own, CENTRAL_GP) if name in REGRESSION else "–",
        _yes(own[AUTO]["nll"] <= own[CENTRAL_GP]["nll"]) if beside else "",
        _nll(own, BOOSTING),
        f"{own[AUTO]['coverage_90']:.3f}" if "coverage_90" in own.get(AUTO, {}) else "",
    ]
    return f"| {' | '.join(cells)} |"


def _nll(own: Mapping[str, Mapping[str, float]], method: str) -> str:
    return f"{own[method]['nll']:.4g}" if method in own else ""


def _yes(held: bool) -> str:
    return "yes" if held else "NO"


def _scores(
    done: Done,
    name: str,
    own: Mapping[str, Mapping[str, float]],
    asked: Size,
    compared: tuple[int, ...],
) -> list[str]:
    columns = list(dict.fromkeys(what for each in own.values() for what in each))
    lines = [f"| method | {' | '.join(columns)} |", "| --- " * (len(columns) + 1) + "|"]
    for method in methods_in_order(list(own)):
        seeds = [Cell(name, method, seed, asked.rows) for seed in compared]
        texts = [
            _text([done[cell][what] for cell in seeds if what in done.get(cell, {})], what)
            for what in columns
        ]
        lines.append(f"| {method} | {' | '.join(texts)} |")
    return lines


def _text(values: list[float], what: str) -> str:
    if not values:
        return ""
    if what in _PLAIN or len(values) == 1:
        return f"{np.mean(values):.4g}"
    return f"{np.mean(values):.4g} ± {np.std(values, ddof=1) / len(values) ** 0.5:.2g}"


def _curve(done: Done, points: Points) -> list[str]:
    lines = ["| set | training rows | auto | central GP |", "| --- | --- | --- | --- |"]
    for (name, method, rows), cells in points.items():
        if method == AUTO:
            both = point(done, cells), point(done, points[name, CENTRAL_GP, rows])
            texts = ["" if each is None else f"{each:.4g}" for each in both]
            lines.append(f"| {name} | {rows} | {' | '.join(texts)} |")
    return lines
