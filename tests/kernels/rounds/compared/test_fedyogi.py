"""A network and an adaptive server."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from kernels.ensembles.networks import outputs
from kernels.errors import ProgramError, StateError, StatisticsError
from kernels.rounds.compared import fedyogi
from kernels.rounds.shared.local_network import noise_variance_of, train_at
from kernels.rounds.site.site import Part
from tests.conformance.algorithm import AlgorithmConformance
from tests.kernels.rounds import sums
from tests.kernels.rounds.network_rows import TRAINING, missed, sites_and_model, without_rows

SPEC = fedyogi.Spec(**TRAINING, rounds=2)


class TestFedYogi(AlgorithmConformance):
    algorithm = fedyogi

    def spec(self) -> Any:
        return SPEC


def test_a_round_is_yogis_step_along_the_mean_change() -> None:
    sites, model = sites_and_model()
    state = fedyogi.initial(SPEC, model)
    theta = state.parameters
    trained = [train_at(site, model, SPEC, theta, turn=0) for site in sites]
    after = sums.after_one(fedyogi, state, [*sites, without_rows(sites[0])])
    assert after.model.networks is None
    change = torch.stack(trained).mean(0) - theta
    m, v = 0.1 * change, SPEC.adaptivity**2
    v = v - 0.01 * change**2 * torch.sign(v - change**2)
    expected = theta + SPEC.server_rate * m / (v.sqrt() + SPEC.adaptivity)
    assert torch.allclose(after.parameters, expected, atol=1e-6)
    network = SPEC.network(model)
    noise = missed(sites, model, lambda site, x: outputs(network, trained[site], x))
    total = sums.total(fedyogi, state, [*sites, without_rows(sites[0])])
    assert torch.allclose(noise_variance_of(total), noise, rtol=1e-4)


def test_the_model_has_the_network_of_the_last_round() -> None:
    sites, model = sites_and_model()
    last = sums.after_all(fedyogi, SPEC, model, sites)
    served = last.model.networks_of("fedyogi")
    assert torch.equal(served.samples, last.parameters[None])
    assert served.rows == sum(site.count(Part.TRAINING) for site in sites)
    assert not served.variance_depends_on_the_row
    x = sites[0].table(Part.TRAINING, model)[0]
    said = served.predict(x)
    assert torch.equal(said.mean, outputs(SPEC.network(model), last.parameters, x))
    assert torch.equal(said.variance, served.noise_variance.expand_as(said.mean))


def test_training_lowers_the_error() -> None:
    sites, model = sites_and_model()
    spec = replace(SPEC, rounds=4, epochs=10, server_rate=0.1)
    state, errors = fedyogi.initial(spec, model), []
    while not fedyogi.finished(state):
        x, y = sites[2].table("training", model)
        errors.append((outputs(spec.network(model), state.parameters, x) - y).square().mean())
        state = sums.after_one(fedyogi, state, sites)
    assert errors[-1] < 0.8 * errors[0]


def test_nobodys_rows_train_nothing() -> None:
    sites, model = sites_and_model()
    with pytest.raises(StatisticsError, match="no site has rows"):
        sums.after_all(fedyogi, SPEC, model, [without_rows(sites[0])])


@pytest.mark.parametrize(
    "wrong",
    [
        {"rounds": 0},
        {"server_rate": 0.0},
        {"adaptivity": 0.0},
        {"epochs": 0},
        {"learning_rate": 2.0},
    ],
)
def test_impossible_parameters_are_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(ProgramError, match=next(iter(wrong))):
        replace(SPEC, **wrong)


def test_a_state_of_another_network_is_refused() -> None:
    _, model = sites_and_model()
    with pytest.raises(StateError, match="θ"):
        replace(fedyogi.initial(SPEC, model), parameters=torch.zeros(3).double())
