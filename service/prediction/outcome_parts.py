"""Which numbers of an outcome a caller gets, in every format.

From a caller who must not have variances (docs/threats.md A16) everything is withheld but the mean,
which is also the probability of an event, a class or an event by the horizon, and the probabilities
of levels. Each further number, although it is no variance, would show one beside the mean: E[s(f)]
is pulled towards ½ by the variance of f, so that whoever has the mean of f as well can solve for
it. So can whoever has S at two edges, which are two such means of one f, and the median is one
more.

Conformal sets of a yes or no and of classes follow from the probabilities and one number of the
whole model for each level, so they are not withheld. The ends of a count's interval show its
variance, and are.
"""

from collections.abc import Iterator, Sequence

from torch import Tensor

from kernels.model.prediction import Interval
from kernels.outcomes import named_parts
from kernels.outcomes.named_parts import NamedPart
from kernels.outcomes.predictions import OutcomePrediction
from kernels.tables.targets import Binary, Classes, Count

CONFORMAL = "conformal"
"""The only kind of sets and intervals that outcomes have."""

_MEANS = ("mean", "probabilities")


def parts_of(prediction: OutcomePrediction, *, withheld: bool) -> tuple[NamedPart, ...]:
    """Return the parts of an outcome's prediction; only means if variances are withheld."""
    found = named_parts.parts_of(prediction)
    return tuple(part for part in found if part.name in _MEANS) if withheld else found


def levels_of(intervals: Sequence[float], kind: str | None) -> Sequence[float]:
    """Return the levels of a request at which outcomes have sets and intervals.

    There are none if the request asks for intervals of real targets of another kind.
    """
    return intervals if kind in (None, CONFORMAL) else ()


def sets_of(
    prediction: OutcomePrediction, levels: Sequence[float]
) -> Iterator[tuple[float, Tensor]]:
    """Yield each level with the rows' sets, (n, K) of bool; nothing for kinds without sets."""
    if isinstance(prediction.target, Binary | Classes):
        for level in levels:
            yield level, prediction.sets(level)


def intervals_of(
    prediction: OutcomePrediction, levels: Sequence[float], *, withheld: bool
) -> Iterator[tuple[float, Interval]]:
    """Yield each level with the rows' intervals of one column; nothing for other kinds."""
    if isinstance(prediction.target, Count) and not withheld:
        for level in levels:
            lower, upper = prediction.interval(level)
            yield level, Interval(lower.unsqueeze(1), upper.unsqueeze(1))
