"""The rows that are programs of `kernels.rounds`: FedBNR by the three ways of phase 1.

    FedBNR exact   the gradient of the pooled evidence (`exact`)
    FedBNR         federated averaging (`fedavg`); from the same training avg+local, where each
                   client has a linear layer of its own rows alone
    FedBNR-KD      distillation on public rows, 8 % of all (`distillation`); and kd+local likewise

Each goes on with the global linear layer and recalibration. The program runs as it would in a
session; a `Trail` beside it notes the test error that no party of a session could see.
"""

from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from torch import Tensor

from benchmarks.datasets import Split
from benchmarks.fedbnr.protocol import Column, Predictor, Tables, follow
from benchmarks.fedbnr.recipes import (
    averaging_of,
    distillation_of,
    exact_kernel,
    exact_of,
    local_kernel,
)
from benchmarks.fedbnr.scoring import Belief, Scored, scored
from client_sdk.simulation import simulate
from kernels.linear import Hyperparameters, Posterior
from kernels.rounds import distillation, exact, fedavg, linear, moments, recalibration
from kernels.rounds.model import Model, known
from kernels.rounds.prediction import predict, predict_standardised
from kernels.rounds.program import Program
from kernels.rounds.public_set import columns_of
from kernels.rounds.registry import ALGORITHMS
from kernels.rounds.site import Site
from kernels.rounds.sufficient import statistics_blocks
from kernels.spec import KernelSpec
from kernels.statistics import Statistics
from kernels.urk import URK
from privacy.layout import Layout

BYTES = 8
"""Of one number in a secure sum."""


@dataclass(eq=False)
class Trail:
    """What phase 1 has led to after each judged model.

    errors: test RMSE in units. sums: how many there have been. sent: bytes of one client so far.
    models: θ, and the σ and λ that training goes on from (None for `exact`).
    """

    phase: str
    tables: Tables
    errors: list[float] = field(default_factory=list)
    sums: list[int] = field(default_factory=list)
    sent: list[int] = field(default_factory=list)
    models: list[tuple[Tensor, Hyperparameters | None]] = field(default_factory=list)
    _sums: int = 0
    _sent: int = 0
    _length: int | None = None

    def __call__(self, name: str, state: Any) -> None:
        """Note the state after a sum."""
        if name != self.phase:
            return
        model: Model = state.model
        # Phase 1 begins by a sum of statistics, before any of its states can be seen.
        length = self._length or Layout(statistics_blocks(model)).length
        self._sums, self._sent = self._sums + 1, self._sent + BYTES * length
        algorithm = ALGORITHMS[name]
        self._length = None if algorithm.finished(state) else algorithm.layout(state).length
        weights = _posterior_weights(state)
        if weights is None:
            return
        test, scale = self.tables.test, self.tables.scale
        ((_, features),) = model.urk.features_in_chunks(test.x, chunk_rows=len(test.x))
        errors = (features @ weights - test.y).square().mean().sqrt() * scale
        self.errors.append(float(errors))
        self.sums.append(self._sums)
        self.sent.append(self._sent)
        self.models.append((known(model.weights, name), getattr(state, "scales", None)))

    def curve(self) -> dict[str, list[float]]:
        """Return errors with what they cost, for a picture."""
        errors = [float(f"{error:.4g}") for error in self.errors]
        return {"rmse": errors, "sums": list(self.sums), "sent": list(self.sent)}


def _posterior_weights(state: Any) -> Tensor | None:
    """Return w̄ where the state has just been given it."""
    if isinstance(state, exact.State):
        return None if state.pooled is None else state.pooled.posterior_weights
    weights: Tensor | None = state.posterior_weights
    return weights


def program_of(split: Split, kernel: KernelSpec, phase_1: Any) -> Program:
    """Return moments, a phase 1, the linear layer and recalibration."""
    # Of the few rows that FedBNR-KD leaves for it, a scale can still be told.
    stages = (moments.Spec(), phase_1, linear.Spec(), recalibration.Spec(min_rows=30))
    return Program(split.dataset.schema, kernel, stages, max_rows=20_000)


def measure_exact(split: Split, column: Column, *, most_steps: int) -> dict[str, Scored]:
    """Measure FedBNR exact."""
    program = program_of(
        split, exact_kernel(split), exact_of(column.dataset, most_steps=most_steps)
    )
    return {"FedBNR exact": _run(program, split, split.sites, exact.NAME, column)[0]}


def measure_central(split: Split, column: Column, *, most_steps: int) -> dict[str, Scored]:
    """Measure the same program where one site holds all rows."""
    program = program_of(
        split, exact_kernel(split), exact_of(column.dataset, most_steps=most_steps)
    )
    return {"Central URK": _run(program, split, (split.pooled(),), exact.NAME, column)[0]}


def measure_averaging(split: Split, column: Column, *, with_local: bool) -> dict[str, Scored]:
    """Measure FedBNR, and avg+local from the same kernels."""
    spec = averaging_of(column.clients)
    return _measure_both(split, column, spec, fedavg.NAME, ("FedBNR", "avg+local"), with_local)


def measure_distillation(split: Split, column: Column, *, with_local: bool) -> dict[str, Scored]:
    """Measure FedBNR-KD, and kd+local from the same kernels."""
    public = columns_of(split.dataset.table(split.public))
    spec = distillation_of(column.clients, public)
    names = ("FedBNR-KD", "kd+local")
    return _measure_both(split, column, spec, distillation.NAME, names, with_local)


def _measure_both(
    split: Split, column: Column, spec: Any, phase: str, names: tuple[str, str], with_local: bool
) -> dict[str, Scored]:
    kernel = local_kernel(len(split.dataset.schema.feature_names))
    found, trail = _run(program_of(split, kernel, spec), split, split.sites, phase, column)
    if not with_local:
        return {names[0]: found}
    rounds = (
        local_layers(URK(kernel, weights), known(scales, phase), trail.tables)
        for weights, scales in trail.models
    )
    return {names[0]: found, names[1]: follow(rounds, trail.tables)}


def _run(
    program: Program, split: Split, sites: tuple[Site, ...], phase: str, column: Column
) -> tuple[dict[str, Any], Trail]:
    tables = Tables.of(split)
    trail = Trail(phase, tables)
    model = simulate(program, sites, column.seed, secure=False, watch=trail).model
    found: dict[str, Any] = {
        **score_model(model, tables),
        **_coverage(model, split),
        "rmse_min": min(trail.errors),
        "rounds": float(len(trail.errors)),
    }
    return found | {"curve": trail.curve()}, trail


def score_model(model: Model, tables: Tables) -> dict[str, float]:
    """Score the recalibrated prediction of the test rows; ece_gaussian is that of N(μ, v)."""
    predicted = predict_standardised(model, tables.test.x)
    (law,) = (each.law for each in known(model.recalibration, recalibration.NAME))
    own = scored(Belief(predicted.mean, predicted.variance), tables.test.y, scale=tables.scale)
    judged = Belief(predicted.mean, predicted.variance, law)
    return {
        **scored(judged, tables.test.y, scale=tables.scale),
        "ece_gaussian": own["ece"],
        "nll_gaussian": own["nll"],
    }


def _coverage(model: Model, split: Split) -> dict[str, float]:
    """Return the share of test rows in their 90 % conformal interval: all, and by client."""
    lower, upper = predict(model, split.dataset.table(split.test)).conformal(0.9)
    answers = split.test[:, -1]
    covered = (answers >= lower[:, 0].numpy()) & (answers <= upper[:, 0].numpy())
    by_client = [covered[split.like == client].mean() for client in np.unique(split.like)]
    return {
        "coverage_90": float(covered.mean()),
        "coverage_90_worst_client": float(min(by_client)),
    }


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
