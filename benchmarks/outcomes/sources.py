"""Which sources decide the numbers of a cell: the kept ones of others outlive a change of ours."""

from pathlib import Path

from benchmarks.kept import fingerprint

_ROOT = Path(__file__).parents[2]
_COMMON = ("dataset.py", "members.py", "scores.py", "sets/*.py", "peers/design.py")
_OURS = (
    "kernels/newton.py",
    "kernels/features/*.py",
    "kernels/layer/*.py",
    "kernels/noisy/*.py",
    "kernels/outcomes/*.py",
    "kernels/rounds/columns/moments.py",
    "kernels/rounds/layer/outcomes.py",
    "kernels/rounds/shared/weighted_sums.py",
    "kernels/tables/*.py",
)


def code_of_others() -> str:
    """Return the fingerprint of the sets, the scores and the peers."""
    return _code((*_own(*_COMMON), *_own("peers/*.py")))


def code_of_ours() -> str:
    """Return the fingerprint of the sets, the scores, our recipe and the mathematics behind it."""
    return _code((*_own(*_COMMON), *_own("ours.py"), *_OURS))


def _own(*patterns: str) -> tuple[str, ...]:
    return tuple(f"benchmarks/outcomes/{pattern}" for pattern in patterns)


def _code(patterns: tuple[str, ...]) -> str:
    return fingerprint({path for pattern in patterns for path in _ROOT.glob(pattern)})
