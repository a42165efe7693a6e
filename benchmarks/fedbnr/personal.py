"""pFedGP [Achituve21]: a shared deep kernel, a Gaussian process of each client's own.

The network f and the Gaussian kernel's scales are averaged as in FedAvg; each client trains them
from the broadcast on its own evidence with INDUCING inducing points, which stay with it, as its
process does. It predicts from its own rows alone: there is no global model.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import gpytorch
import torch
from torch import Tensor

from benchmarks.fedbnr.gaussian import Regression, scaled
from benchmarks.fedbnr.networks import Weights, outputs, starting
from benchmarks.fedbnr.protocol import Predictor, Table, Tables, by_size, follow
from benchmarks.fedbnr.scoring import Belief, Scored

INDUCING = 50
HIDDEN = 128, 128
LATENT = 8
ROUNDS = 15
LOCAL_STEPS = 5
LEARNING_RATE = 0.01


@dataclass(frozen=True, eq=False)
class Shared:
    """What is broadcast: f, and the raw parameters of the kernel and the noise by name."""

    network: Weights
    scales: dict[str, Tensor]


def measure(tables: Tables, *, seed: int, rounds: int = ROUNDS) -> Scored:
    """Train for at most so many rounds."""
    generator = torch.Generator().manual_seed(seed)
    drawn = starting(tables.test.x.shape[1], HIDDEN, LATENT, generator=generator)
    network = [each.double() for each in drawn]
    one = _processes(Table(tables.clients[0].x[None], tables.clients[0].y[None]), network)
    start = Shared(network, {name: each[0] for name, each in _scales(one).items()})
    return follow(_rounds(tables, start, rounds), tables)


def _rounds(tables: Tables, shared: Shared, rounds: int) -> Iterator[Sequence[Predictor]]:
    batches = [batch for _, batch in by_size(tables.clients)]
    for _ in range(rounds):
        shared = _averaged([_trained(batch, shared) for batch in batches])
        yield [model for batch in batches for model in _predictors(batch, shared)]


def _trained(rows: Table, shared: Shared) -> Shared:
    """Return what each client of a batch makes of the broadcast, with a leading dimension."""
    count = len(rows.x)
    own = [each.expand(count, *each.shape).clone().requires_grad_() for each in shared.network]
    processes = _processes(rows, own, shared)
    optimiser = torch.optim.Adam([*own, *processes.parameters()], lr=LEARNING_RATE)
    for _ in range(LOCAL_STEPS):
        processes.set_train_data(outputs(own, rows.x), rows.y[..., 0], strict=False)
        processes.descend(optimiser)
    return Shared([each.detach() for each in own], _scales(processes))


def _averaged(trained: Sequence[Shared]) -> Shared:
    """Take the mean over all clients of all batches."""

    def mean(parts: Sequence[Tensor]) -> Tensor:
        return torch.cat(list(parts)).mean(0)

    network = [mean(each) for each in zip(*(own.network for own in trained), strict=True)]
    names = trained[0].scales
    return Shared(network, {name: mean([own.scales[name] for own in trained]) for name in names})


def _processes(rows: Table, network: Weights, shared: Shared | None = None) -> Regression:
    """Return a batch's processes on features, their inducing points at some of the rows."""
    with torch.no_grad():
        features = outputs(network, rows.x)
    batch = features.shape[:1]
    kernel = scaled(gpytorch.kernels.RBFKernel(batch_shape=batch), batch)
    kernel.base_kernel.lengthscale = LATENT**0.5
    every = -(-features.shape[1] // INDUCING)
    inducing = None if features.shape[1] <= INDUCING else features[:, ::every].clone()
    processes = Regression(features, rows.y[..., 0], kernel, inducing=inducing)
    if shared is not None:
        with torch.no_grad():
            for name, value in _scales(processes).items():
                value.copy_(shared.scales[name].expand_as(value))
    return processes


def _scales(processes: Regression) -> dict[str, Tensor]:
    """Return the raw parameters that are shared; not where the inducing points are."""
    return {
        name: each.data
        for name, each in processes.named_parameters()
        if not name.endswith("inducing_points") and not name.startswith("covariance.")
    }


def _predictors(rows: Table, shared: Shared) -> list[Predictor]:
    processes = _processes(rows, shared.network, shared)
    count = len(rows.x)
    known: dict[int, tuple[Tensor, Tensor]] = {}

    def believe(client: int, x: Tensor) -> Belief:
        if id(x) not in known:
            features = outputs(shared.network, x)
            known[id(x)] = processes.believe(features.expand(count, *features.shape))
        mean, variance = known[id(x)]
        return Belief(mean[client, :, None], variance[client, :, None])

    return [partial(believe, client) for client in range(count)]
