"""The benchmark run: exact training in a session and in this process, averaging also with flwr."""

import os
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path

import torch

from benchmarks import predict_latency
from benchmarks.peers import require_peers, run_peer
from benchmarks.registry import Figures
from benchmarks.secure_sum.ours import quorum
from benchmarks.session.ours import (
    MEMBERS,
    dealt_here,
    draw_tables,
    program_of,
    train_here,
    train_in_session,
)
from kernels import storage
from kernels.features.urk import weight_count
from kernels.rounds.columns import moments
from kernels.rounds.kernel import exact, fedavg
from kernels.rounds.layer import linear

FLWR = Path(__file__).parent / "flwr_peer.py"
ROWS, FEW_ROWS, ROUNDS = 2000, 60, 20


def run(options: Namespace) -> Figures:
    require_peers()
    torch.set_num_threads(1)
    load = os.getloadavg()[0]
    figures = _exact(6 if options.quick else 20) | _fedavg(5 if options.quick else ROUNDS)
    figures |= predict_latency.figures(quick=options.quick)
    figures["load_before"] = load
    _print_table(figures)
    return figures


def _exact(steps: int) -> dict[str, float | bool]:
    program = program_of(moments.Spec(), exact.Spec(steps=steps, penalties=(3.0,)), linear.Spec())
    tables = draw_tables(ROWS)
    # Numbers of sums: one for the moments, two for each step. The first step is left out.
    first, last = 3, 1 + 2 * steps
    before, _ = train_here(program, dealt_here(program, tables))
    session = train_in_session(program, tables)
    after, model = train_here(program, session.sites)
    session_s = session.watched.seconds_per_sum(first, last)
    simulate_s = sum(each.seconds_per_sum(first, last) for each in (before, after)) / 2
    return {
        "parameters": weight_count(program.kernel),
        "exact_step_over_simulate": session_s / simulate_s,
        "ms_per_sum": 1e3 * session_s,
        "simulate_ms_per_sum": 1e3 * simulate_s,
        "equals_simulate": session.artifact == storage.encode(model),
        "session_start_s": session.start_s,
    }


def _fedavg(rounds: int) -> dict[str, float | bool]:
    training = fedavg.Spec(rounds=rounds, local_steps=1, validate=False)
    program = program_of(moments.Spec(), training, linear.Spec())
    length = weight_count(program.kernel)
    # Measured before and after ours, so that a change in the machine's speed affects both.
    before = _flwr(rounds, length)
    tables = draw_tables(FEW_ROWS)
    session = train_in_session(program, tables)
    after = _flwr(rounds, length)
    _, model = train_here(program, session.sites)
    ours_s = session.watched.ended - session.watched.came
    flwr_s = (before["session_s"] + after["session_s"]) / 2
    return {
        "flwr_session_over_ours": flwr_s / ours_s,
        "fedavg_session_s": ours_s,
        "fedavg_ms_per_sum": 1e3 * session.watched.seconds_per_sum(1, 1 + rounds),
        "fedavg_equals_simulate": session.artifact == storage.encode(model),
        "flwr_session_s": flwr_s,
        "flwr_start_s": (before["start_s"] + after["start_s"]) / 2,
    }


def _flwr(rounds: int, length: int) -> Mapping[str, float]:
    threshold = quorum(MEMBERS)
    arguments = {"members": MEMBERS, "rounds": rounds, "length": length, "threshold": threshold}
    return run_peer(FLWR, arguments)


def _print_table(figures: Mapping[str, float | bool]) -> None:
    for name, figure in figures.items():
        shown = str(figure) if isinstance(figure, bool) else format(figure, ".4g")
        print(f"{name:28} {shown:>10}")
