"""What a prediction costs: a student, one network, and ensembles of 6 samples a client.

A student is served as a Gaussian, so one network is too: N(f(x), σ²). Times are CPU seconds of one
call, the least of many.
"""

import time
from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor

from kernels.ensembles.committee import Committee, Guard
from kernels.ensembles.distilled import Distilled, Lesson, Method, Opinion
from kernels.ensembles.network_stack import NetworkStack
from kernels.ensembles.networks import NetworkSpec, outputs, starting_parameters
from kernels.ensembles.student_network import StudentSpec
from kernels.scores.gaussians import Gaussian

INPUTS = 13
SAMPLES = 6
CLIENTS = (1, 2, 5, 10, 20)
TAUGHT_BY = (2, 5, 20)
A_FEW = 10
ROWS = (1, A_FEW, 100, 1000)
"""Of a request; ratios without rows in their name are of a few."""


def costs(*, asked: tuple[int, ...] = ROWS, seconds: float = 0.15) -> tuple[dict[str, float], str]:
    """Return the figures, and them as a table.

    asked: rows of a request. seconds: of CPU for each measurement.
    """
    network = NetworkSpec(inputs=INPUTS)
    everyone = torch.stack(
        [starting_parameters(network, seed=i) for i in range(SAMPLES * max(CLIENTS))]
    )
    samples = {c: NetworkStack(network, everyone[: SAMPLES * c]) for c in CLIENTS}
    students = {clients: _student(samples[clients]) for clients in TAUGHT_BY}
    figures: dict[str, float] = {}
    header = ["rows", *(f"student of {clients}" for clients in TAUGHT_BY)]
    header += [*(f"open, {clients}" for clients in CLIENTS), "looped / batched, 5"]
    lines = [header, ["---"] * len(header)]
    for rows in asked:
        x = _rows(rows)
        work: dict[str, Callable[[], object]] = {"one": partial(_one, network, everyone[0], x)}
        for clients, student in students.items():
            work[f"student {clients}"] = partial(student.predict, Method.MIXTURE, x)
        for clients, many in samples.items():
            work[f"open {clients}"] = partial(many.outputs, x)
        work["looped"] = partial(_looped, samples[5], x)
        cost = _least(work, seconds=seconds)
        taught = [cost[f"student {clients}"] / cost["one"] for clients in TAUGHT_BY]
        together = {clients: cost[f"open {clients}"] / cost["one"] for clients in CLIENTS}
        looped = cost["looped"] / cost["one"]
        figures[f"student_over_network_time_{rows}"] = max(taught)
        figures[f"loop_over_batched_{rows}"] = looped / together[5]
        lines.append(
            [
                str(rows),
                *(f"{each:.2f}" for each in taught),
                *(f"{each:.1f}" for each in together.values()),
                f"{looped / together[5]:.1f}",
            ]
        )
        if rows == A_FEW:
            figures["student_over_network_time"] = max(taught)
            figures["loop_over_batched"] = looped / together[5]
            figures |= {f"open_over_network_time_{c}": cost for c, cost in together.items()}
    return figures, "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _rows(count: int) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(count, INPUTS, generator=generator, dtype=torch.float64)


def _student(samples: NetworkStack) -> Distilled:
    """Return what clients of these samples have taught, in one epoch: more make it no slower."""
    x = _rows(100)
    said = samples.outputs(x).reshape(-1, SAMPLES, len(x), 1)
    prior = Gaussian(torch.zeros_like(said[0, 0]), torch.full_like(said[0, 0], 4.0))
    committee = Committee.of(
        Gaussian(said.mean(1), 1 + said.var(1)),
        rows=torch.full((len(said),), 100),
        prior=prior,
    )
    opinion = Opinion(x, committee, prior, Guard.PRIOR)
    empty = Distilled(StudentSpec(inputs=INPUTS), Lesson(epochs=1), (), opinion=opinion)
    return empty.taught([Method.MIXTURE])


def _one(network: NetworkSpec, parameters: Tensor, x: Tensor) -> Gaussian:
    mean = outputs(network, parameters, x)
    return Gaussian(mean, torch.ones_like(mean))


def _looped(many: NetworkStack, x: Tensor) -> list[Tensor]:
    return [outputs(many.spec, each, x) for each in many.parameters]


def _least(work: Mapping[str, Callable[[], object]], *, seconds: float) -> dict[str, float]:
    """Return the least time of each, in turns, so that a noisy moment is everyone's."""
    found, spent = dict.fromkeys(work, float("inf")), 0.0
    while spent < seconds * len(work):
        for name, call in work.items():
            call()  # what the one before left in the caches is not its own
            start = time.process_time()
            call()
            took = time.process_time() - start
            found[name], spent = min(found[name], took), spent + took
    return found
