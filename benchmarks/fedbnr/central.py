"""One place that holds all rows: what federation is measured against.

Central GP: gpytorch, Matérn-5/2, a lengthscale for each input; above EXACT_ROWS rows [Titsias09]'s
sparse bound with learnt inducing points. Central URK: the program of FedBNR exact over one site.

A sparse bound is slow to fit: on seed 100, which is not reported, 40 steps leave SML at an RMSE of
.38, 100 steps take it to .16 (500 inducing points instead of 300: .12, where FedBNR exact has .14),
and Parkinsons from 6.1 to 3.6 (3.2). By hand, test rows of one split; 300 were taken for their
cost.

It stands in the tables twice: as it is, and recalibrated as the FedBNR rows are, by the law of all
validation rows' residuals, which is twice as many as those have that choose a round by the other
half. The second says what of a difference in calibration or density is the kernel's.
"""

from dataclasses import replace

import gpytorch
import torch
from torch import Tensor

from benchmarks.fedbnr.gaussian import Regression, scaled
from benchmarks.fedbnr.protocol import Predictor, Table, Tables, follow, joined
from benchmarks.fedbnr.scoring import Belief, Scored
from kernels.scores.recalibration import fit, histogram

GP, RECALIBRATED_GP = "Central GP", "Central GP, recalibrated"

EXACT_ROWS = 3000
INDUCING = 300
STEPS, SPARSE_STEPS = 40, 100
LEARNING_RATE = 0.1


def measure(tables: Tables, *, seed: int) -> dict[str, Scored]:
    """Train once, by evidence alone: there are no rounds to choose from."""
    rows = joined(tables.clients)
    kernel = scaled(gpytorch.kernels.MaternKernel(nu=2.5, ard_num_dims=rows.x.shape[1]))
    kernel.base_kernel.lengthscale = rows.x.shape[1] ** 0.5
    inducing, steps = None, STEPS
    if len(rows.y) > EXACT_ROWS:
        chosen = torch.randperm(len(rows.y), generator=torch.Generator().manual_seed(seed))
        inducing, steps = rows.x[chosen[:INDUCING]].clone(), SPARSE_STEPS
    model = Regression(rows.x, rows.y[:, 0], kernel, inducing=inducing)
    optimiser = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    with gpytorch.settings.max_cholesky_size(10_000), gpytorch.settings.cholesky_jitter(1e-6):
        for _ in range(steps):
            model.descend(optimiser)
            schedule.step()
        believer = model.believer()
        return {
            GP: follow([[believer]], tables),
            RECALIBRATED_GP: follow([[recalibrated(believer, tables.validation)]], tables),
        }


def recalibrated(model: Predictor, held_out: Table) -> Predictor:
    """Return a model with the law that residuals of held-out rows have in its deviations."""
    belief = model(held_out.x)
    if belief.variance is None:
        raise ValueError("only a model with a variance can be recalibrated")
    law = fit(histogram((held_out.y - belief.mean)[:, 0] / belief.variance[:, 0].sqrt()))

    def predict(x: Tensor) -> Belief:
        return replace(model(x), law=law)

    return predict
