"""Networks as methods of a model: the mixture that they predict, and what is refused."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from kernels import storage
from kernels.ensembles.networks import NetworkSpec, outputs
from kernels.ensembles.served_networks import NetworkMethod, Networks
from kernels.ensembles.student_network import StudentSpec, predict
from kernels.errors import StateError
from kernels.model.model import Model
from kernels.model.noise_plan import NoisePlan
from kernels.rounds.registry import ALGORITHMS, restore
from tests.kernels.rounds import tables

SPEC = NetworkSpec(inputs=5, outputs=2, hidden=(3,))
HEADS = StudentSpec(inputs=5, targets=2, hidden=(3,))
X = torch.linspace(-1, 1, 20, dtype=torch.float64).reshape(4, 5)
NOISE = torch.tensor([0.25, 4.0], dtype=torch.float64)
MODEL = Model(tables.SCHEMA, tables.KERNEL, 1000)


def samples(count: int, parameters: int = SPEC.parameters) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(count, parameters, generator=generator, dtype=torch.float64)


NETWORKS = Networks(NetworkMethod.EP_MCMC, SPEC, samples(7), NOISE, 30)
TAUGHT = Networks(
    NetworkMethod.FEDBE, HEADS, samples(1, HEADS.network.parameters), 0 * NOISE, rows=30
)


def test_every_method_is_the_name_of_the_algorithm_that_makes_it() -> None:
    assert {*NetworkMethod} <= {*ALGORITHMS}


def test_samples_predict_the_mean_and_the_variance_of_their_mixture() -> None:
    each = outputs(SPEC, NETWORKS.samples, X)
    draws = torch.Generator().manual_seed(0)
    noise = torch.randn(20_000, *each.shape, generator=draws, dtype=torch.float64)
    mixture = (each + noise * NOISE.sqrt()).flatten(0, 1)
    said = NETWORKS.predict(X)
    assert torch.allclose(said.mean, each.mean(0))
    assert torch.allclose(said.variance, mixture.var(0), rtol=0.02)


def test_a_point_has_its_noise_as_the_variance_of_every_row() -> None:
    point = replace(NETWORKS, samples=samples(1))
    said = point.predict(X)
    assert torch.equal(said.mean, outputs(SPEC, samples(1)[0], X))
    assert torch.equal(said.variance, NOISE.expand(4, 2))
    assert [own.variance_depends_on_the_row for own in (point, NETWORKS, TAUGHT)] == [
        False,
        True,
        True,
    ]


def test_heads_predict_the_variance_themselves() -> None:
    said, by_itself = TAUGHT.predict(X), predict(HEADS, TAUGHT.samples[0], X)
    assert torch.equal(said.mean, by_itself.mean)
    assert torch.equal(said.variance, by_itself.variance)


def test_no_rows_are_predicted_as_none() -> None:
    for own in (NETWORKS, TAUGHT):
        assert own.predict(X[:0]).mean.shape == (0, 2)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"method": "sgd"}, "networks.method must be one of fedpa"),
        ({"rows": 0}, "at least 1"),
        ({"rows": 2.0}, "at least 1"),
        ({"spec": replace(SPEC, inputs=4)}, "must have 5 inputs and 2 targets"),
        ({"spec": replace(SPEC, outputs=3)}, "must have 5 inputs and 2 targets"),
        ({"spec": tables.KERNEL}, "a NetworkSpec or a StudentSpec, not KernelSpec"),
        ({"spec": HEADS}, "networks.samples must be"),
        ({"samples": samples(0)}, "1 to 1000 rows, not 0"),
        ({"samples": samples(1001)}, "1 to 1000 rows, not 1001"),
        ({"samples": samples(1)[0]}, "networks.samples"),
        ({"samples": samples(2).float()}, "float64"),
        ({"samples": samples(2) / 0}, "NaN or infinite"),
        ({"samples": None}, "not 0"),
        ({"noise_variance": None}, "networks.noise_variance"),
        ({"noise_variance": 0 * NOISE}, "must be positive"),
        ({"noise_variance": -NOISE}, "must be positive"),
        ({"noise_variance": NOISE[:1]}, "networks.noise_variance"),
    ],
)
def test_networks_that_do_not_fit_are_refused_by_name(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(StateError, match=words):
        MODEL.with_networks(replace(NETWORKS, **wrong))


def test_heads_beside_noise_are_refused() -> None:
    with pytest.raises(StateError, match="0 if the networks have heads"):
        MODEL.with_networks(replace(TAUGHT, noise_variance=NOISE))


def test_a_model_has_one_entry_for_each_method_and_none_with_differential_privacy() -> None:
    model = MODEL.with_networks(NETWORKS).with_networks(TAUGHT)
    newer = replace(NETWORKS, rows=31)
    again = model.with_networks(newer)
    assert again.networks == (TAUGHT, newer)
    assert again.networks_of("fedbe") is TAUGHT
    assert again.networks_of("fedpa") is None
    for wrong in ((NETWORKS, newer), (), [NETWORKS], (TAUGHT.spec,)):
        with pytest.raises(StateError, match="networks"):
            replace(MODEL, networks=wrong)
    with pytest.raises(StateError, match="None with differential privacy"):
        replace(model, privacy=NoisePlan(multipliers=(1.0,)))


def test_networks_survive_storage() -> None:
    model = MODEL.with_networks(NETWORKS).with_networks(TAUGHT)
    again: Model = restore(storage.encode(model))
    assert storage.encode(again) == storage.encode(model)
    for method in ("ep_mcmc", "fedbe"):
        one, other = (own.networks_of(method) for own in (model, again))
        assert one is not None
        assert other is not None
        assert torch.equal(one.predict(X).variance, other.predict(X).variance)
