"""The session benchmark: what its figures are of."""

from benchmarks.session import by_algorithm
from benchmarks.session.by_algorithm import StageCost
from kernels.rounds.registry import ALGORITHMS


def test_the_cost_of_replay_is_measured_for_every_algorithm() -> None:
    programs = by_algorithm.programs(quick=True)
    assert {own.NAME for each in programs for own, _ in each.algorithms()} == ALGORITHMS.keys()


def test_a_cost_is_shown_in_milliseconds_and_as_a_ratio() -> None:
    costs = {"linear_with_noise": StageCost(20_301, 0.2, 0.5, 0.05)}
    assert by_algorithm.figures(costs)["replay_over_contribute_linear_with_noise"] == 2.5
    shown = by_algorithm.table(costs).splitlines()[-1]
    assert shown == "| linear, with noise | 20,301 | 200 ms | 500 ms | 2.5 | 50 ms |"
