"""A21: samples of one hospital's own model reveal who was in its table, and no sum hides them.

So they are sent only if the hospital's own policy allows it, only for a sum that a quorum has
certified, and never in a session with differential privacy.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from client_sdk.errors import RunFailed, WrongRun, WrongSum
from client_sdk.gate.policy import Policy
from client_sdk.network.exchange import Call, Lost, Reply
from kernels.ensembles.distilled import Method
from kernels.ensembles.local_posterior import LocalPosterior
from kernels.errors import NotPrivate
from kernels.model.noise_plan import NoisePlan
from kernels.rounds.columns import moments
from kernels.rounds.ensemble import predictive
from kernels.rounds.ensemble.open_ensemble import OpenEnsemble, OpenSamples, samples_of
from kernels.rounds.site.site import Part
from kernels.scores.gaussians import Gaussian
from privacy.securesum.coordinator import Coordinator as Sums
from tests.client_sdk.coordinator import SmallCoordinator
from tests.client_sdk.hospitals import Hospital, drive, permissive
from tests.dealing import home_keys
from tests.kernels.rounds import sums, tables
from tests.kernels.rounds.ensemble.test_open_ensemble import PROGRAM as OPENED
from tests.kernels.rounds.ensemble.test_open_ensemble import finished, rows
from tests.kernels.rounds.ensemble.test_predictive import SPEC
from tests.service.programs import PRIVATE

NAMES = ("A", "B", "C")
PROGRAM = tables.program(replace(SPEC, open=True))


def test_whoever_has_the_samples_tells_patients_from_strangers() -> None:
    """The likelihood alone suffices, without knowledge of the others: so consent is required."""
    site, strangers = tables.site(40, seed=1), tables.site(400, seed=16, held_out=0.0)
    model = sums.after_all(
        moments, moments.Spec(), tables.program().start(), [site, strangers]
    ).model
    spec = replace(SPEC, open=True, hidden=(100, 100), cycles=5, cycle_epochs=40)
    shown = samples_of(predictive.State(model, spec), site)
    assert shown is not None
    posterior = LocalPosterior(spec.network(model), shown.samples, shown.noise_variance)

    def likelihoods(of: object) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        x, y = of.table(Part.TRAINING, model)
        said = posterior.predict(x)
        found = Gaussian(said.mean, said.variance).log_density(y).sum(1)
        return np.asarray(found.numpy())

    patients, others = likelihoods(site), likelihoods(strangers)
    auc = float((patients[:, None] > others[None, :]).mean())
    assert auc > 0.65, "a coin is 0.5"


@pytest.fixture
def hospitals(tmp_path: Path) -> tuple[SmallCoordinator, list[Hospital]]:
    coordinator = SmallCoordinator(PROGRAM, NAMES)
    keys = home_keys(tmp_path, NAMES)
    coordinator.members.update(keys)
    coordinator.start()
    return coordinator, [
        Hospital(coordinator.link(i), tmp_path / name, table, permissive(PROGRAM), roster=keys)
        for i, (name, table) in enumerate(zip(NAMES, tables.tables(3), strict=True))
    ]


def test_a_coordinator_that_asks_gets_none_without_the_hospitals_own_line(
    hospitals: tuple[SmallCoordinator, list[Hospital]],
) -> None:
    coordinator, members = hospitals
    methods: set[str] = set()

    def network(_: int, call: Call) -> Reply | Lost:
        methods.add(call.method)
        return coordinator.answer(call)

    drive(members, coordinator, network)
    assert [hospital.error for hospital in members] == [None] * 3
    assert methods == {"GET", "POST"}
    assert not coordinator.samples


def test_a_run_that_is_said_to_be_done_before_its_sum_was_certified_gets_none(
    hospitals: tuple[SmallCoordinator, list[Hospital]],
) -> None:
    """For example if only the victim got this broadcast: no quorum would have signed it."""
    coordinator, members = hospitals
    for hospital in members:
        hospital.policy = replace(hospital.policy, open_ensemble=True)

    def network(_: int, call: Call) -> Reply | Lost:
        reply = coordinator.answer(call)
        if coordinator.stage == 1 and len(coordinator.sums.slot.uploaded) == 3:
            done = {"status": "done", "code": None, "detail": None}
            coordinator.outcome = {**done, "model": coordinator.model_id}
        return reply

    drive(members, coordinator, network)
    assert all(isinstance(hospital.error, WrongSum) for hospital in members)
    assert not coordinator.samples


def test_a_run_that_is_said_to_have_failed_is_not_entered_again(
    hospitals: tuple[SmallCoordinator, list[Hospital]],
) -> None:
    coordinator, members = hospitals
    for hospital in members:
        hospital.policy = replace(hospital.policy, open_ensemble=True)

    def network(i: int, call: Call) -> Reply | Lost:
        reply = coordinator.answer(call)
        if coordinator.sums.epoch is not None and coordinator.outcome is None:
            failed = {"status": "failed", "code": "run.deadline", "detail": "", "model": None}
            coordinator.outcome = failed
        return reply

    drive(members, coordinator, network)
    assert all(isinstance(hospital.error, RunFailed) for hospital in members)
    run, terms = coordinator.run, coordinator.terms
    assert run is not None
    assert terms is not None
    coordinator.start()
    coordinator.run = run
    coordinator.sums = Sums(terms, run=run.bytes, number=1, roster=coordinator.roster)
    for hospital in members:
        hospital.error = None

    drive(members, coordinator)
    assert all(isinstance(hospital.error, WrongRun) for hospital in members)
    assert not coordinator.samples


def test_before_and_after_a_withdrawal_a_caller_has_the_variance_of_one_hospital() -> None:
    """So serving variances is decided by each member, not by the total number of rows."""
    _, model, shown = finished()
    x = rows()

    def precision(*members: OpenSamples) -> torch.Tensor:
        said = OpenEnsemble.of(model, OPENED, members).predict(Method.PRODUCT, x)
        return 1 / said.variance

    prior = 1 / SPEC.prior_variance
    own = precision(shown[0])
    difference = precision(*shown) - precision(*shown[1:]) + prior
    torch.testing.assert_close(difference, own, rtol=1e-6, atol=0)
    assert OpenEnsemble.of(model, OPENED, shown).least_rows == min(each.rows for each in shown)


def test_a_session_with_differential_privacy_cannot_ask() -> None:
    stages = (moments.Spec(), replace(SPEC, open=True))
    with pytest.raises(NotPrivate):
        replace(PRIVATE, stages=stages, privacy=NoisePlan(multipliers=(1.0, 1.0)))


def test_no_policy_says_yes_by_default() -> None:
    assert not Policy().open_ensemble
    assert not permissive(PROGRAM).open_ensemble
