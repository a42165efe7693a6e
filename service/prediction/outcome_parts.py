"""The numbers of an outcome's prediction, under the names that all formats use.

    name                    shape       of which kinds
    mean                    n or n × K  all: P(event), P of each class, expected count, risk
    probabilities           n × K       binary, classes: of each level
    variance                as mean     all: of the probability, of the risk; of a new count
    expectation_variance    n           count: of the expected count
    latent_mean             n or n × L  all: of the logit, or of the logarithm of the rate
    latent_variance         as before   all
    survival                n × J       time_to_event: at the edges
    survival_variance       n × J       time_to_event
    median                  n           time_to_event: infinite beyond the last edge

From a caller who must not have variances (docs/threats.md A16) everything is withheld but the first
two. Each further number, although it is no variance, would show one beside the mean: E[s(f)] is
pulled towards ½ by the variance of f, so that whoever has the mean of f as well can solve for it,
and so can whoever has S at two edges, which are two such means of one f.
"""

from dataclasses import dataclass

from torch import Tensor

from kernels.outcomes.predictions import OutcomePrediction
from kernels.tables.targets import Binary, Classes, Count, Outcome, TimeToEvent


@dataclass(frozen=True, eq=False)
class OutcomePart:
    """One of the parts. columns: names of the columns of (n, k) values; empty for (n,).

    unit: of the values, or of their roots if they are variances.
    """

    name: str
    values: Tensor
    unit: str
    columns: tuple[str, ...] = ()


def parts_of(prediction: OutcomePrediction, *, withheld: bool) -> tuple[OutcomePart, ...]:
    """Return the parts of an outcome's prediction, in the order of the module's table."""
    target = prediction.target
    levels = target.levels if isinstance(target, Binary | Classes) else ()
    of_mean = levels if isinstance(target, Classes) else ()
    unit = target.unit if isinstance(target, Count) else "1"
    found = [OutcomePart("mean", prediction.mean, unit, of_mean)]
    if levels:
        found.append(OutcomePart("probabilities", prediction.probabilities, "1", levels))
    if withheld:
        return tuple(found)
    found.append(OutcomePart("variance", prediction.variance, unit, of_mean))
    if prediction.expectation_variance is not None:
        own = prediction.expectation_variance
        found.append(OutcomePart("expectation_variance", own, unit))
    latent = of_mean or edges_of(target)
    for name in ("latent_mean", "latent_variance"):
        values: Tensor = getattr(prediction, name)
        found.append(OutcomePart(name, values if latent else values[:, 0], "1", latent))
    for name in ("survival", "survival_variance"):
        curve: Tensor | None = getattr(prediction, name)
        if curve is not None:
            found.append(OutcomePart(name, curve, "1", edges_of(target)))
    if prediction.median is not None:
        found.append(OutcomePart("median", prediction.median, target.unit))
    return tuple(found)


def edges_of(target: Outcome) -> tuple[str, ...]:
    """Return the edges of a time to an event in words; none for other kinds."""
    if not isinstance(target, TimeToEvent):
        return ()
    return tuple(f"{edge:g}" for edge in target.intervals)


def must_be_finite(part: OutcomePart) -> bool:
    """Return whether infinite values of a part are an error; a median may be unknown."""
    return part.name != "median"
