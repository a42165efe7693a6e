"""From measurements to figures: means over seeds, and what is asked of them."""

import math
from collections.abc import Mapping

import numpy as np

from benchmarks.outcomes.plan import AUTO, EPSILONS, MINE, OPACUS, POOLED_OF, PRIVATE_SETS, Cell
from benchmarks.targets import Target

Done = Mapping[Cell, Mapping[str, float]]
"""Scores by cell; of means the seed is −1."""


TARGETS = (
    Target("logloss_over_best_pooled_heart", 1.01),
    Target("logloss_over_best_pooled_stroke", 1.01),
    Target("auc_stroke", 0.795, at_least=True),
    Target("ece_stroke", 0.03),
    Target("concordance_minus_cox_flchain", 0.0, at_least=True),
    Target("deviance_over_pooled_medpar", 1.01),
    Target("deviance_over_pooled_rwm5yr", 1.01),
    Target("max_prediction_gap_clients", 1e-5),
    Target("accuracy_mnist", 0.93, at_least=True),
    Target("private_sets_no_worse_than_opacus", 2, at_least=True),
    Target("private_largest_ece", 0.06),
)


def means_over_seeds(done: Done) -> dict[Cell, dict[str, float]]:
    """Average what differs by its seed alone, where every seed was measured."""
    seeds = {cell.seed for cell in done}
    grouped: dict[Cell, list[Mapping[str, float]]] = {}
    for cell, score in done.items():
        grouped.setdefault(cell._replace(seed=-1), []).append(score)
    grouped = {cell: own for cell, own in grouped.items() if len(own) == len(seeds)}
    return {
        cell: {name: float(np.mean([score[name] for score in own])) for name in own[0]}
        for cell, own in grouped.items()
    }


def best_pooled(means: Done, dataset: str) -> str:
    """Return the pooled method other than ours with the lowest mean log loss."""
    return min(POOLED_OF[dataset], key=lambda method: means[Cell(dataset, method)]["logloss"])


def figures_of(done: Done) -> dict[str, float | int]:
    """Return the figures by name; those of ours only where ours was measured."""
    means = means_over_seeds(done)
    figures: dict[str, float | int] = {**_of_ours(means), **_private(means)}
    figures |= {f"auto_{name}": value for name, value in _of_ours(means, AUTO).items()}
    gaps = [scores["prediction_gap"] for scores in done.values() if "prediction_gap" in scores]
    if gaps:
        figures["max_prediction_gap_clients"] = max(gaps)
    for cell, scores in means.items():
        if cell.method not in (MINE, AUTO):
            budget = "" if math.isinf(cell.epsilon) else f"_eps{cell.epsilon:g}"
            for what, value in scores.items():
                if what != "cpu_s":
                    figures[f"{cell.method}_{what}_{cell.dataset}{budget}"] = value
    figures["cpu_minutes"] = sum(score["cpu_s"] for score in done.values()) / 60
    return figures


def _of_ours(means: Done, method: str = MINE) -> dict[str, float | int]:
    own = {
        cell.dataset: scores
        for cell, scores in means.items()
        if cell.method == method and math.isinf(cell.epsilon)
    }
    figures: dict[str, float | int] = {}
    for name in ("heart", "stroke", "wdbc"):
        if name in own and all(Cell(name, method) in means for method in POOLED_OF[name]):
            best = means[Cell(name, best_pooled(means, name))]
            figures[f"logloss_over_best_pooled_{name}"] = own[name]["logloss"] / best["logloss"]
    if "stroke" in own:
        figures |= {"auc_stroke": own["stroke"]["auc"], "ece_stroke": own["stroke"]["ece"]}
    if "flchain" in own and Cell("flchain", "pooled_cox") in means:
        cox = means[Cell("flchain", "pooled_cox")]["concordance"]
        figures["concordance_minus_cox_flchain"] = own["flchain"]["concordance"] - cox
    for name in ("medpar", "rwm5yr"):
        if name in own and Cell(name, "pooled_negative_binomial") in means:
            pooled = means[Cell(name, "pooled_negative_binomial")]["deviance"]
            figures[f"deviance_over_pooled_{name}"] = own[name]["deviance"] / pooled
    if "mnist" in own:
        figures["accuracy_mnist"] = own["mnist"]["accuracy"]
    return figures


def _private(means: Done) -> dict[str, float | int]:
    figures: dict[str, float | int] = {}
    no_worse: list[bool] = []
    errors: list[float] = []
    for name in PRIVATE_SETS:
        both = {
            epsilon: (means[ours], means[theirs])
            for epsilon in EPSILONS
            if (ours := Cell(name, MINE, epsilon=epsilon)) in means
            and (theirs := Cell(name, OPACUS, epsilon=epsilon)) in means
        }
        for epsilon, (own, other) in both.items():
            ratio = own["logloss"] / other["logloss"]
            figures[f"private_logloss_over_opacus_{name}_eps{epsilon:g}"] = ratio
            errors.append(own["ece"])
        if both:
            excess = [own["logloss"] - other["logloss"] for own, other in both.values()]
            no_worse.append(sum(excess) <= 0)
    if errors:
        figures["private_sets_no_worse_than_opacus"] = sum(no_worse)
        figures["private_largest_ece"] = max(errors)
    return figures
