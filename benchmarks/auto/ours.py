"""What is measured of ours: the programs, and how well a finished model predicts.

This is the benchmark's only door to `kernels.rounds.automatic`. A program is run as sessions run
it, without a network; what is scored is what `/predict` serves: of real numbers the calibrated law
and the default intervals, of outcomes the recalibrated chances, laws and sets.

hospital_cpu_s: CPU seconds that one hospital spends on its contributions to all sums, their mean
over hospitals. sums, released: the secure sums, and the numbers in them.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from benchmarks.auto import scores
from benchmarks.auto.scores import LEVEL, Scored
from benchmarks.dealing import dealing_of
from benchmarks.outcomes.dataset import Count, Dataset, Real, Split, TimeToEvent, YesNo
from benchmarks.outcomes.ours import schema_of
from client_sdk.simulation import simulate
from kernels.model.prediction import Predictions, predict
from kernels.outcomes.predictions import OutcomePrediction
from kernels.rounds import automatic
from kernels.rounds.algorithm import Rehearsed
from kernels.rounds.program import Program
from kernels.rounds.site.site import Site
from kernels.scores.student_t import StudentT

MIN_SITES = 3


def candidate_names(dataset: Dataset) -> tuple[str, ...]:
    """Return the names of what the search chooses from for a set."""
    return tuple(each.name for each in automatic.candidates(schema_of(dataset)))


def automatic_run(split: Split) -> Scored:
    """Score the model of a session that states a schema and nothing else."""
    schema = schema_of(split.dataset)
    return _run(automatic.automatic_program(schema, min_sites=MIN_SITES), split)


def candidate_run(split: Split, name: str) -> Scored:
    """Score one candidate, run alone from beginning to end."""
    schema = schema_of(split.dataset)
    (own,) = (each for each in automatic.candidates(schema) if each.name == name)
    return _run(automatic.program_of_candidate(schema, own, min_sites=MIN_SITES), split)


def _run(program: Program, split: Split) -> Scored:
    dealing = dealing_of(split.seed)
    sites = [
        Site.of_table(program.schema, member, held_out=program.held_out, dealing=dealing)
        for member in split.members
    ]
    with contributions_timed() as seconds:
        done = simulate(program, sites, secure=False)
    inputs = {column.name: split.test[column.name] for column in split.dataset.inputs}
    served = predict(done.model, inputs)
    return {
        **_scored(split, served),
        "hospital_cpu_s": sum(seconds) / len(sites),
        "sums": float(done.sums),
        "released": float(done.released),
    }


@contextmanager
def contributions_timed() -> Iterator[list[float]]:
    """Note the CPU seconds of each contribution of a simulation in this process."""
    seconds: list[float] = []
    untimed = Rehearsed.contributed

    def timed(self: Rehearsed, *arguments: Any, **named: Any) -> Any:
        start = time.process_time()
        try:
            return untimed(self, *arguments, **named)
        finally:
            seconds.append(time.process_time() - start)

    Rehearsed.contributed = timed  # type: ignore[method-assign]
    try:
        yield seconds
    finally:
        Rehearsed.contributed = untimed  # type: ignore[method-assign]


def _scored(split: Split, served: Predictions) -> Scored:
    outcome, test = split.dataset.outcome, split.test
    y = test[outcome.name]
    if isinstance(outcome, Real):
        return _of_real(y, served)
    found = served.outcome(outcome.name)
    match outcome:
        case YesNo():
            own = scores.of_binary(y, found.mean.numpy())
            if found.calibration is None:
                return own
            return {**own, **scores.in_sets(y, found.sets(LEVEL).numpy())}
        case Count():
            return _of_count(y, found)
        case TimeToEvent() if found.survival is not None:
            survival = found.survival.numpy()
            return scores.of_survival(y, test[outcome.event], survival, outcome)
    raise TypeError(f"{split.dataset.name}: {outcome} is not of this benchmark")


def _of_real(y: Any, served: Predictions) -> Scored:
    law = StudentT() if served.recalibration is None else served.recalibration[0].law
    variance = served.variance[:, 0].numpy() / law.variance
    own = scores.of_real(y, scores.Real(served.mean[:, 0].numpy(), variance, law))
    kind = None if served.recalibration is not None else "gaussian"
    ends = served.interval(LEVEL, kind)
    lower, upper = ends.lower[:, 0].numpy(), ends.upper[:, 0].numpy()
    of_law = {"law_coverage_90": own.pop("coverage_90"), "law_width_90": own.pop("width_90")}
    return {**own, **scores.interval(y, lower, upper), **of_law}


def _of_count(y: Any, found: OutcomePrediction) -> Scored:
    law = found.said if found.calibration is None else found.calibration.apply(found.said)
    density = law.log_density(torch.from_numpy(y)).numpy()
    own = scores.of_count(y, found.mean.numpy(), density)
    if found.calibration is None:
        return own
    lower, upper = (np.asarray(end.numpy()) for end in found.interval(LEVEL))
    return {**own, **scores.interval(y, lower, upper)}
