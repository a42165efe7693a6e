"""Which sources decide the numbers of a cell: the kept ones of others outlive a change of ours."""

from functools import cache
from pathlib import Path

from benchmarks.kept import fingerprint
from benchmarks.outcomes.plan import AUTO, MINE, Cell

_ROOT = Path(__file__).parents[2]
_COMMON = ("dataset.py", "members.py", "scores.py", "sets/*.py", "peers/design.py")
_LAYERS = (
    "kernels/newton.py",
    "kernels/features/*.py",
    "kernels/layer/*.py",
    "kernels/noisy/*.py",
    "kernels/outcomes/*.py",
    "kernels/rounds/columns/moments.py",
    "kernels/rounds/layer/outcomes.py",
    "kernels/rounds/shared/weighted_sums.py",
    "kernels/tables/standardiser.py",
)
AUTOMATIC = (
    *_LAYERS,
    "kernels/adam.py",
    "kernels/model/second.py",
    "kernels/reproducible.py",
    "kernels/outcomes/**/*.py",
    "kernels/rounds/automatic.py",
    "kernels/rounds/judging/outcome_sums.py",
    "kernels/rounds/judging/recalibration.py",
    "kernels/rounds/kernel/blend.py",
    "kernels/rounds/kernel/densities.py",
    "kernels/rounds/kernel/exact.py",
    "kernels/rounds/kernel/search.py",
    "kernels/rounds/layer/completion.py",
    "kernels/rounds/layer/linear.py",
    "kernels/rounds/shared/changed_sums.py",
    "kernels/rounds/shared/evidence_step.py",
    "kernels/rounds/shared/grid.py",
    "kernels/rounds/shared/held_out.py",
    "kernels/rounds/shared/judged.py",
    "kernels/rounds/shared/pooled.py",
    "kernels/rounds/shared/sufficient.py",
    "kernels/rounds/shared/two_kernels.py",
    "kernels/rounds/shared/weighted_sums.py",
    "kernels/scores/*.py",
    "kernels/tables/curves.py",
)
"""What decides the numbers of a program that is made from a schema. How a table is read and a
program is stored or checked changes often, and tests hold that it changes no number."""


def code_of(cell: Cell) -> str:
    """Return the fingerprint of the sets, the scores, and what predicts."""
    if cell.method == AUTO:
        return _code((*_own(*_COMMON, "automatic.py"), *AUTOMATIC))
    if cell.method == MINE:
        return _code((*_own(*_COMMON, "ours.py"), *_LAYERS))
    return _code((*_own(*_COMMON), *_own("peers/*.py")))


def _own(*patterns: str) -> tuple[str, ...]:
    return tuple(f"benchmarks/outcomes/{pattern}" for pattern in patterns)


@cache
def _code(patterns: tuple[str, ...]) -> str:
    return fingerprint({path for pattern in patterns for path in _ROOT.glob(pattern)})
