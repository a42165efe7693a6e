"""A network at one site: the order of its rows, its randomness, training and sampling.

What a site sends is a function of the broadcast and of its rows alone: batches are drawn from the
rows in the order of their hashes, and every draw comes from a generator that is seeded with the
program's seed, the round and the table's digest. Two sites have different draws. One site has the
same draws if the request is repeated, after a restart, and after a new export of the same table.

Training is SGD on half the mean squared error, with each step's gradient clipped to the length
STEEPEST, so k steps of η end within k·η·STEEPEST of the start. This bounds what is sent.
"""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce

import numpy as np
import torch
from torch import Tensor

from kernels.ensembles.local_posterior import LocalPosterior, Sampling, sample_posterior
from kernels.ensembles.networks import NetworkSpec, squared_errors, starting_parameters
from kernels.errors import ProgramError
from kernels.model.model import Model
from kernels.parameter_checks import check_at_least, check_learning_rate, check_whole
from kernels.rounds.algorithm import Contribution
from kernels.rounds.shared.sufficient import SQUARES_RESOLUTION, TARGET_BOUND
from kernels.rounds.site.site import Part, Site
from kernels.samplers.sampler import Batch, gradient, minibatches
from kernels.storage import check_tensor
from kernels.tables.row_hashes import keys_and_hashes
from privacy.layout import Block, SecureTotal

STEEPEST = 10.0
"""The length to which the gradient of a training step is clipped."""


@dataclass(frozen=True, kw_only=True)
class OfNetworks:
    """Parameters of every algorithm whose sites have a network.

    hidden: the widths of its hidden layers. seed: the seed of its starting parameters and of every
    draw. batch_rows: the number of rows per step.
    """

    hidden: tuple[int, ...] = (100, 100)
    seed: int = 0
    batch_rows: int = 100

    def __post_init__(self) -> None:
        if not isinstance(self.hidden, tuple | list):
            raise ProgramError(f"hidden must list the layers' widths, not {self.hidden!r}")
        object.__setattr__(self, "hidden", tuple(self.hidden))
        check_whole(1, batch_rows=self.batch_rows)
        check_whole(0, seed=self.seed)
        check_whole(1, **{f"hidden[{i}]": width for i, width in enumerate(self.hidden)})

    def network(self, model: Model) -> NetworkSpec:
        """Return the network from the model's features to its targets."""
        return NetworkSpec(inputs=model.kernel.inputs, outputs=model.targets, hidden=self.hidden)

    def start(self, model: Model) -> Tensor:
        """Return the network's starting parameters, which are the same at every site."""
        return starting_parameters(self.network(model), seed=self.seed)


@dataclass(frozen=True, kw_only=True)
class OfTraining(OfNetworks):
    """Parameters of algorithms whose sites train the network by SGD for `epochs` epochs."""

    epochs: int = 20
    learning_rate: float = 0.05

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole(1, epochs=self.epochs)
        check_learning_rate(learning_rate=self.learning_rate)

    def check_parameters(self, model: Model, parameters: Tensor) -> None:
        """Refuse parameters that do not fit the network."""
        check_tensor("θ", parameters, (self.network(model).parameters,))

    def reach(self, max_rows: int) -> float:
        """Return how far training on `max_rows` rows can move the parameter vector, as a norm."""
        steps = self.epochs * -(-max_rows // self.batch_rows)
        return steps * self.learning_rate * STEEPEST


@dataclass(frozen=True, kw_only=True)
class OfSampling(OfNetworks):
    """Parameters of algorithms whose sites sample the network: see `local_posterior.Sampling`."""

    cycles: int = 5
    cycle_epochs: int = 8
    cycle_samples: int = 2
    most_samples: int = 6
    step_size: float = 0.2
    temperature: float = 1.0
    weight_variance: float = 1.0
    noise_variance: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole(1, cycles=self.cycles, cycle_epochs=self.cycle_epochs)
        check_whole(1, cycle_samples=self.cycle_samples)
        check_whole(2, most_samples=self.most_samples)
        check_learning_rate(step_size=self.step_size)
        numbers = {"temperature": self.temperature, "weight_variance": self.weight_variance}
        if self.noise_variance is not None:
            numbers["noise_variance"] = self.noise_variance
        check_at_least(1e-12, **numbers)
        if not self.cycles * self.cycle_samples >= 2 or self.cycle_samples > self.cycle_epochs:
            raise ProgramError(
                f"cycle_samples must be at most cycle_epochs ({self.cycle_epochs}), and the "
                f"{self.cycles} cycles must give at least 2 samples; it is {self.cycle_samples}"
            )

    @property
    def passes(self) -> int:
        """Return how often the sampler goes through a site's rows."""
        return self.cycles * self.cycle_epochs

    @property
    def sampling(self) -> Sampling:
        """Return the parameters in the form that the sampler takes."""
        return Sampling(
            cycles=self.cycles,
            cycle_epochs=self.cycle_epochs,
            cycle_samples=self.cycle_samples,
            most_samples=self.most_samples,
            batch_rows=self.batch_rows,
            step_size=self.step_size,
            temperature=self.temperature,
            prior_variance=self.weight_variance,
            noise_variance=self.noise_variance,
        )


def ordered_rows(site: Site, part: Part, model: Model) -> Batch:
    """Return a part's standardised rows, (n, p) and (n, T), in the order of their hashes."""
    table = site.table(part, model)
    pieces = site.record_chunks(part, model)
    hashes = [each for records in pieces for each in keys_and_hashes(records)[1]]
    order = torch.tensor(sorted(range(len(hashes)), key=hashes.__getitem__), dtype=torch.int64)
    return tuple(column[order] for column in table)


def draws_of(site: Site, *, seed: int, turn: int) -> torch.Generator:
    """Return a site's own randomness for a round."""
    text = b"veilgp/draws/1" + seed.to_bytes(8, "big") + turn.to_bytes(8, "big")
    word = hashlib.sha256(text + site.digest).digest()[:8]
    return torch.Generator().manual_seed(int.from_bytes(word, "big") >> 1)


def sample_at(site: Site, model: Model, spec: OfSampling, start: Tensor) -> LocalPosterior:
    """Sample the posterior of a site's training rows from `start`; there is at least one row."""
    return sample_posterior(
        spec.network(model),
        start,
        ordered_rows(site, Part.TRAINING, model),
        ordered_rows(site, Part.STOPPING, model),
        sampling=spec.sampling,
        generator=draws_of(site, seed=spec.seed, turn=0),
    )


def iterates(
    network: NetworkSpec, start: Tensor, table: Batch, spec: OfTraining, generator: torch.Generator
) -> Iterator[Tensor]:
    """Yield the parameters after each step of training."""

    def fit(parameters: Tensor, batch: Batch) -> Tensor:
        return -squared_errors(network, parameters, *batch) / (2 * len(batch[0]))

    parameters = start
    batches = minibatches(table, rows=spec.batch_rows, epochs=spec.epochs, generator=generator)
    for batch in batches:
        slope = gradient(fit, parameters, batch)
        longer = float(slope.norm()) / STEEPEST
        parameters = parameters + spec.learning_rate / max(1.0, longer) * slope
        yield parameters


def train_at(site: Site, model: Model, spec: OfTraining, start: Tensor, *, turn: int) -> Tensor:
    """Return the parameters after training on a site's rows; `start` if it has none."""
    table = ordered_rows(site, Part.TRAINING, model)
    generator = draws_of(site, seed=spec.seed, turn=turn)
    steps = iterates(spec.network(model), start, table, spec, generator)
    return reduce(lambda _, trained: trained, steps, start)


def served_blocks(model: Model) -> tuple[Block, ...]:
    """Return the blocks that every served network needs beside its parameters.

    The number of training rows, and the networks' errors on rows that they were not trained on.
    """
    most = float(model.max_rows)
    squares = most * (2 * TARGET_BOUND) ** 2
    return (
        Block("rows", (), most, 1.0),
        Block("missed_squares", (model.targets,), squares, SQUARES_RESOLUTION),
        Block("missed_rows", (), most, 1.0),
    )


def served_contribution(
    site: Site, model: Model, predicted: Callable[[Tensor], Tensor]
) -> Contribution:
    """Count the site's training rows, and sum a network's errors over its rows for stopping.

    predicted: the network's outputs, (n, T), for rows (n, p).
    """
    x, y = site.table(Part.STOPPING, model)
    missed = predicted(x).clamp(-TARGET_BOUND, TARGET_BOUND) - y
    return {
        "rows": np.array(float(site.count(Part.TRAINING))),
        "missed_squares": missed.square().sum(0).numpy(),
        "missed_rows": np.array(float(len(y))),
    }


def rows_of(total: SecureTotal) -> int:
    """Return the number of training rows of all sites, of which there is at least one."""
    return max(1, round(float(total["rows"])))


def noise_variance_of(total: SecureTotal) -> Tensor:
    """Return σ² of each target, (T,), as if one more row were predicted no better than its mean."""
    squares = torch.tensor(total["missed_squares"]).clamp_min(0.0)
    return (1 + squares) / (1 + max(0.0, round(float(total["missed_rows"]))))
