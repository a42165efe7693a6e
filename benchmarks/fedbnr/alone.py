"""Ablations of phase 1: each client learns a kernel from its own rows, and nobody averages it.

local+local: with a linear layer of its own rows too. local+global: with a linear layer of all
clients' rows on its kernel, as phase 2 would give it. Both are a model a client.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from benchmarks.fedbnr.local_layers import kernel_of_inputs
from benchmarks.fedbnr.protocol import Predictor, Table, Tables, follow, joined
from benchmarks.fedbnr.scoring import Belief, Scored
from kernels.features.spec import KernelSpec
from kernels.features.urk import URK, starting_weights
from kernels.layer.posterior import Posterior
from kernels.layer.statistics import Statistics
from kernels.rounds.shared.local_training import Fit, starting_scales, train_locally

ROUNDS = 3
STEPS = 20
LEARNING_RATE = 0.01


def measure(tables: Tables) -> dict[str, Scored]:
    """Train each client alone, and judge it after every STEPS."""
    kernel = kernel_of_inputs(tables.test.x.shape[1])
    rounds = list(_trained(kernel, tables.clients))
    everything = joined(tables.clients)
    local = (
        [_layer(kernel, *each) for each in zip(fits, tables.clients, strict=True)]
        for fits in rounds
    )
    pooled = ([_layer(kernel, fit, everything) for fit in fits] for fits in rounds)
    return {"local+local": follow(local, tables), "local+global": follow(pooled, tables)}


def _trained(kernel: KernelSpec, clients: tuple[Table, ...]) -> Iterator[list[Fit]]:
    scales = starting_scales(1)
    logs = scales.noise_variance.log() / 2, scales.prior_variance.log() / 2
    fits = [Fit(starting_weights(kernel), *logs)] * len(clients)
    for _ in range(ROUNDS):
        fits = [
            train_locally(
                kernel,
                fit,
                rows.x,
                rows.y,
                steps=STEPS,
                learning_rate=LEARNING_RATE,
                proximal=0.0,
            )
            for fit, rows in zip(fits, clients, strict=True)
        ]
        yield fits


def _layer(kernel: KernelSpec, fit: Fit, rows: Table) -> Predictor:
    """Return the linear layer of some rows on a client's kernel, with its σ and λ."""
    urk = URK(kernel, fit.weights)
    with torch.no_grad():
        statistics = Statistics.of_features(urk.features(rows.x), rows.y)
    posterior = Posterior.of(statistics, fit.hyperparameters)

    def predict(x: Tensor) -> Belief:
        with torch.no_grad():
            predicted = posterior.predict(urk.features(x))
        return Belief(predicted.mean, predicted.variance)

    return predict
