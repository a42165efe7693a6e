"""Small networks as flat vectors."""

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from kernels.errors import SpecError, WeightsError, WrongShape
from kernels.networks import (
    NetworkSpec,
    layers,
    log_likelihood,
    log_prior,
    noise_variances,
    outputs,
    starting_parameters,
)

SPEC = NetworkSpec(inputs=3, outputs=2, hidden=(5, 4))


def _ensemble(count: int) -> Tensor:
    return torch.stack([starting_parameters(SPEC, seed=seed) for seed in range(count)])


def _rows(count: int) -> Tensor:
    return torch.randn(count, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def _torch_network(parameters: Tensor) -> tuple[nn.Module, dict[str, Tensor]]:
    module = nn.Sequential(
        nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 2)
    ).double()
    named, first = {}, 0
    for name, value in module.named_parameters():
        named[name] = parameters[..., first : first + value.numel()].reshape(
            *parameters.shape[:-1], *value.shape
        )
        first += value.numel()
    return module, named


def test_an_ensemble_is_torchs_own_network_mapped_over_the_vectors() -> None:
    ensemble, x = _ensemble(7), _rows(11)
    module, named = _torch_network(ensemble)
    with torch.no_grad():
        expected = vmap(lambda one: functional_call(module, one, (x,)))(named)
    assert torch.allclose(outputs(SPEC, ensemble, x), expected, rtol=1e-13, atol=1e-14)


def test_pieces_of_rows_give_what_all_rows_at_once_give(monkeypatch: pytest.MonkeyPatch) -> None:
    ensemble, x = _ensemble(3), _rows(11)
    whole = outputs(SPEC, ensemble, x)
    monkeypatch.setattr("kernels.networks._ACTIVATIONS", 30)
    assert torch.allclose(outputs(SPEC, ensemble, x), whole, rtol=1e-13, atol=1e-14)
    assert outputs(SPEC, ensemble, x[:0]).shape == (3, 0, 2)


def test_the_likelihood_is_the_gaussian_one_and_batches_as_its_gradient_does() -> None:
    ensemble, x = _ensemble(4) + 0.1, _rows(6)
    y = _rows(6)[:, :2]
    for theta, found in zip(ensemble, log_likelihood(SPEC, ensemble, x, y), strict=True):
        normal = torch.distributions.Normal(
            outputs(SPEC, theta, x), noise_variances(SPEC, theta).sqrt()
        )
        assert torch.isclose(normal.log_prob(y).sum(), found)
    together = ensemble.clone().requires_grad_()
    (gradients,) = torch.autograd.grad(log_likelihood(SPEC, together, x, y).sum(), together)
    alone = vmap(grad(lambda theta: log_likelihood(SPEC, theta, x, y)))(ensemble)
    assert torch.allclose(gradients, alone)


def test_a_known_noise_is_no_parameter() -> None:
    known = NetworkSpec(inputs=3, outputs=2, hidden=(5, 4), noise_variance=0.25)
    assert known.parameters == known.weights == SPEC.parameters - 2
    assert noise_variances(known, _ensemble(4)[:, :-2]).tolist() == [[0.25, 0.25]] * 4
    assert noise_variances(SPEC, _ensemble(1)).tolist() == [[1.0, 1.0]]


def test_training_starts_at_the_same_place_everywhere_and_another_for_another_seed() -> None:
    one, same, other = (starting_parameters(SPEC, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    for (weights, biases), (_, into) in zip(layers(SPEC, one), SPEC.shapes, strict=True):
        assert max(weights.abs().max(), biases.abs().max()) <= into**-0.5


def test_the_prior_is_gaussian_up_to_its_constant() -> None:
    theta = _ensemble(2)
    normal = torch.distributions.Normal(torch.zeros(()).double(), 2.0)
    expected = normal.log_prob(theta).sum(-1).diff()
    assert torch.allclose(log_prior(theta, variance=4.0).diff(), expected)


def test_wrong_shapes_are_refused_by_name() -> None:
    with pytest.raises(WeightsError, match="parameters"):
        layers(SPEC, torch.zeros(5).double())
    with pytest.raises(WrongShape, match="rows"):
        outputs(SPEC, _ensemble(1), torch.zeros(4, 2).double())


@pytest.mark.parametrize(
    "wrong",
    [{"inputs": 0}, {"hidden": (0,)}, {"hidden": (3,) * 40}, {"noise_variance": 0.0}],
)
def test_impossible_networks_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(SpecError):
        NetworkSpec(**{"inputs": 3, **wrong})  # type: ignore[arg-type]
