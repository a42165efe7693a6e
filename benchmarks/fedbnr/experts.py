"""FedLoc [Yin20]: hyperparameters by proximal ADMM, predictions by a product of experts.

All clients are to agree on z, a Gaussian kernel's lengthscales and variance and the noise (as what
gpytorch's softplus makes them of). With l_c the negative log evidence of client c's rows, by
INDUCING of them as inducing points, one iteration of proximal ADMM [Xie19] is

    z    ← mean_c (θ_c + η_c/ρ)
    θ_c  ← z − (∇l_c(z) + η_c)/(ρ + L),   L = 10ρ as in [FedBNR]
    η_c  ← η_c + ρ(θ_c − z)

so a client sends θ_c + η_c/ρ and keeps its dual η_c. The global model is the generalised product
with β_c = 1/K: precision Σ β_c/v_c, mean Σ β_c μ_c/v_c over it. Experts that have seen nothing
near x pull it to the prior.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import gpytorch
import torch
from torch import Tensor

from benchmarks.fedbnr.gaussian import Regression, scaled
from benchmarks.fedbnr.protocol import Predictor, Table, Tables, by_size, follow
from benchmarks.fedbnr.scoring import Belief, Scored

INDUCING = 50
ROUNDS = 20
ITERATIONS = 5
"""Of ADMM in a round: each is a sum over clients."""


@dataclass(frozen=True, eq=False)
class Consensus:
    """z (d,), and of each client θ_c and η_c, (K, d)."""

    common: Tensor
    own: Tensor
    duals: Tensor

    @classmethod
    def start(cls, common: Tensor, clients: int) -> "Consensus":
        """Start in agreement, with no tension."""
        own = common.expand(clients, len(common)).clone()
        return cls(common, own, torch.zeros_like(own))

    def agreed(self, rho: float) -> Tensor:
        """Return the next z, the mean of what clients send."""
        return (self.own + self.duals / rho).mean(0)

    def stepped(
        self, common: Tensor, gradients: Tensor, *, rho: float, damping: float
    ) -> "Consensus":
        """Return θ and η after a step from z along the gradients (K, d) of l_c at z."""
        own = common - (gradients + self.duals) / (rho + damping)
        return Consensus(common, own, self.duals + rho * (own - common))


def product(means: Tensor, variances: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and variance of the product of K experts, each to the power 1/K; all (K, n).

    >>> product(torch.tensor([[0.0], [3.0]]), torch.tensor([[2.0], [1.0]]))
    (tensor([2.]), tensor([1.3333]))
    """
    variance = 1 / (1 / variances).mean(0)
    return variance * (means / variances).mean(0), variance


def measure(tables: Tables, *, rho: float, rounds: int = ROUNDS) -> Scored:
    """Iterate for at most so many rounds."""
    return follow(_rounds(tables, rho, rounds), tables)


def _rounds(tables: Tables, rho: float, rounds: int) -> Iterator[Sequence[Predictor]]:
    batches = [(members, Experts.of(rows)) for members, rows in by_size(tables.clients)]
    consensus = Consensus.start(batches[0][1].hyperparameters()[0], len(tables.clients))
    for _ in range(rounds):
        for _ in range(ITERATIONS):
            common = consensus.agreed(rho)
            gradients = torch.zeros_like(consensus.own)
            for members, experts in batches:
                gradients[members] = experts.gradients(common)
            consensus = consensus.stepped(common, gradients, rho=rho, damping=10 * rho)
        yield [_predictor([experts for _, experts in batches], consensus.agreed(rho))]


@dataclass(frozen=True, eq=False)
class Experts:
    """The processes of a batch of clients with equally many rows."""

    processes: Regression

    @classmethod
    def of(cls, rows: Table) -> "Experts":
        """Start with lengthscales √p, and inducing points evenly over the rows."""
        batch, inputs = rows.x.shape[:1], rows.x.shape[2]
        kernel = scaled(gpytorch.kernels.RBFKernel(ard_num_dims=inputs, batch_shape=batch), batch)
        kernel.base_kernel.lengthscale = inputs**0.5
        every = -(-rows.x.shape[1] // INDUCING)
        inducing = rows.x[:, ::every].clone() if every > 1 else None
        return cls(Regression(rows.x, rows.y[..., 0], kernel, inducing=inducing))

    def _parts(self) -> list[torch.nn.Parameter]:
        kernel = self.processes.base_kernel
        noise = self.processes.likelihood.raw_noise
        return [kernel.base_kernel.raw_lengthscale, kernel.raw_outputscale, noise]

    def hyperparameters(self) -> Tensor:
        """Return θ of each, (K, d)."""
        return torch.cat([each.detach().flatten(1) for each in _with_columns(self._parts())], 1)

    def agree(self, common: Tensor) -> None:
        """Set the hyperparameters of all to z."""
        sizes = [each[0].numel() for each in self._parts()]
        with torch.no_grad():
            for part, value in zip(self._parts(), torch.split(common, sizes), strict=True):
                part.copy_(value.reshape(part.shape[1:]).expand_as(part))

    def gradients(self, common: Tensor) -> Tensor:
        """Return ∇l_c(z) of each, (K, d)."""
        self.agree(common)
        rows = self.processes.train_targets.shape[1]
        found = torch.autograd.grad(self.processes.loss() * rows, self._parts())
        return torch.cat(_with_columns(found), 1)


def _with_columns(parts: Sequence[Tensor]) -> list[Tensor]:
    return [each.reshape(len(each), -1) for each in parts]


def _predictor(batches: list[Experts], common: Tensor) -> Predictor:
    def predict(x: Tensor) -> Belief:
        found = []
        for experts in batches:
            experts.agree(common)
            count = len(experts.processes.train_targets)
            found.append(experts.processes.believe(x.expand(count, *x.shape)))
        means, variances = (torch.cat(list(each)) for each in zip(*found, strict=True))
        mean, variance = product(means, variances)
        return Belief(mean.unsqueeze(1), variance.unsqueeze(1))

    return predict
