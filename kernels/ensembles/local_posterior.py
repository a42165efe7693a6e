"""One site's posterior over a network's parameters: samples, and a noise variance.

    p(θ | rows) ∝ exp(−Σ (y − f_θ(x))² / 2σ²)·N(θ | 0, λ²I), to the power 1/T

sampled by cyclical SGHMC. The log density is multiplied by σ²/N, so that a step size means the same
for every σ², and the temperature is σ²·T/N. σ² starts at 1, the variance of standardised targets,
and is estimated again after each cycle from rows that are not used for training:

    σ² = (1 + Σ (y − f̄(x))²) / (1 + m)

for each target, over m held-out rows, with f̄ the mean of the latest samples: as if there were one
more row, predicted no better than by its mean. The residuals of training rows are uninformative
for a network of 11,000 parameters; they are used only if a site holds out no rows.

The prediction is N(f̄(x), s²(x) + σ²), where s² is the variance of the samples.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from kernels.ensembles.networks import NetworkSpec, outputs, squared_errors
from kernels.errors import EmptyTable, NotFitted, SpecError
from kernels.layer.posterior import Prediction
from kernels.samplers.cyclical_sghmc import Cycle, build, ends_of_epochs
from kernels.samplers.sampler import Batch, LogPosterior, minibatches, run


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """The settings with which a site samples.

    cycles, cycle_epochs: the number of cycles, and the epochs of each. cycle_samples: the epochs at
    the end of each cycle that have noise and produce one sample each. most_samples: how many of the
    newest samples are kept. batch_rows: rows per step. step_size, friction, temperature: η, α and
    T. prior_variance: λ². noise_variance: σ² if it is known; None to estimate it.
    """

    cycles: int = 5
    cycle_epochs: int = 8
    cycle_samples: int = 2
    most_samples: int = 6
    batch_rows: int = 100
    step_size: float = 0.2
    friction: float = 0.9
    temperature: float = 1.0
    prior_variance: float = 1.0
    noise_variance: float | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.cycle_samples <= self.cycle_epochs:
            raise SpecError(
                f"cycle_samples must be from 1 to cycle_epochs, {self.cycle_epochs}, not "
                f"{self.cycle_samples}"
            )


@dataclass(frozen=True, eq=False)
class LocalPosterior:
    """A site's posterior. samples: vectors θ, (S, P). noise_variance: σ² of each target, (T,)."""

    network: NetworkSpec
    samples: Tensor
    noise_variance: Tensor

    def predict(self, x: Tensor) -> Prediction:
        """Predict at rows (n, p)."""
        if len(self.samples) < 2:
            raise NotFitted(
                f"predicting needs at least 2 samples, and there are {len(self.samples)}: increase "
                "cycles or cycle_samples"
            )
        each = outputs(self.network, self.samples, x)
        mean = each.mean(0)
        spread = (each - mean).square().sum(0) / (len(each) - 1)  # torch.var warns if n is 0
        return Prediction(mean, spread, self.noise_variance)


def sample_posterior(
    network: NetworkSpec,
    start: Tensor,
    training: Batch,
    held_out: Batch,
    *,
    sampling: Sampling,
    generator: torch.Generator,
) -> LocalPosterior:
    """Sample from `start` (P,) on standardised rows (n, p) and (n, T); σ² is from `held_out`."""
    rows = len(training[0])
    if not rows:
        raise EmptyTable("this site has no training rows: sampling needs at least one")
    batches = -(-rows // sampling.batch_rows)
    cycle = Cycle(
        steps=sampling.cycle_epochs * batches, sampling_steps=sampling.cycle_samples * batches
    )
    judging = held_out if len(held_out[0]) else training
    known = sampling.noise_variance
    noise = start.new_full((network.outputs,), 1.0 if known is None else known)
    latest, samples = start, start.new_zeros((0, *start.shape))
    for _ in range(sampling.cycles):
        variance = float(noise.mean())
        sampler = build(
            _log_posterior(network, rows, sampling=sampling, noise_variance=variance),
            step_size=sampling.step_size,
            cycle=cycle,
            friction=sampling.friction,
            temperature=variance * sampling.temperature / rows,
        )
        epochs = minibatches(
            training, rows=sampling.batch_rows, epochs=sampling.cycle_epochs, generator=generator
        )
        keep = ends_of_epochs(cycle, batches=batches)
        state, new = run(sampler, latest, epochs, keep=keep, generator=generator)
        latest = state.parameters
        samples = torch.cat([samples, new])[-sampling.most_samples :]
        if known is None:
            noise = _noise_variance(network, samples, *judging)
    return LocalPosterior(network, samples, noise)


def _log_posterior(
    network: NetworkSpec, rows: int, *, sampling: Sampling, noise_variance: float
) -> LogPosterior:
    """Return the log density times σ²/N, estimated from a batch."""
    decay = noise_variance / (sampling.prior_variance * rows)

    def value(parameters: Tensor, batch: Batch) -> Tensor:
        errors = squared_errors(network, parameters, *batch) / len(batch[0])
        return -(errors + decay * parameters.square().sum(-1)) / 2

    return value


def _noise_variance(network: NetworkSpec, samples: Tensor, x: Tensor, y: Tensor) -> Tensor:
    residuals = outputs(network, samples, x).mean(0) - y
    return (1 + residuals.square().sum(0)) / (1 + len(y))


def with_noise(posterior: LocalPosterior, noise_variance: float) -> LocalPosterior:
    """Return the posterior with the given σ², which [PredBayes] sets by hand."""
    return replace(
        posterior, noise_variance=torch.full_like(posterior.noise_variance, noise_variance)
    )
