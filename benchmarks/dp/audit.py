"""What a guesser who knows all but the noise proves of ε, beside what is claimed of it.

A patient of four rows does the worst to a sum of (S, b, yᵀy) over two honest members, m = 25. For
each ε: the claim, and the lower bound of `privacy.audit` at 99.9 % confidence. Then mechanisms that
claim ε = 1 and are broken, whose bound is above it.

`python -m benchmarks.dp.audit` prints the figures; `benchmarks.dp` calls `figures`.
"""

import json
import sys
from dataclasses import replace

import numpy as np

from privacy.accounting.cost import cost
from privacy.accounting.events import Release
from privacy.accounting.planning import Stage, multipliers
from privacy.audit import audit, sum_game
from privacy.encoding import Encoding
from privacy.layout import Block, Layout
from privacy.noise import approximate

DELTA = 1e-5
EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
FEATURES, UNIT_ROWS, CLIP, MAX_ROWS = 25, 4, 3.0, 1e5
HONEST = 2


def figures(*, quick: bool = False) -> dict[str, float]:
    games = 20_000 if quick else 200_000
    found: dict[str, float] = {}
    for epsilon in EPSILONS:
        encoding = _encoding(epsilon)
        release = Release.of(encoding, honest=HONEST, statistic="linear", part="training")
        found[f"claimed_eps{epsilon:g}"] = cost([release], delta=DELTA).epsilon
        found[f"audited_eps{epsilon:g}"] = _audited(encoding, games)
    for name, broken in (
        ("shares_for_thirty", _encoding(1.0, honest=30)),
        ("one_row_per_patient", _encoding(1.0, unit_rows=1)),
    ):
        found[f"audited_{name}"] = _audited(broken, games)
    return found


def _encoding(epsilon: float, *, honest: int = HONEST, unit_rows: int = UNIT_ROWS) -> Encoding:
    (z,) = multipliers([Stage(part="training")], epsilon=epsilon, delta=DELTA)
    scatter = Block("scatter", (FEATURES, FEATURES), MAX_ROWS, 1.0, unit_rows, symmetric=True)
    layout = Layout(
        (
            replace(scatter, weight=4.0),
            Block("cross", (FEATURES,), MAX_ROWS * CLIP, 1.0, unit_rows * CLIP, weight=2.0),
            Block("square", (), MAX_ROWS * CLIP**2, 1.0, unit_rows * CLIP**2),
        )
    )
    return Encoding.noisy(layout, multiplier=z, honest=honest, max_clients=max(honest, 5))


def _audited(encoding: Encoding, games: int) -> float:
    row = np.full(FEATURES, FEATURES**-0.5)
    unit = {
        "scatter": UNIT_ROWS * np.outer(row, row),
        "cross": UNIT_ROWS * CLIP * row,
        "square": np.array(UNIT_ROWS * CLIP**2),
    }
    nobody = {name: np.zeros_like(value) for name, value in unit.items()}
    game = sum_game(
        encoding,
        without=nobody,
        with_unit=unit,
        honest=HONEST,
        source=approximate(np.random.default_rng(1)),
    )
    return audit(*game, games=games, delta=DELTA).epsilon


if __name__ == "__main__":
    print(json.dumps(figures(quick="--quick" in sys.argv[1:]), indent=2))
