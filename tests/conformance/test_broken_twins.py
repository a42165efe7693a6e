"""Algorithms that break one promise each: the conformance class notices every one of them."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest

from kernels.rounds import registry
from kernels.rounds.algorithm import Contribution
from kernels.rounds.kernel import fedavg
from kernels.rounds.layer import linear
from kernels.rounds.site.site import Part, Site
from privacy.errors import PrivacyError
from tests.conformance.algorithm import (
    AdditiveOverRows,
    AlgorithmConformance,
    ChosenByHeldOutError,
    EqualToPooled,
)
from tests.kernels.rounds.kernel.test_fedavg import TestFedAvg as FedAvgConformance


def twin(algorithm: Any = linear, **broken: Any) -> Any:
    honest = {name: value for name, value in vars(algorithm).items() if not name.startswith("_")}
    return SimpleNamespace(**{**honest, **broken})


def _mean_instead_of_sum(state: Any, site: Site) -> Contribution:
    contribution = linear.contribute(state, site)
    rows = max(float(contribution["rows"]), 1.0)
    return {name: value if name == "rows" else value / rows for name, value in contribution.items()}


def _first_row_counts_twice(state: Any, site: Site) -> Contribution:
    contribution = linear.contribute(state, site)
    x, y = site.table(Part.TRAINING, state.model)
    if len(x) == 0:
        return contribution
    phi = state.model.urk.features(x[:1]).detach()
    return {**contribution, "cross": contribution["cross"] + (phi.mT @ y[:1]).numpy()}


def _beyond_its_bound(state: Any, site: Site) -> Contribution:
    contribution = linear.contribute(state, site)
    return {**contribution, "scatter": contribution["scatter"] * 1e6}


_CALLS = {"count": 0}


def _remembers_being_asked(state: Any, site: Site) -> Contribution:
    _CALLS["count"] += 1
    contribution = linear.contribute(state, site)
    return {**contribution, "target_squares": contribution["target_squares"] + _CALLS["count"]}


def _forgets_on_restart(state: Any, total: Any) -> Any:
    after = linear.update(state, total)
    # A number that lives in the process and not in the state.
    scale = 1.0 + 1e-3 * _CALLS["count"]
    _CALLS["count"] += 1
    statistics = after.model.statistics
    moved = replace(statistics, scatter=statistics.scatter * scale)
    return replace(after, model=replace(after.model, statistics=moved))


@dataclass(frozen=True)
class Case:
    contribute: Callable[..., Any] = linear.contribute
    update: Callable[..., Any] = linear.update
    caught_by: str = ""
    kind: type[AlgorithmConformance] = AlgorithmConformance
    error: type[Exception] = AssertionError


CASES = {
    "a mean instead of a sum is not additive": Case(
        _mean_instead_of_sum, caught_by="test_contributions_are_additive", kind=AdditiveOverRows
    ),
    "a mean instead of a sum is not the pooled layer": Case(
        _mean_instead_of_sum,
        caught_by="test_many_sites_give_what_one_site_with_all_rows_gives",
        kind=EqualToPooled,
    ),
    "a first row that counts twice depends on the order": Case(
        _first_row_counts_twice, caught_by="test_the_order_of_rows_does_not_matter"
    ),
    "a value beyond its bound": Case(
        _beyond_its_bound,
        caught_by="test_contributions_fit_their_layout_and_its_bounds",
        error=PrivacyError,
    ),
    "memory outside of the state at a site": Case(
        _remembers_being_asked, caught_by="test_contributing_changes_nothing"
    ),
    "memory outside of the state at the coordinator": Case(
        update=_forgets_on_restart,
        caught_by="test_a_restart_after_any_sum_goes_on_to_the_same_end",
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_broken_twin_is_noticed(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = twin(contribute=case.contribute, update=case.update)

    class Suspect(case.kind):
        algorithm = broken

        def spec(self) -> Any:
            return linear.Spec()

    class Honest(Suspect):
        algorithm = linear

    monkeypatch.setitem(registry.ALGORITHMS, "linear", broken)
    getattr(Honest(), case.caught_by)()
    with pytest.raises(case.error):
        getattr(Suspect(), case.caught_by)()


def _keeps_the_last(state: Any, total: Any) -> Any:
    after = fedavg.update(state, total)
    return replace(after, model=state.model) if after.done else after


def _judges_by_half(state: Any, site: Site) -> Contribution:
    contribution = fedavg.contribute(state, site)
    halved = {"held_out_errors": contribution.get("held_out_errors", 0.0) / 2}
    return {**contribution, **halved} if "held_out_rows" in contribution else contribution


def _begins_anew(spec: Any, model: Any) -> Any:
    return fedavg.initial(spec, replace(model, weights=None))


def _never_gives_up(state: Any, total: Any) -> Any:
    patient = fedavg.update(replace(state, spec=replace(state.spec, patience=0)), total)
    return replace(patient, spec=state.spec)


@pytest.mark.parametrize(
    ("broken", "caught_by"),
    [
        (
            {"update": _keeps_the_last},
            "test_the_last_theta_about_as_good_as_the_best_is_kept",
        ),
        (
            {"contribute": _judges_by_half},
            "test_the_history_has_the_error_of_every_theta_on_the_held_out_rows_of_all_sites",
        ),
        ({"initial": _begins_anew}, "test_it_goes_on_from_the_weights_that_it_is_given"),
        ({"update": _never_gives_up}, "test_it_stops_when_patience_is_over"),
    ],
)
def test_a_broken_choice_is_noticed(broken: dict[str, Any], caught_by: str) -> None:
    class Suspect(FedAvgConformance):
        algorithm = twin(fedavg, **broken)

    assert caught_by in vars(ChosenByHeldOutError)
    with pytest.raises(AssertionError):
        getattr(Suspect(), caught_by)()
