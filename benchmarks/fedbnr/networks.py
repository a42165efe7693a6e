"""FedAvg and FedProx on plain networks ([McMahan17], [LiT20]): no uncertainty.

Each client trains a copy of the broadcast network on its own rows, full batch, by Adam on

    mean squared error + μ/2 ‖θ_c − θ‖²,   μ = 0 for FedAvg

and the coordinator takes the plain mean of the θ_c. The clients' copies are one batch of networks,
with a leading dimension for the client: Adam acts coordinate by coordinate, so they train as if
each were alone.

Steps and rate were compared on validation rows of seed 100, FedAvg: (10, .005), (10, .01),
(25, .005), (25, .01) and (50, .003) with 10 clients have SML .47, .54, .42, .49, .44 and CCPP 4.9,
5.1, 4.7, 4.9, 4.5 after as many rounds as make 400, 400, 625, 625, 1000 steps; with 100 clients,
who drift apart on 26 rows each, SML .67, .65, .73, .72, .82. By hand: no command repeats it.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn.functional import pad

from benchmarks.fedbnr.protocol import Predictor, Table, Tables, follow
from benchmarks.fedbnr.scoring import Belief, Scored

HIDDEN = 128, 128
ROUNDS = 40
FEW_CLIENTS = 10
"""Up to so many have rows enough for more steps of their own in a round."""


@dataclass(frozen=True)
class Local:
    """What a client does in a round: steps of Adam, its rate, and μ."""

    steps: int
    learning_rate: float
    proximal: float

    @classmethod
    def of(cls, clients: int, *, proximal: float) -> "Local":
        """Return the recipe for so many clients."""
        return cls(25, 0.005, proximal) if clients <= FEW_CLIENTS else cls(10, 0.01, proximal)


Weights = list[Tensor]
"""(W₁, b₁, W₂, b₂ …), W (…, out, in) and b (…, out): one network, or one a client in a batch."""


def measure(tables: Tables, *, proximal: float, seed: int, rounds: int = ROUNDS) -> Scored:
    """Train for at most so many rounds."""
    generator = torch.Generator().manual_seed(seed)
    start = starting(tables.test.x.shape[1], HIDDEN, 1, generator=generator)
    local = Local.of(len(tables.clients), proximal=proximal)
    return follow(_rounds(tables, start, local, rounds=rounds), tables)


def _rounds(
    tables: Tables, weights: Weights, local: Local, *, rounds: int
) -> Iterator[Sequence[Predictor]]:
    rows = padded(tables.clients)
    for _ in range(rounds):
        copies = trained(weights, *rows, local)
        weights = [each.mean(0) for each in copies]
        yield [_predictor(weights)]


def _predictor(weights: Weights) -> Predictor:
    return lambda x: Belief(outputs(weights, x.float()).double())


def starting(
    inputs: int, hidden: Sequence[int], last: int, *, generator: torch.Generator
) -> Weights:
    """Draw a network: weights normal with variance 1/inputs of their layer, biases zero."""
    weights = []
    for fan_in, fan_out in pairwise((inputs, *hidden, last)):
        drawn = torch.randn(fan_out, fan_in, generator=generator) / math.sqrt(fan_in)
        weights += [drawn, torch.zeros(fan_out)]
    return weights


def outputs(weights: Weights, x: Tensor) -> Tensor:
    """Return a network's outputs (n, last) of x (n, p), or a batch's (K, n, last) of (K, n, p)."""
    layers = list(zip(weights[::2], weights[1::2], strict=True))
    for depth, (weight, bias) in enumerate(layers):
        x = x @ weight.mT + bias.unsqueeze(-2)
        if depth < len(layers) - 1:
            x = x.tanh()
    return x


def padded(clients: Sequence[Table]) -> tuple[Tensor, Tensor, Tensor]:
    """Return x (K, n, p), y (K, n, 1) and each row's weight (K, n, 1): 1/n_c, or 0 of padding."""
    most = max(len(each.y) for each in clients)

    def filled(values: Tensor) -> Tensor:
        return pad(values.float(), (0, 0, 0, most - len(values)))

    return (
        torch.stack([filled(each.x) for each in clients]),
        torch.stack([filled(each.y) for each in clients]),
        torch.stack([filled(torch.ones_like(each.y) / len(each.y)) for each in clients]),
    )


def trained(start: Weights, x: Tensor, y: Tensor, share: Tensor, local: Local) -> Weights:
    """Return each client's network after training from `start`, with a leading dimension."""
    own = [each.expand(len(x), *each.shape).clone().requires_grad_() for each in start]
    optimiser = torch.optim.Adam(own, lr=local.learning_rate)
    for _ in range(local.steps):
        loss = (share * (outputs(own, x) - y).square()).sum()
        gradients = torch.autograd.grad(loss, own)
        for mine, common, gradient in zip(own, start, gradients, strict=True):
            mine.grad = gradient + local.proximal * (mine.detach() - common)
        optimiser.step()
    return [each.detach() for each in own]
