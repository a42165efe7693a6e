"""FedBNR exact on the thesis's five sets, with 10 and 100 clients: RMSE, calibration, and its cost.

`rmse_SET_CLIENTS`, `ece_SET_CLIENTS`: test error in the thesis's units at the weights chosen by
held-out error, and the calibration error of the recalibrated predictive on the ten levels; means
over seeds, the thesis's FedBNR beside them. `exact_over_pooled_cpu_CLIENTS`: CPU seconds of the
same number of steps through sums of encoded contributions, over those on pooled rows in one place
(no client, no encoding, the same optimiser).
`max_prediction_gap_clients`: the largest difference of the test means of 1, 10 and 100 clients, in
predictive standard deviations. `coverage_90_SET_CLIENTS`: test rows inside the 90 % conformal
interval, and of the client with the fewest (rows like its own by the column that clients were cut
by; computed here, where all rows are at hand, and never sent). Cells are stored one by one: a run
that was stopped goes on, unless the code has changed.
"""

import csv
import math
import multiprocessing
import time
from argparse import Namespace
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.cells import Cells
from benchmarks.datasets import FILES, Dataset, Split
from benchmarks.registry import RESULTS, Figures
from client_sdk.simulation import simulate
from kernels.evidence import PooledEvidence, feature_gradient
from kernels.linear import Spectrum
from kernels.metrics import TEN_LEVELS
from kernels.refit import refit
from kernels.rounds import exact, linear, moments, recalibration
from kernels.rounds.model import Model, known
from kernels.rounds.prediction import Predictions, predict
from kernels.rounds.program import Program
from kernels.rounds.site import Part
from kernels.spec import KernelSpec
from kernels.statistics import Statistics
from kernels.urk import URK

ROOT = Path(__file__).parent.parent
CLIENTS = (10, 100)
REPORTED = ("rmse", "ece", "nll", "coverage_90", "coverage_90_worst_client")


def run(options: Namespace) -> Figures:
    torch.set_num_threads(1)
    seeds, steps = (2, 100) if options.quick else (10, 200)
    stem = "fedbnr.quick" if options.quick else "fedbnr"
    sources = [*ROOT.glob("kernels/**/*.py"), Path(__file__)]
    cells = Cells(RESULTS / f"{stem}.cells.json", sources)
    wanted = {
        f"{name}/{clients}/{seed}": (name, options.data, clients, seed, steps)
        for name in FILES
        for seed in range(seeds)
        for clients in CLIENTS
    }
    done = {}
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(
        2, mp_context=context, initializer=torch.set_num_threads, initargs=(1,)
    ) as pool:
        futures = {
            key: pool.submit(_measure, *cell) for key, cell in wanted.items() if key not in cells
        }
        for key in wanted:
            done[key] = cells.measure(key, lambda key=key: futures[key].result())  # type: ignore[misc]
    figures: dict[str, float] = {}
    anchors = _anchors(options.data.parent / "anchors" / "fedbnr_rmse.csv")
    print(f"\n{'set':12} {'clients':>7} {'RMSE':>8} {'thesis':>8} {'ECE':>8}  covered by 90 %")
    for name in FILES:
        for clients in CLIENTS:
            own = [done[f"{name}/{clients}/{seed}"] for seed in range(seeds)]
            mean = {of: float(np.mean([cell[of] for cell in own])) for of in REPORTED}
            figures |= {f"{of}_{name}_{clients}": value for of, value in mean.items()}
            thesis = anchors.get((name, clients), math.nan)
            print(
                f"{name:12} {clients:7} {mean['rmse']:8.3f} {thesis:8.2f} {mean['ece']:8.3f}  "
                f"{mean['coverage_90']:.3f}, {mean['coverage_90_worst_client']:.3f}"
            )
    figures |= _same_for_any_number_of_clients(options.data, steps=min(steps, 100))
    figures |= _cost(options.data)
    figures["exact_over_pooled_cpu"] = figures["exact_over_pooled_cpu_10"]
    cells.finish()
    return figures


def program_for(split: Split, *, steps: int, penalties: tuple[float, ...] = (3.0, 30.0)) -> Program:
    """Return the recipe of findings: a network of three layers, both penalties to choose from."""
    schema = split.dataset.schema
    kernel = KernelSpec(inputs=len(schema.feature_names), latent=8, seed=1)
    stages = (
        moments.Spec(),
        exact.Spec(steps=steps, penalties=penalties),
        linear.Spec(),
        recalibration.Spec(),
    )
    return Program(schema, kernel, stages, max_rows=20_000)


def _measure(name: str, data: Path, clients: int, seed: int, steps: int) -> dict[str, float]:
    split = Dataset.load(name, data).split(clients=clients, seed=seed)
    start = time.process_time()
    model = simulate(program_for(split, steps=steps), split.sites, seed, secure=False).model
    cpu_s = time.process_time() - start
    return {**_score(model, split), "cpu_s": cpu_s}


def _test(model: Model, split: Split) -> tuple[Predictions, torch.Tensor]:
    table = split.dataset.table(split.test)
    targets = torch.from_numpy(split.test[:, -1:])
    return predict(model, table), targets


def _score(model: Model, split: Split) -> dict[str, float]:
    predictions, targets = _test(model, split)
    errors = predictions.mean - targets
    gaps = []
    for level in TEN_LEVELS:
        lower, upper = predictions.student_t(level)
        inside = ((targets >= lower) & (targets <= upper)).double().mean()
        gaps.append(abs(float(inside) - level))
    lower, upper = predictions.conformal(0.9)
    covered = ((targets >= lower) & (targets <= upper))[:, 0].double().numpy()
    by_client = [covered[split.like == client].mean() for client in np.unique(split.like)]
    (law,) = (each.law for each in known(model.recalibration, "recalibration"))
    scale = (predictions.variance / law.variance).sqrt()
    nll = scale.log() - law.log_density(errors / scale)
    return {
        "rmse": float(errors.square().mean().sqrt()),
        "ece": float(np.mean(gaps)),
        "mce": float(np.max(gaps)),
        "nll": float(nll.mean()),
        "coverage_90": float(covered.mean()),
        "coverage_90_worst_client": float(min(by_client)),
        "coverage_90_median_client": float(np.median(by_client)),
    }


def _same_for_any_number_of_clients(data: Path, *, steps: int) -> dict[str, float]:
    """Deal the same rows to 1, 10 and 100 clients: the same predictions, to rounding."""
    split = Dataset.load("sml", data).split(clients=100, seed=0)
    program = program_for(split, steps=steps, penalties=(3.0,))
    tens = [_merged(split, first, first + 10) for first in range(0, 100, 10)]
    outcomes = [
        _test(simulate(program, sites, 0, secure=False).model, split)[0]
        for sites in ([split.pooled()], tens, split.sites)
    ]
    pooled = outcomes[0]
    gaps = [((each.mean - pooled.mean).abs() / pooled.variance.sqrt()).max() for each in outcomes]
    gap = float(max(gaps))
    print(f"1, 10 and 100 clients differ by at most {gap:.1e} standard deviations")
    return {"max_prediction_gap_clients": gap}


def _merged(split: Split, first: int, last: int) -> Any:
    return replace(split, sites=split.sites[first:last]).pooled()


def _cost(data: Path, *, steps: int = 15) -> dict[str, float]:
    """Compare steps through sums with the same steps on pooled rows, interleaved."""
    figures = {}
    for clients in (10, 100, 1000):
        split = Dataset.load("ccpp", data).split(clients=clients, seed=0)
        program = program_for(split, steps=steps, penalties=(3.0,))
        standardise = replace(program, stages=(moments.Spec(),))
        model = simulate(standardise, split.sites, 0, secure=False).model
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
    only = replace(program, stages=(moments.Spec(), exact.Spec(steps=steps, penalties=(3.0,))))
    begun: list[float] = []

    def watch(name: str, _: Any) -> None:
        if name == moments.NAME:
            begun[:] = [time.process_time()]

    simulate(only, split.sites, 0, secure=False, watch=watch)
    return time.process_time() - begun[0]


def _cpu_of_pooled_steps(split: Split, model: Model, steps: int) -> float:
    """Run the optimiser of `exact` where all rows are in one place, by the same code."""
    site = split.pooled()
    x, y = site.table(Part.TRAINING, model)
    held_out, answers = site.table(Part.STOPPING, model)
    state = exact.initial(exact.Spec(steps=steps, penalties=(3.0,)), model)
    start = time.process_time()
    for _ in range(steps):
        kernel = URK(model.kernel, state.model.weights)
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
        (held @ spectrum.posterior_weights(hyperparameters) - answers).square().mean()
        gradient = gradient + 3.0 / len(x) * kernel.weights.detach()
        state = exact.adam_step(state, gradient)
    return time.process_time() - start


def _anchors(path: Path) -> dict[tuple[str, int], float]:
    """Return the thesis's RMSE of FedBNR by set and number of clients, where the table is there."""
    if not path.exists():
        return {}
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    names = {"Skillcraft": "skillcraft", "SML": "sml", "Parkinsons": "parkinsons"}
    names |= {"Bike": "bike", "CCPP": "ccpp"}
    return {
        (names[row["dataset"]], int(row["clients"])): float(row["rmse"])
        for row in rows
        if row["method"] == "FedBNR" and row["clients"].isdigit()
    }
