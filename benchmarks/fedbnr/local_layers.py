"""The kernel that clients train, and ablations of phase 2: linear layers of a client's own rows.

From the training of FedBNR or FedBNR-KD come also avg+local and kd+local, where each client has a
linear layer of its own rows alone on the common kernel, with the σ and λ of that phase 1.
"""

from functools import cache

from torch import Tensor

from benchmarks.datasets import Split
from benchmarks.fedbnr.programs import Trail
from benchmarks.fedbnr.protocol import Predictor, Tables, follow
from benchmarks.fedbnr.scoring import Belief, Scored
from kernels.features.spec import KernelSpec
from kernels.features.urk import URK
from kernels.layer.posterior import Hyperparameters, Posterior
from kernels.layer.statistics import Statistics
from kernels.model.model import known


def kernel_of_inputs(inputs: int) -> KernelSpec:
    """Return the kernel of the rows that train at the clients: 50 samples, as in [FedBNR]."""
    return KernelSpec(inputs=inputs, samples=50, latent=8, frequency_scale=1.0, seed=1)


def kernel_of(split: Split) -> KernelSpec:
    """Return it for a split."""
    return kernel_of_inputs(len(split.dataset.schema.feature_names))


def local_steps(clients: int) -> int:
    """Return fewer where each client has few rows: they would drift, and cost ten times as much."""
    return 10 if clients <= 10 else 5


def measure(kernel: KernelSpec, trail: Trail) -> Scored:
    """Judge the local layers on the kernels that a program came by."""
    rounds = (
        local_layers(URK(kernel, weights), known(scales, trail.phase), trail.tables)
        for weights, scales in trail.models
    )
    return follow(rounds, trail.tables)


def local_layers(kernel: URK, scales: Hyperparameters, tables: Tables) -> list[Predictor]:
    """Return a linear layer of each client's rows alone, on one kernel and with one σ and λ."""
    features = cache(lambda x: kernel.features(x).detach())

    def layer(client: int) -> Predictor:
        rows = tables.clients[client]
        posterior = Posterior.of(Statistics.of_features(features(rows.x), rows.y), scales)

        def predict_at(x: Tensor) -> Belief:
            predicted = posterior.predict(features(x))
            return Belief(predicted.mean, predicted.variance)

        return predict_at

    return [layer(client) for client in range(len(tables.clients))]
