"""Which numbers of an outcome a caller gets, in every format.

From a caller who must not have variances (docs/threats.md A16) everything is withheld but the mean,
which is also the probability of an event, a class or an event by the horizon, and the probabilities
of levels. Each further number, although it is no variance, would show one beside the mean: E[s(f)]
is pulled towards ½ by the variance of f, so that whoever has the mean of f as well can solve for
it. So can whoever has S at two edges, which are two such means of one f, and the median is one
more.
"""

from kernels.outcomes import named_parts
from kernels.outcomes.named_parts import NamedPart
from kernels.outcomes.predictions import OutcomePrediction

_MEANS = ("mean", "probabilities")


def parts_of(prediction: OutcomePrediction, *, withheld: bool) -> tuple[NamedPart, ...]:
    """Return the parts of an outcome's prediction; only means if variances are withheld."""
    found = named_parts.parts_of(prediction)
    return tuple(part for part in found if part.name in _MEANS) if withheld else found
