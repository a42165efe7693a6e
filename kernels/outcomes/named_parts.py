"""The numbers of an outcome's prediction, under the names that tables and formats use.

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

In a table each has a column `<target>.<name>`, or several: `<target>.<name>.<level>`, where
probabilities are called `p`, and `<target>.<name>.<edge>` for a time to an event.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from kernels.outcomes.predictions import OutcomePrediction
from kernels.tables.targets import Binary, Classes, Count, TimeToEvent


@dataclass(frozen=True, eq=False)
class NamedPart:
    """One of the parts. columns: names of the columns of (n, k) values; empty for (n,).

    unit: of the values, or of their roots if they are variances.
    """

    name: str
    values: Tensor
    unit: str
    columns: tuple[str, ...] = ()

    @property
    def may_be_infinite(self) -> bool:
        """Whether an infinite value says something: that a median is beyond the last edge."""
        return self.name == "median"

    def by_column(self) -> Iterator[tuple[str, Tensor]]:
        """Yield each column, (n,), with its name after that of the target."""
        short = "p" if self.name == "probabilities" else self.name
        if not self.columns:
            yield short, self.values
        for position, column in enumerate(self.columns):
            yield f"{short}.{column}", self.values[:, position]


def parts_of(prediction: OutcomePrediction) -> tuple[NamedPart, ...]:
    """Return the parts of an outcome's prediction, in the order of the module's table."""
    target = prediction.target
    levels = target.levels if isinstance(target, Binary | Classes) else ()
    of_mean = levels if isinstance(target, Classes) else ()
    edges: tuple[str, ...] = ()
    if isinstance(target, TimeToEvent):
        edges = tuple(f"{edge:g}" for edge in target.intervals)
    unit = target.unit if isinstance(target, Count) else "1"
    found = [NamedPart("mean", prediction.mean, unit, of_mean)]
    if levels:
        found.append(NamedPart("probabilities", prediction.probabilities, "1", levels))
    found.append(NamedPart("variance", prediction.variance, unit, of_mean))
    if prediction.expectation_variance is not None:
        found.append(NamedPart("expectation_variance", prediction.expectation_variance, unit))
    latent = of_mean or edges
    for name in ("latent_mean", "latent_variance"):
        values: Tensor = getattr(prediction, name)
        found.append(NamedPart(name, values if latent else values[:, 0], "1", latent))
    for name in ("survival", "survival_variance"):
        curve: Tensor | None = getattr(prediction, name)
        if curve is not None:
            found.append(NamedPart(name, curve, "1", edges))
    if prediction.median is not None:
        found.append(NamedPart("median", prediction.median, target.unit))
    return tuple(found)
