"""What a prediction costs: a student, one network, and ensembles of 6 samples a client.

A student is served as a Gaussian, so one network is too: N(f(x), σ²). Times are CPU seconds of one
call, the least of many.
"""

import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from kernels.gaussians import Gaussian
from kernels.networks import NetworkSpec, outputs, starting_parameters
from kernels.rounds.distilled import Distilled, Lesson, Method, Student
from kernels.student_network import StudentSpec

INPUTS = 13
SAMPLES = 6
CLIENTS = (1, 2, 5, 10, 20, 50)
ROWS = (1, 10, 100, 1000)
"""Of a request; ratios without rows in their name are of 10."""


def costs() -> tuple[dict[str, float], str]:
    """Return the figures, and them as a table."""
    network = NetworkSpec(inputs=INPUTS)
    figures: dict[str, float] = {}
    header = ["rows", "student", *(f"{clients} clients" for clients in CLIENTS), "looped / batched"]
    lines = [_line(header), _line(["---"] * len(header))]
    for rows in ROWS:
        x = _rows(rows)
        alone = _least(partial(_one, network, starting_parameters(network, seed=1), x))
        # The same student whoever taught it: nothing in it grows with the clients.
        student = _student()
        taught = _least(partial(student.predict, Method.PRODUCT, x))
        open_costs = {clients: _ensemble(network, x, clients) for clients in CLIENTS}
        looped, batched = open_costs[5]
        figures[f"student_over_network_time_{rows}"] = taught / alone
        figures[f"loop_over_batched_{rows}"] = looped / batched
        cells = [f"{open_costs[clients][1] / alone:.1f}" for clients in CLIENTS]
        lines.append(_line([str(rows), f"{taught / alone:.2f}", *cells, f"{looped / batched:.1f}"]))
        if rows == 10:
            for clients, (_, cost) in open_costs.items():
                figures[f"open_over_network_time_{clients}"] = cost / alone
    for name in ("student_over_network_time", "loop_over_batched"):
        figures[name] = figures[f"{name}_10"]
    return figures, "\n".join(lines)


def _rows(count: int) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(count, INPUTS, generator=generator, dtype=torch.float64)


def _student() -> Distilled:
    spec = StudentSpec(inputs=INPUTS)
    parameters = starting_parameters(spec.network, seed=1)
    return Distilled(spec, Lesson(), (Student(Method.PRODUCT, parameters),))


def _one(network: NetworkSpec, parameters: Tensor, x: Tensor) -> Gaussian:
    mean = outputs(network, parameters, x)
    return Gaussian(mean, torch.ones_like(mean))


def _ensemble(network: NetworkSpec, x: Tensor, clients: int) -> tuple[float, float]:
    """Return the cost of all samples one by one, and at once."""
    many = torch.stack([starting_parameters(network, seed=i) for i in range(SAMPLES * clients)])
    looped = _least(lambda: [outputs(network, each, x) for each in many])
    return looped, _least(partial(outputs, network, many, x))


def _least(work: Callable[[], object], *, seconds: float = 0.15) -> float:
    work()
    found, spent = float("inf"), 0.0
    while spent < seconds:
        start = time.process_time()
        work()
        work()
        took = time.process_time() - start
        found, spent = min(found, took / 2), spent + took
    return found


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
