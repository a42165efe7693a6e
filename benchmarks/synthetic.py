"""Two clients with disjoint ranges, and a third that joins them ([FedBNR] §3.2.1, fig. 3.4).

There are 200 inputs on [−5, 5] with noise 0.5; the kernel is learnt in one place and then fixed.
The inputs below 0 go to client 1, the others to client 2. Each client sends only its sums S_c, b_c,
y_cᵀy_c, n_c. The upper panels show the predictions of client 1 alone, as in pFedGP, where a process
stays with its client, and the predictions from the sums of both. The lower panels show the error on
[−5, 5] when a new client brings few or many rows, from the same range or from [5, 15]: for its own
process (pFedGP), for the product of all three (FedLoc) and for the posterior of all sums (FedBNR);
medians and quartiles over draws. The kernel is Gaussian with a learnt lengthscale: a network learnt
on both halves would pass information about the second half to client 1.
"""

from argparse import Namespace
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.fedbnr.experts import product
from benchmarks.pictures import BAND, DATA, MEAN, TRUTH, canvas, draw_prediction, grid, save
from benchmarks.registry import Figures
from benchmarks.training import train
from kernels.features.spec import Architecture, KernelSpec
from kernels.features.urk import URK
from kernels.layer.posterior import Hyperparameters, Posterior
from kernels.layer.statistics import Statistics

NOISE = 0.5
RANGES = {"[−5, 5]": (-5.0, 5.0), "[5, 15]": (5.0, 15.0)}
WAYS = {"pFedGP": DATA, "FedLoc": BAND, "FedBNR": MEAN}


def truth(x: Tensor) -> Tensor:
    return x.sin() + 0.3 * x


def observed(count: int, first: float, last: float, generator: torch.Generator) -> Any:
    """Draw random rows (x, y), with inputs uniform on a range."""
    x = (last - first) * torch.rand(count, 1, generator=generator, dtype=torch.float64) + first
    return x, truth(x) + NOISE * torch.randn(count, 1, generator=generator, dtype=torch.float64)


def run(options: Namespace) -> Figures:
    x, y = observed(200, -5, 5, torch.Generator().manual_seed(0))
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

    figure, axes = canvas(2, rows=2)
    for axis, posterior, name, table in (
        (axes[0, 0], alone, "client 1 alone (pFedGP)", clients["client 1"]),
        (axes[0, 1], federated, "both clients, by their sums (FedBNR)", (x, y)),
    ):
        prediction = posterior.predict(features)
        draw_prediction(axis, queries, prediction.mean, prediction.latent_variance)
        axis.plot(queries, answer, color=TRUTH, lw=1.5, ls="--", label="truth")
        axis.plot(*table, ".", ms=4, color=DATA)
        axis.set(title=name, xlabel="x", ylabel="y", ylim=(-4.2, 4.2))
        axis.legend(loc="upper left", frameon=False, fontsize=8)

    sizes, draws = ((5, 50, 200), 3) if options.quick else ((5, 10, 20, 50, 100, 200), 20)
    growth = Growth(kernel, hyperparameters, list(sums.values()), features, answer)
    figures: dict[str, float] = {}
    for axis, (name, bounds) in zip(axes[1], RANGES.items(), strict=True):
        errors = growth.errors(bounds, sizes=sizes, draws=draws)
        draw_growth(axis, sizes, errors)
        axis.set(title=f"a new client with inputs on {name}")
        for way, (least, *_, most) in {
            way: np.median(e, axis=1) for way, e in errors.items()
        }.items():
            print(
                f"new client on {name:8} {way:8} MSE {least:.3f} with 5 rows, {most:.3f} with 200"
            )
            where = "here" if bounds[0] < 0 else "elsewhere"
            figures[f"mse_{way.lower()}_{where}_5"] = float(least)
            figures[f"mse_{way.lower()}_{where}_200"] = float(most)
    print(f"picture: {save(figure, 'synthetic', quick=options.quick)}")
    return {
        "federated_over_pooled_gap_sd": float(gap),
        "rmse_federated": rmse,
        "rmse_client_1_alone": rmse_alone,
        "coverage_95": coverage,
        **figures,
    }


class Growth:
    """The error on the queries after a third client adds its rows, by prediction method."""

    def __init__(
        self,
        kernel: URK,
        hyperparameters: Hyperparameters,
        sums: list[Statistics],
        features: Tensor,
        answer: Tensor,
    ) -> None:
        self._kernel, self._hyperparameters = kernel, hyperparameters
        self._before, self._features, self._answer = sums[0] + sums[1], features, answer
        self._experts = [self._predict(each) for each in sums]

    def _predict(self, sums: Statistics) -> tuple[Tensor, Tensor]:
        predicted = Posterior.of(sums, self._hyperparameters).predict(self._features)
        return predicted.mean, predicted.variance

    def errors(
        self, bounds: tuple[float, float], *, sizes: tuple[int, ...], draws: int
    ) -> Mapping[str, Any]:
        """Return the mean squared errors, (sizes, draws), of each method in WAYS."""
        found: dict[str, list[list[float]]] = {way: [] for way in WAYS}
        for size in sizes:
            errors = [self._joined(observed(size, *bounds, _generator(d))) for d in range(draws)]
            for way, of_size in found.items():
                of_size.append([each[way] for each in errors])
        return {way: np.array(of_way) for way, of_way in found.items()}

    def _joined(self, rows: tuple[Tensor, Tensor]) -> Mapping[str, float]:
        new = Statistics.of_table(self._kernel, *rows)
        own = self._predict(new)
        means, variances = zip(*self._experts, own, strict=True)
        predicted = {
            "pFedGP": own[0],
            "FedLoc": product(torch.stack(means), torch.stack(variances))[0],
            "FedBNR": self._predict(self._before + new)[0],
        }
        return {
            way: float((mean - self._answer).square().mean()) for way, mean in predicted.items()
        }


def _generator(draw: int) -> torch.Generator:
    return torch.Generator().manual_seed(1 + draw)


def draw_growth(axis: Any, sizes: tuple[int, ...], errors: Mapping[str, Any]) -> None:
    """Plot medians and quartiles against the number of the new client's rows."""
    for way, of_way in errors.items():
        low, middle, high = np.quantile(of_way, (0.25, 0.5, 0.75), axis=1)
        axis.fill_between(sizes, low, high, color=WAYS[way], alpha=0.2, lw=0)
        axis.plot(sizes, middle, "o-", ms=3, color=WAYS[way], label=way)
    axis.set(xlabel="rows of the new client", ylabel="MSE on [−5, 5]", xscale="log", yscale="log")
    axis.legend(frameon=False, fontsize=8)
