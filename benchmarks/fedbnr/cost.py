"""What clients cost over pooled rows, and that their number changes no prediction."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.datasets import Dataset, Split
from benchmarks.fedbnr.anchors import LARGE, SMALL
from benchmarks.fedbnr.phase1.exact import kernel_of
from benchmarks.fedbnr.programs import program_of
from client_sdk.simulation import simulate
from kernels import adam
from kernels.features.urk import URK, starting_weights
from kernels.layer.evidence import PooledEvidence, feature_gradient
from kernels.layer.posterior import Spectrum
from kernels.layer.refit import refit
from kernels.layer.statistics import Statistics
from kernels.model.model import Model
from kernels.model.prediction import predict
from kernels.rounds.columns import moments
from kernels.rounds.kernel import exact
from kernels.rounds.program import Program
from kernels.rounds.shared.evidence_step import stepped
from kernels.rounds.site.site import Part, Site

PENALTY = 3.0


def gap_between_clients(data: Path, *, steps: int = 100) -> dict[str, float]:
    """Deal the same rows to 1, 10 and 100 clients: the same predictions, to rounding."""
    split = Dataset.load(SMALL, data).split(clients=100, seed=0)
    program = program_of(split, kernel_of(split), _phase_1(steps))
    tens = [_merged(split, first, first + 10) for first in range(0, 100, 10)]
    test = split.dataset.table(split.test)
    outcomes = [
        predict(simulate(program, sites, secure=False).model, test)
        for sites in ([split.pooled()], tens, split.sites)
    ]
    pooled = outcomes[0]
    gaps = [((each.mean - pooled.mean).abs() / pooled.variance.sqrt()).max() for each in outcomes]
    gap = float(max(gaps))
    print(f"1, 10 and 100 clients differ by at most {gap:.1e} standard deviations")
    return {"max_prediction_gap_clients": gap}


def _merged(split: Split, first: int, last: int) -> Site:
    return replace(split, sites=split.sites[first:last]).pooled()


def cost_of_clients(data: Path, *, steps: int = 15) -> dict[str, float]:
    """Compare steps through sums with the same steps on pooled rows, interleaved."""
    figures = {}
    for clients in (10, 100, 1000):
        split = Dataset.load(LARGE, data).split(clients=clients, seed=0)
        program = program_of(split, kernel_of(split), _phase_1(steps))
        standardise = replace(program, stages=(moments.Spec(),))
        model = simulate(standardise, split.sites, secure=False).model
        ratios = []
        for _ in range(3 if clients < 1000 else 1):
            federated = _cpu_of_federated_steps(program, split, steps)
            ratios.append(federated / _cpu_of_pooled_steps(split, model, steps))
        figures[f"exact_over_pooled_cpu_{clients}"] = float(np.median(ratios))
        print(
            f"{clients:5} clients: {figures[f'exact_over_pooled_cpu_{clients}']:.2f} × pooled CPU"
        )
    return figures


def _cpu_of_federated_steps(program: Program, split: Split, steps: int) -> float:
    only = replace(program, stages=(moments.Spec(), _phase_1(steps)))
    begun: list[float] = []

    def watch(name: str, _: Any) -> None:
        if name == moments.NAME:
            begun[:] = [time.process_time()]

    simulate(only, split.sites, secure=False, watch=watch)
    return time.process_time() - begun[0]


def _cpu_of_pooled_steps(split: Split, model: Model, steps: int) -> float:
    """Run the optimiser of `exact` where all rows are in one place, by the same code."""
    site = split.pooled()
    x, y = site.table(Part.TRAINING, model)
    held_out, answers = site.table(Part.STOPPING, model)
    recipe, optimiser = _phase_1(steps), adam.init(starting_weights(model.kernel))
    start = time.process_time()
    for _ in range(steps):
        kernel = URK(model.kernel, optimiser.parameters)
        phi, pullback = kernel.features_and_pullback(x)
        spectrum = Spectrum.of(Statistics.of_features(phi, y))
        hyperparameters = refit(spectrum)
        pooled = PooledEvidence.of(spectrum, hyperparameters)
        backward = feature_gradient(
            phi,
            y,
            scatter_gradient=pooled.scatter_gradient,
            cross_gradient=pooled.cross_gradient,
        )
        gradient = pullback(backward.div_(len(x)))
        held, _ = kernel.features_and_pullback(held_out)
        (held @ spectrum.posterior_weights(hyperparameters) - answers).abs().mean()
        gradient = gradient + PENALTY / len(x) * kernel.weights.detach()
        optimiser = stepped(optimiser, gradient, recipe)
    return time.process_time() - start


def _phase_1(steps: int) -> exact.Spec:
    return exact.Spec(steps=steps, penalties=(PENALTY,))
