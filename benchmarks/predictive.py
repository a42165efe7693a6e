"""Predictive-space committees on the five sets of 001: NLL and MSE beside FedBNR exact.

Five clients, homogeneous and sorted, five seeds. `nll_SET_SPLIT_METHOD`, `mse_SET_SPLIT_METHOD`: of
test rows, per row, in standardised units; students (`d_…`) beside the open committees that taught
them, FedBNR exact with its recalibrated law, and the comparison rows. β comes from the clients'
held-out rows. `student_over_teacher_nll`: the worst over sets, splits and methods of the students'
mean NLL over the teachers', where the latter is above 0.4 in size; `student_minus_teacher_nll` the
worst difference elsewhere. `fedbnr_best_or_near`: on how many sets FedBNR's NLL is the best of all,
or within a standard error of it. `teacher_gap`: the largest relative difference between summed
teachers and those of all predictions in one place. `student_over_network_time`,
`loop_over_batched`: CPU time of predicting 10 rows.

`--as-printed`: `predictive_printed`.
"""

import time
from argparse import Namespace
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks import predictive_printed
from benchmarks.cells import Cells
from benchmarks.predictive_data import FILES, SPLITS, Honest, honest
from benchmarks.registry import RESULTS, Figures
from client_sdk.simulation import simulate
from kernels.committee import Committee
from kernels.gaussians import Gaussian
from kernels.networks import NetworkSpec, outputs, starting_parameters
from kernels.records import Records
from kernels.rounds import (
    beta,
    ep_mcmc,
    exact,
    fedbe,
    fedpa,
    fedyogi,
    linear,
    moments,
    one_shot,
    predictive,
    recalibration,
)
from kernels.rounds.distilled import Method, Opinion
from kernels.rounds.model import Model, known
from kernels.rounds.prediction import predict_standardised
from kernels.rounds.predictive import bounded, predict_at, prior_at
from kernels.rounds.program import Program
from kernels.rounds.public_set import Columns, columns_of
from kernels.rounds.site import Part
from kernels.spec import KernelSpec
from kernels.student_network import StudentSpec
from kernels.student_network import predict as predict_student

ROOT = Path(__file__).parent.parent
COMMITTEES = tuple(Method)
OTHERS = ("fedpa", "ep_mcmc", "fedyogi", "fedbe", "one_shot")

Cell = dict[str, float]


def run(options: Namespace) -> Figures:
    torch.set_num_threads(1)
    if options.as_printed:
        return predictive_printed.run(options)
    seeds = 1 if options.quick else 5
    stem = "predictive.quick" if options.quick else "predictive"
    cells = Cells(RESULTS / f"{stem}.cells.json", [*ROOT.glob("kernels/**/*.py"), Path(__file__)])
    wanted = {
        f"{name}/{split}/{seed}": (name, options.data, split, seed, options.quick)
        for name in FILES
        for seed in range(seeds)
        for split in SPLITS
    }
    figures = _summary(cells.measure_all(measure, wanted), seeds)
    figures |= _costs()
    cells.finish()
    return figures


# -- one set, one split, one seed


def measure(name: str, data: Path, split: str, seed: int, quick: bool) -> Cell:
    """Return NLL and MSE of every method."""
    rows = honest(name, data, split=split, seed=seed)
    public = columns_of(rows.table(rows.public))
    spec = predictive.Spec(public=public, seed=seed, cycle_epochs=4 if quick else 8)
    stages = (moments.Spec(), spec, beta.Spec())
    model = simulate(_program(rows, *stages), rows.sites, seed, secure=False).model
    x, y = _test(rows, model)
    distilled = known(model.distilled, "predictive")
    opinion = _open(rows, model, spec, x)
    found = {f"d_{each}": distilled.predict(each, x) for each in COMMITTEES}
    found |= {each.value: opinion.teacher(each, distilled.beta) for each in COMMITTEES}
    found |= _others(rows, model, public, seed, x)
    cell = {}
    for method, prediction in found.items():
        cell[f"nll_{method}"] = float(-prediction.log_density(y).mean())
        cell[f"mse_{method}"] = float((prediction.mean - y).square().mean())
    cell |= _fedbnr(rows, seed, steps=60 if quick else 200)
    cell["beta"] = float(known(distilled.beta, "beta").mean())
    cell["teacher_gap"] = _teacher_gap(rows, model, spec)
    return cell


def _program(rows: Honest, *stages: object) -> Program:
    kernel = KernelSpec(inputs=len(rows.schema.feature_names), latent=8, seed=1)
    return Program(rows.schema, kernel, stages, max_rows=10_000)


def _test(rows: Honest, model: Model) -> tuple[Tensor, Tensor]:
    records = Records.for_training(rows.schema, rows.table(rows.test))
    standardised = known(model.standardiser, "moments").apply(records)
    return standardised.features, known(standardised.targets, "moments")


def _open(rows: Honest, model: Model, spec: predictive.Spec, x: Tensor) -> Opinion:
    """Return what all sites say at x, with every site's predictions in one place."""
    said = [bounded(predict_at(site, model, spec, x)) for site in rows.sites]
    together = Gaussian(
        torch.stack([each.mean for each in said]), torch.stack([each.variance for each in said])
    )
    counts = torch.tensor([site.count(Part.TRAINING) for site in rows.sites])
    prior = prior_at(model, spec, x)
    return Opinion(x, Committee.of(together, rows=counts, prior=prior), prior, spec.guard)


def _teacher_gap(rows: Honest, model: Model, spec: predictive.Spec) -> float:
    distilled = known(model.distilled, "predictive")
    summed = known(distilled.opinion, "predictive")
    here = _open(rows, model, spec, summed.inputs)
    gaps = []
    for method in COMMITTEES:
        one, other = (each.teacher(method, distilled.beta) for each in (summed, here))
        gaps += [(one.variance / other.variance - 1).abs().max()]
        gaps += [((one.mean - other.mean).abs() / other.variance.sqrt()).max()]
    return float(max(gaps))


def _fedbnr(rows: Honest, seed: int, *, steps: int) -> Cell:
    stages = (
        moments.Spec(),
        exact.Spec(steps=steps, penalties=(3.0, 30.0)),
        linear.Spec(),
        recalibration.Spec(),
    )
    model = simulate(_program(rows, *stages), rows.sites, seed, secure=False).model
    x, y = _test(rows, model)
    predicted = predict_standardised(model, x)
    (law,) = (each.law for each in known(model.recalibration, "recalibration"))
    deviation = predicted.variance.sqrt()
    residuals = y - predicted.mean
    nll = deviation.log() - law.log_density(residuals / deviation)
    return {"nll_fedbnr": float(nll.mean()), "mse_fedbnr": float(residuals.square().mean())}


def _others(
    rows: Honest, model: Model, public: Columns, seed: int, x: Tensor
) -> Mapping[str, Gaussian]:
    """Run each comparison row from the standardised model, and predict."""

    def ended(spec: Any) -> Any:
        program = _program(rows, moments.Spec(), spec)
        return simulate(program, rows.sites, seed, secure=False).states[1]

    found: dict[str, Gaussian] = {}
    for name, spec in {
        "fedpa": fedpa.Spec(seed=seed, epochs=8),
        "fedyogi": fedyogi.Spec(seed=seed, epochs=8),
    }.items():
        state = ended(spec)
        mean = outputs(spec.network(model), state.parameters, x)
        found[name] = Gaussian(mean, state.noise_variance.expand_as(mean))
    taught: dict[str, fedbe.Spec | one_shot.Spec] = {
        "fedbe": fedbe.Spec(seed=seed, epochs=40, public=public),
        "one_shot": one_shot.Spec(seed=seed, epochs=40, public=public),
    }
    for name, learned in taught.items():
        found[name] = predict_student(learned.student(model), ended(learned).student, x)
    sampled = ep_mcmc.Spec(seed=seed)
    state = ended(sampled)
    drawn = ep_mcmc.drawn(state, 20, generator=torch.Generator().manual_seed(seed))
    each = outputs(sampled.network(model), drawn, x)
    found["ep_mcmc"] = Gaussian(each.mean(0), each.var(0) + state.noise_variance)
    return found


# -- all of them


def _summary(done: Mapping[str, Cell], seeds: int) -> dict[str, float]:
    figures: dict[str, float] = {}
    methods = ("fedbnr", *COMMITTEES, *(f"d_{each}" for each in COMMITTEES), *OTHERS)
    over, minus, near = [], [], []
    for name in FILES:
        print(f"\n{name:10}" + "".join(f"{split:>26}" for split in SPLITS) + "   (NLL ± se, MSE)")
        own = {split: [done[f"{name}/{split}/{seed}"] for seed in range(seeds)] for split in SPLITS}
        nll: dict[tuple[str, str], list[float]] = {}
        for method in methods:
            line = f"{method:10}"
            for split in SPLITS:
                values = nll[split, method] = [cell[f"nll_{method}"] for cell in own[split]]
                mse = float(np.mean([cell[f"mse_{method}"] for cell in own[split]]))
                figures[f"nll_{name}_{split}_{method}"] = float(np.mean(values))
                figures[f"mse_{name}_{split}_{method}"] = mse
                line += f"{np.mean(values):12.3f} ± {_error(values):.3f} {mse:6.3f}"
            print(line)
        for split in SPLITS:
            for method in COMMITTEES:
                taught = float(np.mean(nll[split, f"d_{method}"]))
                teacher = float(np.mean(nll[split, method.value]))
                if abs(teacher) > 0.4:
                    over.append(1 + (taught - teacher) / abs(teacher))
                else:
                    minus.append(taught - teacher)
            means = {method: np.mean(nll[split, method]) for method in methods}
            best = min(means, key=means.__getitem__)
            allowed = means[best] + _error(nll[split, best])
            near.append((name, split, bool(means["fedbnr"] <= allowed)))
    figures["student_over_teacher_nll"] = max(over)
    figures["student_minus_teacher_nll"] = max(minus, default=0.0)
    for split in SPLITS:
        figures[f"fedbnr_best_or_near_{split}"] = sum(is_so for _, s, is_so in near if s == split)
    figures["fedbnr_best_or_near"] = min(figures[f"fedbnr_best_or_near_{s}"] for s in SPLITS)
    figures["teacher_gap"] = max(cell["teacher_gap"] for cell in done.values())
    return figures


def _error(values: list[float]) -> float:
    return float(np.std(values, ddof=1) / len(values) ** 0.5) if len(values) > 1 else 0.0


def _costs() -> dict[str, float]:
    """Time predicting 10 rows: the student, one network, and ensembles of 6 samples a client."""
    x = torch.randn(10, 13, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    network, student = NetworkSpec(inputs=13), StudentSpec(inputs=13)
    one = starting_parameters(network, seed=1)
    taught = starting_parameters(student.network, seed=1)
    alone = _cpu(lambda: outputs(network, one, x))
    figures = {
        "student_over_network_time": _cpu(lambda: outputs(student.network, taught, x)) / alone
    }
    print("\nclients   open ensemble of 6 samples each, over one network; looped over batched")
    for clients in (1, 2, 5, 10, 20):
        many = torch.stack([starting_parameters(network, seed=i) for i in range(6 * clients)])
        batched = _cpu(partial(outputs, network, many, x))
        looped = _cpu(partial(_looped, network, many, x))
        figures[f"open_over_network_time_{clients}"] = batched / alone
        if clients == 5:
            figures["loop_over_batched"] = looped / batched
        print(f"{clients:7} {batched / alone:15.1f} {looped / batched:15.1f}")
    return figures


def _looped(network: NetworkSpec, many: Tensor, x: Tensor) -> list[Tensor]:
    return [outputs(network, each, x) for each in many]


def _cpu(work: Callable[[], object], *, times: int = 200) -> float:
    """Return CPU seconds of one call: the median of five runs of many."""
    runs = []
    for _ in range(5):
        start = time.process_time()
        for _ in range(times):
            work()
        runs.append((time.process_time() - start) / times)
    return float(np.median(runs))
