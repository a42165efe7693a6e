"""Opacus: DP-SGD on pooled rows, of a network on the inputs and of a linear model on features.

PrivacyEngine with Poisson sampling and its own tightest accountant (PRV), Adam, a rate that falls
to zero along a cosine. NETWORK and LINEAR are what `benchmarks.dp.tuning` came to, one setting for
all sets and every ε, as our own routes have. Mean log RMSE on validation rows of seed 100:

    network  from 30 epochs, batch 512, clip 1, hidden 32: rate .005 .890, .01 .845, .02 .808,
             .05 .816, .1 .870; clip .1 .809, .3 .809, 3 .807; epochs 10 .866, 20 .823, 60 .797,
             100 .783; batch 256 .803, 1,024 .790, 2,048 .795; hidden 8 .787, 16 .764, 64 .824,
             128 .892
    linear   from 30 epochs, batch 512, clip 1: rate .01 .828, .02 .856, .05 .986, .1 1.194; clip
             .1 .829, .3 .828, 3 .829, 10 .836; epochs 10 .861, 20 .835, 60 .834, 100 .856; batch
             256 .849, 1,024 .834, 2,048 .851

The most epochs of the network and the least rate of the linear model were at the edge of what was
searched, so beyond it by hand, on seeds 100 and 101: the network .782, with 200 epochs .786, and
half the rate .791, clip 10 .824; the linear model .845, at .005 .855, and with 60 epochs .844.
"""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from benchmarks.dp.pooled import Matrix, Pooled
from benchmarks.dp.routes import DELTA, TARGET_CLIP, public_kernel
from benchmarks.dp.scores import Score
from kernels.features.urk import URK


@dataclass(frozen=True)
class Tuned:
    """How DP-SGD is run; `hidden` is of the network alone."""

    epochs: int
    batch: int
    rate: float
    clip: float
    hidden: int = 0


NETWORK = Tuned(epochs=100, batch=512, rate=0.02, clip=3.0, hidden=16)
LINEAR = Tuned(epochs=30, batch=512, rate=0.01, clip=1.0)


class Rows(Dataset[tuple[Tensor, Tensor]]):
    """Rows with targets, fetched a batch at a time: one by one they would take half of the run."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self._x, self._y = x, y

    def __len__(self) -> int:
        return len(self._x)

    def __getitem__(self, row: int) -> tuple[Tensor, Tensor]:
        return self._x[row], self._y[row]

    def __getitems__(self, rows: list[int]) -> tuple[Tensor, Tensor]:
        """As `torch.utils.data` asks for a batch."""
        return self._x[rows], self._y[rows]


def opacus_network(pooled: Pooled, epsilon: float, seed: int) -> Score:
    """DP-SGD on a network of one hidden layer."""
    return pooled.with_own_variance(*network(pooled, epsilon, seed, NETWORK))


def opacus_linear(pooled: Pooled, epsilon: float, seed: int) -> Score:
    """DP-SGD on a linear model of the public kernel's features, scaled to a mean square of one."""
    return pooled.with_own_variance(*linear(pooled, epsilon, seed, LINEAR))


def network(pooled: Pooled, epsilon: float, seed: int, tuned: Tuned) -> tuple[Matrix, Matrix]:
    """Return predictions of the validation and the test rows."""
    torch.manual_seed(seed)
    inputs = pooled.training[0].shape[1]
    model = nn.Sequential(nn.Linear(inputs, tuned.hidden), nn.Tanh(), nn.Linear(tuned.hidden, 1))
    return _predictions(pooled, model, lambda x: x, epsilon, seed, tuned)


def linear(pooled: Pooled, epsilon: float, seed: int, tuned: Tuned) -> tuple[Matrix, Matrix]:
    """Return predictions of the validation and the test rows."""
    kernel = URK(public_kernel(pooled.training[0].shape[1])[0])
    model = nn.Linear(kernel.spec.features, 1)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    root = math.sqrt(kernel.spec.samples)
    return _predictions(
        pooled, model, lambda x: kernel.features(x).detach() * root, epsilon, seed, tuned
    )


def _predictions(
    pooled: Pooled,
    model: nn.Module,
    inputs: Callable[[Tensor], Tensor],
    epsilon: float,
    seed: int,
    tuned: Tuned,
) -> tuple[Matrix, Matrix]:
    from opacus import PrivacyEngine

    training, validation, test = (
        inputs(torch.from_numpy(part[0])).float()
        for part in (pooled.training, pooled.validation, pooled.test)
    )
    targets = torch.from_numpy(pooled.training[1]).float().clamp(-TARGET_CLIP, TARGET_CLIP)
    generator = torch.Generator().manual_seed(seed)
    loader = DataLoader(
        Rows(training, targets),
        batch_size=tuned.batch,
        generator=generator,
        collate_fn=lambda batch: batch,
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=tuned.rate)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Opacus warns of its own hooks and of its generator
        private, stepper, batches = PrivacyEngine(accountant="prv").make_private_with_epsilon(
            module=model,
            optimizer=optimizer,
            data_loader=loader,
            target_epsilon=epsilon,
            target_delta=DELTA,
            epochs=tuned.epochs,
            max_grad_norm=tuned.clip,
            noise_generator=generator,
        )
        steps = tuned.epochs * len(loader)
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: 0.5 * (1 + math.cos(math.pi * min(step / steps, 1)))
        )
        for _ in range(tuned.epochs):
            for x, y in batches:
                stepper.zero_grad()
                if len(x):
                    torch.autograd.backward(nn.functional.mse_loss(private(x)[:, 0], y))
                    stepper.step()
                schedule.step()
    with torch.no_grad():
        held_out, tested = (model(x)[:, 0].double().numpy() for x in (validation, test))
    return held_out, tested
