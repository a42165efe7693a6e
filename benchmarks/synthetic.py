"""Two clients with disjoint ranges: the federated posterior knows both (004, fig. 3.4 top right).

200 inputs on [−5, 5], noise 0.5, the kernel learnt in one place and then fixed; the inputs below 0
go to client 1, the others to client 2. Each sends only its sums S_c, b_c, y_cᵀy_c, n_c. Beside the
federated posterior, client 1's own, which knows nothing of the other half. The kernel is Gaussian
with a learnt lengthscale: a network learnt on both halves would carry the second to client 1.
"""

from argparse import Namespace

import torch
from torch import Tensor

from benchmarks.pictures import DATA, TRUTH, canvas, draw_prediction, grid, save
from benchmarks.registry import Figures
from benchmarks.training import train
from kernels.linear import Posterior
from kernels.spec import Architecture, KernelSpec
from kernels.statistics import Statistics

NOISE = 0.5


def truth(x: Tensor) -> Tensor:
    return x.sin() + 0.3 * x


def run(options: Namespace) -> Figures:
    generator = torch.Generator().manual_seed(0)
    x = 10 * torch.rand(200, 1, generator=generator, dtype=torch.float64) - 5
    y = truth(x) + NOISE * torch.randn(200, 1, generator=generator, dtype=torch.float64)
    spec = KernelSpec(architecture=Architecture.RBF, inputs=1, samples=100)
    print("learning the kernel in one place, as the thesis does for this experiment …")
    steps = 60 if options.quick else 300
    kernel, hyperparameters = train(spec, x, y, steps=steps, learning_rate=0.1)

    left = (x < 0)[:, 0]
    clients = {"client 1": (x[left], y[left]), "client 2": (x[~left], y[~left])}
    sums = {name: Statistics.of_table(kernel, *rows) for name, rows in clients.items()}
    federated = Posterior.of(sums["client 1"] + sums["client 2"], hyperparameters)
    pooled = Posterior.of(Statistics.of_table(kernel, x, y), hyperparameters)
    alone = Posterior.of(sums["client 1"], hyperparameters)

    queries = grid(-5, 5, 1000)
    features = kernel.features(queries).detach()
    answer = truth(queries)
    ours, theirs = federated.predict(features), pooled.predict(features)
    gap = ((ours.mean - theirs.mean).abs() / theirs.variance.sqrt()).max()

    def report(name: str, posterior: Posterior) -> tuple[float, float]:
        prediction = posterior.predict(features)
        error = (prediction.mean - answer).square().mean().sqrt()
        inside = (prediction.mean - answer).abs() <= 1.96 * prediction.latent_variance.sqrt()
        share = float(inside.double().mean())
        print(f"{name:24} RMSE to the truth {error:.3f}, truth inside the 95 % band {share:.0%}")
        return float(error), share

    for name, (rows, _) in clients.items():
        print(f"{name}: {len(rows)} rows on [{rows.min():.1f}, {rows.max():.1f}]")
    rmse, coverage = report("both, by their sums", federated)
    rmse_alone, _ = report("client 1 alone", alone)
    report("pooled rows", pooled)
    print(f"largest difference of federated and pooled mean: {gap:.1e} standard deviations")

    figure, axes = canvas(2)
    for axis, posterior, name, table in (
        (axes[0, 0], alone, "client 1 alone", clients["client 1"]),
        (axes[0, 1], federated, "both clients, by their sums", (x, y)),
    ):
        prediction = posterior.predict(features)
        draw_prediction(axis, queries, prediction.mean, prediction.latent_variance)
        axis.plot(queries, answer, color=TRUTH, lw=1.5, ls="--", label="truth")
        axis.plot(*table, ".", ms=4, color=DATA)
        axis.set(title=name, xlabel="x", ylabel="y", ylim=(-4.2, 4.2))
        axis.legend(loc="upper left", frameon=False, fontsize=8)
    print(f"picture: {save(figure, 'synthetic', quick=options.quick)}")
    return {
        "federated_over_pooled_gap_sd": float(gap),
        "rmse_federated": rmse,
        "rmse_client_1_alone": rmse_alone,
        "coverage_95": coverage,
    }
