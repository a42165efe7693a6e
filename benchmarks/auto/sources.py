"""Which sources decide the numbers of a cell: peers' are kept while ours change."""

from functools import cache
from pathlib import Path

from benchmarks.auto.plan import BOOSTING, CENTRAL_GP, Cell
from benchmarks.kept import fingerprint
from benchmarks.outcomes.sources import AUTOMATIC

_ROOT = Path(__file__).parents[2]
_SETS = (
    "benchmarks/auto/scores.py",
    "benchmarks/auto/sets.py",
    "benchmarks/outcomes/dataset.py",
    "benchmarks/outcomes/members.py",
    "benchmarks/outcomes/scores.py",
    "benchmarks/outcomes/sets/*.py",
)
_PEERS = {
    CENTRAL_GP: (
        "benchmarks/auto/peers/central_gp.py",
        "benchmarks/outcomes/peers/design.py",
    ),
    BOOSTING: (
        "benchmarks/auto/peers/boosting.py",
        "benchmarks/outcomes/peers/boosting.py",
        "benchmarks/outcomes/peers/design.py",
        "benchmarks/outcomes/peers/person_periods.py",
    ),
}
_OURS = ("benchmarks/auto/ours.py", "benchmarks/dealing.py", *AUTOMATIC)


def code_of(cell: Cell) -> str:
    """Return the fingerprint of what decides a cell."""
    return _code((*_SETS, *(_OURS if cell.is_ours else _PEERS[cell.method])))


@cache
def _code(patterns: tuple[str, ...]) -> str:
    return fingerprint({path for pattern in patterns for path in _ROOT.glob(pattern)})
