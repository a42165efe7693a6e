"""The settings of FedBNR's rows, all chosen on validation rows of splits that are not reported.

Reported are the seeds 0 to 9; these were compared on the validation rows of seeds 100 to 107, half
of them choosing the step and half (in brackets) judging it, RMSE in units.

- Parkinsons was behind (2.9 after 100 steps) because training was too slow for its steps and the
  kernel too smooth at the start. At 0.02 instead of 0.01 and a `frequency_scale` of 1 instead of
  0.3 it is 1.2 (1.6) after 120 steps; either alone 1.6 (1.9) and 1.7 (1.9) after 200, neither
  2.3 (2.4). Weights that start at 1/√3 of theirs would give 1.0 (1.3), a rate of 0.04 diverges.
- Skillcraft was behind because it is nearly linear with much noise (linear regression: 1.00) and a
  network finds more in its 2,670 rows than there is: .94 to .97 (.98 to 1.00) for any τ from 3 to
  100, any width and any rate, on four splits. A Matérn-5/2 kernel with a lengthscale for each input
  has 18 weights: .94 (.98) on the same four, .92 (.94) on six, with 100 samples as with 200.
- FedAvg, 20 rounds of 10 steps, 10 clients: at rates of .005, .01 and .02 SML .44, .34, .32 and
  Parkinsons 4.5, 3.9, 4.4, all still falling; Bike .35 at .01.
- Distillation, 8 rounds of 10 steps, 10 clients: α of 1, 10, 100 Skillcraft 1.13, 1.09, 1.08; of
  10, 100, 1000 SML .63, .54, .68. One α for all, where the thesis has one for each column.
"""

import math

from benchmarks.datasets import Split
from kernels.rounds import distillation, exact, fedavg
from kernels.rounds.public_set import Columns
from kernels.spec import Architecture, KernelSpec

NEARLY_LINEAR = "skillcraft"


def exact_kernel(split: Split) -> KernelSpec:
    """Return the kernel that exact training learns."""
    inputs = len(split.dataset.schema.feature_names)
    if split.dataset.name == NEARLY_LINEAR:
        return KernelSpec(
            architecture=Architecture.MATERN52,
            inputs=inputs,
            lengthscale=math.sqrt(inputs),
            seed=1,
        )
    return KernelSpec(inputs=inputs, latent=8, frequency_scale=1.0, seed=1)


def exact_of(dataset: str, *, most_steps: int) -> exact.Spec:
    """Return phase 1 by the pooled gradient."""
    if dataset == NEARLY_LINEAR:
        return exact.Spec(steps=min(40, most_steps), learning_rate=0.1, warm_up=5, penalties=(0.0,))
    return exact.Spec(steps=min(120, most_steps), learning_rate=0.02, penalties=(3.0,))


def local_kernel(inputs: int) -> KernelSpec:
    """Return the kernel of the rows that train at the clients: 50 samples, as in the thesis."""
    return KernelSpec(inputs=inputs, samples=50, latent=8, frequency_scale=1.0, seed=1)


def averaging_of(clients: int) -> fedavg.Spec:
    """Return phase 1 by federated averaging."""
    return fedavg.Spec(rounds=20, local_steps=_local_steps(clients))


def distillation_of(clients: int, public: Columns) -> distillation.Spec:
    """Return phase 1 by distillation."""
    return distillation.Spec(
        public=public, rounds=10, local_steps=_local_steps(clients), alphas=(100.0,)
    )


def _local_steps(clients: int) -> int:
    """Return fewer where each client has few rows: they would drift, and cost ten times as much."""
    return 10 if clients <= 10 else 5
