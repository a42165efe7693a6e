"""A step function learnt by the shifted and the replicated kernel ([FedBNR] fig. 3.2)."""

from argparse import Namespace
from dataclasses import replace

import torch

from benchmarks.pictures import DATA, TRUTH, canvas, draw_prediction, grid, save
from benchmarks.registry import Figures
from benchmarks.training import train
from kernels.features.spec import Architecture, KernelSpec, Replication
from kernels.layer.posterior import Posterior
from kernels.layer.statistics import Statistics

SHIFTED = KernelSpec(
    architecture=Architecture.SHIFTED, inputs=1, samples=100, hidden=(8,), latent=5
)
REPLICATED = replace(
    SHIFTED,
    architecture=Architecture.REPLICATED,
    replication=Replication.MULTIPLY,
    replication_scale=0.3,
)


def run(options: Namespace) -> Figures:
    generator = torch.Generator().manual_seed(1)
    x = grid(-2, 2, 80)
    y = (x > 0).double() * 2 - 1
    y = y + 0.05 * torch.randn(80, 1, generator=generator, dtype=torch.float64)
    queries = grid(-3, 3, 600)
    answer = (queries > 0).double() * 2 - 1
    figure, axes = canvas(2)
    figures = {}
    for axis, spec in zip(axes[0], (SHIFTED, REPLICATED), strict=True):
        name = spec.architecture.value
        steps = 60 if options.quick else 400
        kernel, hyperparameters = train(spec, x, y, steps=steps, penalty=0.3)
        posterior = Posterior.of(Statistics.of_table(kernel, x, y), hyperparameters)
        prediction = posterior.predict(kernel.features(queries))
        figures[f"rmse_{name}"] = float((prediction.mean - answer).square().mean().sqrt())
        figures[f"log_evidence_{name}"] = float(posterior.log_evidence.sum())
        print(f"{name:12}", {key: round(value, 3) for key, value in figures.items() if name in key})
        draw_prediction(axis, queries, prediction.mean, prediction.variance)
        axis.plot(queries, answer, color=TRUTH, lw=1, ls="--", label="truth")
        axis.scatter(x, y, s=8, color=DATA, zorder=3)
        axis.set(title=name, xlabel="x", ylabel="y", ylim=(-2.5, 2.5))
        axis.legend(loc="upper left", frameon=False, fontsize=8)
    print(f"picture: {save(figure, 'step_function', quick=options.quick)}")
    return figures
