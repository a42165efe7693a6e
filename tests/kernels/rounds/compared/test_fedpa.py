"""Posterior averaging of a network."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.ensembles.networks import outputs
from kernels.errors import ProgramError, StatisticsError
from kernels.rounds.compared import fedpa
from kernels.rounds.compared.fedpa import iasg_samples, shrunk_share, whitened
from kernels.rounds.shared.local_network import draws_of, iterates, ordered_rows
from kernels.rounds.site.site import Part
from tests.conformance.algorithm import AlgorithmConformance
from tests.kernels.rounds import sums
from tests.kernels.rounds.network_rows import TRAINING, missed, sites_and_model, without_rows

SPEC = fedpa.Spec(**TRAINING, rounds=2, samples=3)


class TestFedPA(AlgorithmConformance):
    algorithm = fedpa

    def spec(self) -> Any:
        return SPEC


@settings(max_examples=25)
@given(
    samples=st.integers(1, 6),
    parameters=st.integers(1, 9),
    shrinkage=st.sampled_from([0.0, 0.4, 1.0]),
    seed=st.integers(0, 100),
)
def test_whitening_is_the_dense_inverse_of_the_shrunk_covariance(
    samples: int, parameters: int, shrinkage: float, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(samples, parameters, generator=generator, dtype=torch.float64)
    difference = torch.randn(parameters, generator=generator, dtype=torch.float64)
    share = 1 / (1 + (samples - 1) * shrinkage)
    identity = torch.eye(parameters).double()
    centred = drawn - drawn.mean(0)
    spread = centred.mT @ centred / max(samples - 1, 1)
    expected = torch.linalg.solve(share * identity + (1 - share) * spread, difference)
    found = whitened(drawn, difference, shrinkage=shrinkage)
    assert torch.allclose(found, expected)
    assert found.abs().max() <= difference.norm() / shrunk_share(samples, shrinkage) + 1e-12


def test_samples_are_means_of_windows_of_the_iterates_after_burn_in() -> None:
    sites, model = sites_and_model()
    state = fedpa.initial(replace(SPEC, burn_in=0.3), model)
    table = ordered_rows(sites[1], Part.TRAINING, model)
    generator = draws_of(sites[1], seed=0, turn=0)
    network = SPEC.network(model)
    chain = torch.stack(list(iterates(network, state.parameters, table, SPEC, generator)))
    assert len(chain) == 3 * 3 or len(chain) == 3 * 4
    rest = chain[int(0.3 * len(chain)) :]
    found = iasg_samples(state, sites[1])
    assert len(found) == 3
    sizes = [sum(i * 3 // len(rest) == w for i in range(len(rest))) for w in range(3)]
    expected = torch.stack([window.mean(0) for window in rest.split(sizes)])
    assert torch.allclose(found, expected)


def test_a_round_is_a_step_down_the_mean_of_the_sites_gradients() -> None:
    sites, model = sites_and_model()
    state = fedpa.initial(replace(SPEC, momentum=0.5), model)
    for _ in range(2):
        theta, samples = state.parameters, [iasg_samples(state, site) for site in sites]
        gradients = [
            whitened(each, theta - each.mean(0), shrinkage=SPEC.shrinkage) for each in samples
        ]
        velocity = torch.stack(gradients).mean(0)
        if state.velocity is not None:
            velocity = velocity + 0.5 * state.velocity
        state = sums.after_one(fedpa, state, [*sites, without_rows(sites[0])])
        assert torch.allclose(state.parameters, theta - SPEC.server_rate * velocity, atol=1e-5)
    network = SPEC.network(model)
    noise = missed(sites, model, lambda site, x: outputs(network, samples[site].mean(0), x))
    served = state.model.networks_of("fedpa")
    assert torch.equal(served.samples, state.parameters[None])
    assert served.rows == sum(site.count(Part.TRAINING) for site in sites)
    assert torch.allclose(served.noise_variance, noise, rtol=1e-4)


def test_nobodys_rows_train_nothing() -> None:
    sites, model = sites_and_model()
    with pytest.raises(StatisticsError, match="no site has rows"):
        sums.after_all(fedpa, SPEC, model, [without_rows(sites[0])])


@pytest.mark.parametrize(
    "wrong",
    [
        {"rounds": 0},
        {"samples": 0},
        {"burn_in": 1.0},
        {"momentum": 1.0},
        {"shrinkage": -1.0},
        {"server_rate": 0.0},
    ],
)
def test_impossible_parameters_are_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(ProgramError, match=next(iter(wrong))):
        replace(SPEC, **wrong)
