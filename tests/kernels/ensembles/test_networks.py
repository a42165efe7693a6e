"""Small networks as flat vectors."""

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from kernels.ensembles.networks import (
    NetworkSpec,
    layers,
    outputs,
    squared_errors,
    starting_parameters,
)
from kernels.errors import SpecError, WeightsError, WrongShape

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
    monkeypatch.setattr("kernels.ensembles.networks._ACTIVATIONS", 30)
    assert torch.allclose(outputs(SPEC, ensemble, x), whole, rtol=1e-13, atol=1e-14)
    assert outputs(SPEC, ensemble, x[:0]).shape == (3, 0, 2)


def test_errors_are_of_each_vector_and_so_are_their_gradients() -> None:
    ensemble, x = _ensemble(4), _rows(6)
    y = _rows(6)[:, :2]
    found = squared_errors(SPEC, ensemble, x, y)
    assert torch.allclose(found, ((outputs(SPEC, ensemble, x) - y) ** 2).sum((1, 2)))
    together = ensemble.clone().requires_grad_()
    (gradients,) = torch.autograd.grad(squared_errors(SPEC, together, x, y).sum(), together)
    alone = vmap(grad(lambda theta: squared_errors(SPEC, theta, x, y)))(ensemble)
    assert torch.allclose(gradients, alone)


def test_a_network_without_hidden_layers_is_linear() -> None:
    spec = NetworkSpec(inputs=3, outputs=1, hidden=())
    theta, x = torch.tensor([1.0, 2.0, 3.0, -1.0]).double(), _rows(5)
    assert torch.allclose(outputs(spec, theta, x)[:, 0], x @ theta[:3] - 1)


def test_training_starts_at_the_same_place_everywhere_and_another_for_another_seed() -> None:
    one, same, other = (starting_parameters(SPEC, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    for (weights, biases), (_, into) in zip(layers(SPEC, one), SPEC.shapes, strict=True):
        assert max(weights.abs().max(), biases.abs().max()) <= into**-0.5


def test_wrong_shapes_are_refused_by_name() -> None:
    with pytest.raises(WeightsError, match="parameters"):
        layers(SPEC, torch.zeros(5).double())
    with pytest.raises(WrongShape, match="x must have shape"):
        outputs(SPEC, _ensemble(1), torch.zeros(4, 2).double())


@pytest.mark.parametrize(
    "wrong",
    [{"inputs": 0}, {"hidden": (0,)}, {"hidden": (3,) * 40}, {"outputs": True}],
)
def test_impossible_networks_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(SpecError):
        NetworkSpec(**{"inputs": 3, **wrong})
