"""What the rows that are programs of `kernels.rounds` share: all but their phase 1.

Each goes on with the global linear layer and recalibration. The program runs as it would in a
session; a `Trail` beside it notes the test error that no party of a session could see.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from benchmarks.datasets import Split
from benchmarks.fedbnr.protocol import Column, Tables
from benchmarks.fedbnr.scoring import Belief, scored
from client_sdk.simulation import simulate
from kernels.features.spec import KernelSpec
from kernels.layer.posterior import Hyperparameters
from kernels.model.model import Model, known
from kernels.model.prediction import predict, predict_standardised
from kernels.rounds.columns import moments
from kernels.rounds.judging import recalibration
from kernels.rounds.layer import linear
from kernels.rounds.program import Program
from kernels.rounds.registry import ALGORITHMS, algorithm_of
from kernels.rounds.shared.pooled import posterior_weights
from kernels.rounds.shared.sufficient import statistics_blocks
from kernels.rounds.site.site import Site
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
    """Return w̄ where the state has just been given the sums that it follows from."""
    return None if state.pooled is None else posterior_weights(state.pooled, state.model)


def program_of(split: Split, kernel: KernelSpec, phase_1: Any) -> Program:
    """Return moments, a phase 1, the linear layer and recalibration."""
    # Of the few rows that FedBNR-KD leaves for it, a scale can still be told.
    stages = (moments.Spec(), phase_1, linear.Spec(), recalibration.Spec(min_rows=30))
    return Program(split.dataset.schema, kernel, stages, max_rows=20_000)


def follow_program(
    program: Program, split: Split, sites: tuple[Site, ...], column: Column
) -> tuple[dict[str, Any], Trail]:
    """Run a program over a split's sites; return its scores, and where it came along."""
    tables = Tables.of(split)
    trail = Trail(algorithm_of(program.stages[1]).NAME, tables)
    model = simulate(program, sites, secure=False, watch=trail).model
    found: dict[str, Any] = {
        **score_model(model, tables),
        **coverage(model, split),
        "rmse_min": min(trail.errors),
        "rounds": float(len(trail.errors)),
    }
    if column.seed == 0:  # that of the picture
        found["curve"] = trail.curve()
    return found, trail


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


def coverage(model: Model, split: Split) -> dict[str, float]:
    """Return the share of test rows in their 90 % conformal interval: all, and by client."""
    lower, upper = predict(model, split.dataset.table(split.test)).conformal(0.9)
    answers = split.test[:, -1]
    covered = (answers >= lower[:, 0].numpy()) & (answers <= upper[:, 0].numpy())
    by_client = [covered[split.like == client].mean() for client in np.unique(split.like)]
    return {
        "coverage_90": float(covered.mean()),
        "coverage_90_worst_client": float(min(by_client)),
    }
