"""What all cells of an honest run say together: figures, bars, and a table for each split."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from benchmarks.predictive.data import FILES, SPLITS
from benchmarks.predictive.honest import COMMITTEES, METHODS, Cell

SMALL = 0.4
"""Below this size of an NLL, a ratio of two says nothing: their difference counts."""
MOST_RATIO, MOST_DIFFERENCE = 1.05, 0.02
ENOUGH_SETS = 4
OURS = ("auto", "fedbnr")

NAMES = {
    "auto": "**FedBNR auto**",
    "fedbnr": "**FedBNR exact**",
    "gpoe": "generalised product",
    "rbcm": "robust committee",
    "beta": "β",
    "fedpa": "FedPA",
    "ep_mcmc": "EP-MCMC",
    "fedyogi": "FedYogi",
    "fedbe": "FedBE, distilled",
    "one_shot": "one-shot FL, distilled",
}


def name_of(method: str) -> str:
    """Return a method as people write it.

    >>> name_of("d_beta"), name_of("product")
    ('β, student', 'product')
    """
    plain = method.removeprefix("d_")
    return NAMES.get(plain, plain) + (", student" if method != plain else "")


def standard_error(values: Sequence[float]) -> float:
    """Return the mean's, 0 for a single value."""
    return float(np.std(values, ddof=1) / len(values) ** 0.5) if len(values) > 1 else 0.0


@dataclass(frozen=True, eq=False)
class Summary:
    """Cells by set, split and seed."""

    cells: Mapping[tuple[str, str, int], Cell]

    def values(self, what: str, name: str, split: str, method: str) -> list[float]:
        """Return a method's NLL or MSE, seed by seed."""
        return [
            cell[f"{what}_{method}"]
            for (of, how, _), cell in sorted(self.cells.items())
            if (of, how) == (name, split)
        ]

    def mean(self, what: str, name: str, split: str, method: str) -> float:
        """Return its mean over seeds."""
        return float(np.mean(self.values(what, name, split, method)))

    def is_best_or_near(self, own: str, name: str, split: str) -> bool:
        """Say whether no method of others has an NLL lower by more than its standard error."""
        others = [method for method in METHODS if method == own or method not in OURS]
        means = {method: self.mean("nll", name, split, method) for method in others}
        best = min(means, key=means.__getitem__)
        allowed = means[best] + standard_error(self.values("nll", name, split, best))
        return means[own] <= allowed

    def students(self) -> tuple[dict[str, float], dict[str, float]]:
        """Return students' NLL over teachers', and minus teachers' where those are small."""
        over: dict[str, float] = {}
        minus: dict[str, float] = {}
        for name in FILES:
            for split in SPLITS:
                for method in COMMITTEES:
                    teacher, taught = (
                        self.mean("nll", name, split, each) for each in (method, f"d_{method}")
                    )
                    key = f"{name} {split} {method}"
                    if abs(teacher) > SMALL:
                        over[key] = 1 + (taught - teacher) / abs(teacher)
                    else:
                        minus[key] = taught - teacher
        return over, minus

    def figures(self) -> dict[str, float]:
        """Return every mean, and what is asked of them."""
        found = {
            f"{what}_{name}_{split}_{method}": self.mean(what, name, split, method)
            for what in ("nll", "mse")
            for name in FILES
            for split in SPLITS
            for method in METHODS
        }
        over, minus = self.students()
        found["student_over_teacher_nll"] = max(over.values(), default=1.0)
        found["student_minus_teacher_nll"] = max(minus.values(), default=0.0)
        for split in SPLITS:
            for own in OURS:
                good = sum(self.is_best_or_near(own, name, split) for name in FILES)
                found[f"{own}_best_or_near_{split}"] = good
        found["teacher_gap"] = max(cell["teacher_gap"] for cell in self.cells.values())
        return found

    def bars(self) -> list[str]:
        """Say of each promise whether it is held, and where not."""
        figures = self.figures()
        over, minus = self.students()
        missed = [f"{key} {value:.3f}" for key, value in over.items() if value > MOST_RATIO]
        missed += [f"{key} +{v:.3f}" for key, v in minus.items() if v > MOST_DIFFERENCE]
        said = [
            _bar(
                not missed,
                f"students within 5 % of their teachers' NLL (+{MOST_DIFFERENCE} where that is "
                f"within ±{SMALL}): {len(over) + len(minus) - len(missed)} of "
                f"{len(over) + len(minus)}, the worst {figures['student_over_teacher_nll']:.3f} "
                f"and +{figures['student_minus_teacher_nll']:.3f}",
                missed,
            )
        ]
        for own, split in product(OURS, SPLITS):
            far = [name for name in FILES if not self.is_best_or_near(own, name, split)]
            said.append(
                _bar(
                    len(FILES) - len(far) >= ENOUGH_SETS,
                    f"{name_of(own).strip('*')} best in NLL, or within a standard error of the "
                    f"best, {split}: {len(FILES) - len(far)} of {len(FILES)} sets",
                    far,
                )
            )
        gap = figures["teacher_gap"]
        said.append(
            _bar(gap < 1e-6, f"summed teachers are those of one place: to {gap:.1e} deviations", [])
        )
        return said

    def tables(self) -> str:
        """Return NLL ± standard error and MSE of every method, a table for each split."""
        seeds = len({seed for _, _, seed in self.cells})
        parts = []
        for split in SPLITS:
            header = [f"{split}: NLL (MSE)", *FILES]
            lines = [header, ["---"] * len(header)]
            lines += [[name_of(m), *(self._cell(n, split, m) for n in FILES)] for m in METHODS]
            parts.append("\n".join(map(_line, lines)))
        note = f"Means over {seeds} seeds ± standard errors, of standardised test rows."
        return "\n\n".join([note, *parts])

    def _cell(self, name: str, split: str, method: str) -> str:
        values = self.values("nll", name, split, method)
        mse = self.mean("mse", name, split, method)
        return f"{np.mean(values):.2f} ± {standard_error(values):.2f} ({mse:.2f})"


def _bar(held: bool, said: str, missed: list[str]) -> str:
    return f"- {'yes' if held else 'NO'}: {said}" + (f"; not {', '.join(missed)}" * bool(missed))


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
