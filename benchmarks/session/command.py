"""The benchmark run: exact training in a session and in this process, averaging also with flwr."""

import os
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path

import torch

from benchmarks import predict_latency
from benchmarks.peers import require_peers, run_peer
from benchmarks.registry import RESULTS, Figures
from benchmarks.secure_sum.ours import quorum
from benchmarks.session import by_algorithm
from benchmarks.session.ours import (
    MEMBERS,
    dealt_here,
    draw_tables,
    program_of,
    train_here,
    train_in_session,
)
from client_sdk.gate.policy import Policy
from kernels import storage
from kernels.features.urk import weight_count
from kernels.rounds.columns import moments
from kernels.rounds.kernel import exact, fedavg
from kernels.rounds.layer import linear

FLWR = Path(__file__).parent / "flwr_peer.py"
ROWS, FEW_ROWS, ROUNDS = 2000, 60, 20
SESSIONS = 3
PLAIN_STEP_OVER_SIMULATE = 2.63
"""`exact_step_over_simulate` of the last commit with protocol version 1: no tags, no replay."""


def run(options: Namespace) -> Figures:
    require_peers()
    torch.set_num_threads(1)
    load = os.getloadavg()[0]
    quick: bool = options.quick
    figures = _exact(6, sessions=1) if quick else _exact(20, sessions=SESSIONS)
    figures |= _fedavg(5, sessions=1) if quick else _fedavg(ROUNDS, sessions=2)
    costs = by_algorithm.measure(quick=quick)
    figures |= by_algorithm.figures(costs)
    figures |= predict_latency.figures(quick=quick)
    figures["load_before"] = load
    _print_table(figures)
    shown = by_algorithm.table(costs)
    print(shown)
    (RESULTS / f"session{'.quick' if quick else ''}.md").write_text(shown)
    return figures


def _exact(steps: int, *, sessions: int) -> dict[str, float | bool]:
    program = program_of(moments.Spec(), exact.Spec(steps=steps, penalties=(3.0,)), linear.Spec())
    tables = draw_tables(ROWS)
    # Numbers of sums: one for the moments, two for each step. The first step is left out.
    first, last = 3, 1 + 2 * steps
    before, _ = train_here(program, dealt_here(program, tables))
    here, equal = [before.seconds_per_sum(first, last)], True
    seconds: dict[str, list[float]] = {"open": [], "blind": []}
    cpu: dict[str, list[float]] = {"open": [], "blind": []}
    start_s = []
    for _ in range(sessions):
        for sums in seconds:
            session = train_in_session(program, tables, sums=sums)
            after, model = train_here(program, session.sites)
            seconds[sums].append(session.watched.seconds_per_sum(first, last))
            cpu[sums].append(session.watched.cpu_per_sum(first, last))
            here.append(after.seconds_per_sum(first, last))
            start_s.append(session.start_s)
            equal &= session.artifact == storage.encode(model)
    waiting = train_in_session(program, tables, least_answer_s=Policy().least_answer_s)
    with_wait_s = waiting.watched.seconds_per_sum(first, last)
    session_s, blind_s = seconds["open"], seconds["blind"]
    ratio = min(session_s) / min(here)
    around = zip(session_s, here[::2], here[1::2], strict=False)
    each = [own / ((a + b) / 2) for own, a, b in around]
    return {
        "parameters": weight_count(program.kernel),
        "exact_step_over_simulate": ratio,
        "exact_step_over_simulate_worst": max(each),
        "verified_over_plain": ratio / PLAIN_STEP_OVER_SIMULATE,
        "blind_over_open": min(blind_s) / min(session_s),
        "coordinator_cpu_blind_over_open": min(cpu["blind"]) / min(cpu["open"]),
        "coordinator_cpu_ms_per_sum_open": 1e3 * min(cpu["open"]),
        "coordinator_cpu_ms_per_sum_blind": 1e3 * min(cpu["blind"]),
        "ms_per_sum": 1e3 * min(session_s),
        "ms_per_sum_blind": 1e3 * min(blind_s),
        "simulate_ms_per_sum": 1e3 * min(here),
        "ms_per_sum_with_wait": 1e3 * with_wait_s,
        "with_wait_over_without": with_wait_s / min(blind_s),
        "equals_simulate": equal,
        "session_start_s": min(start_s),
    }


def _fedavg(rounds: int, *, sessions: int) -> dict[str, float | bool]:
    training = fedavg.Spec(rounds=rounds, local_steps=1, validate=False)
    program = program_of(moments.Spec(), training, linear.Spec())
    length = weight_count(program.kernel)
    tables = draw_tables(FEW_ROWS)
    # Measured before and after ours, so that a change in the machine's speed affects both.
    theirs, ours, equal = [_flwr(rounds, length)], [], True
    for _ in range(sessions):
        session = train_in_session(program, tables)
        theirs.append(_flwr(rounds, length))
        _, model = train_here(program, session.sites)
        ours.append(session.watched)
        equal &= session.artifact == storage.encode(model)
    ours_s = min(each.ended - each.came for each in ours)
    flwr_s = min(each["session_s"] for each in theirs)
    return {
        "flwr_session_over_ours": flwr_s / ours_s,
        "fedavg_session_s": ours_s,
        "fedavg_ms_per_sum": 1e3 * min(each.seconds_per_sum(1, 1 + rounds) for each in ours),
        "fedavg_equals_simulate": equal,
        "flwr_session_s": flwr_s,
        "flwr_start_s": min(each["start_s"] for each in theirs),
    }


def _flwr(rounds: int, length: int) -> Mapping[str, float]:
    threshold = quorum(MEMBERS)
    arguments = {"members": MEMBERS, "rounds": rounds, "length": length, "threshold": threshold}
    return run_peer(FLWR, arguments)


def _print_table(figures: Mapping[str, float | bool]) -> None:
    for name, figure in figures.items():
        shown = str(figure) if isinstance(figure, bool) else format(figure, ".4g")
        print(f"{name:28} {shown:>10}")
