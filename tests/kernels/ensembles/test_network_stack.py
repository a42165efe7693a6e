"""Many networks at once give the outputs of each alone."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.ensembles import network_stack
from kernels.ensembles.network_stack import NetworkStack
from kernels.ensembles.networks import NetworkSpec, outputs, starting_parameters
from kernels.errors import WeightsError, WrongShape


def _many(spec: NetworkSpec, count: int) -> torch.Tensor:
    return torch.stack([starting_parameters(spec, seed=seed) for seed in range(count)])


@settings(max_examples=20)
@given(
    count=st.integers(1, 9),
    rows=st.integers(0, 40),
    hidden=st.sampled_from([(), (3,), (7, 4)]),
    activations=st.sampled_from([1, 40, 2**17]),
    at_once=st.sampled_from([1, 7, 256]),
)
def test_a_stack_says_what_each_network_says_alone_however_it_is_cut(
    count: int, rows: int, hidden: tuple[int, ...], activations: int, at_once: int
) -> None:
    spec = NetworkSpec(inputs=3, outputs=2, hidden=hidden)
    many = _many(spec, count)
    x = torch.randn(rows, 3, generator=torch.Generator().manual_seed(rows), dtype=torch.float64)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(network_stack, "_ACTIVATIONS", activations)
        patched.setattr(network_stack, "_ROWS", at_once)
        found = NetworkStack(spec, many).outputs(x)
    assert found.shape == (count, rows, 2)
    for own, parameters in zip(found, many, strict=True):
        assert torch.allclose(own, outputs(spec, parameters, x), rtol=1e-12, atol=1e-13)


def test_rows_and_parameters_of_another_network_are_refused() -> None:
    spec = NetworkSpec(inputs=3, hidden=(4,))
    with pytest.raises(WrongShape, match=r"\(n, 3\)"):
        NetworkStack(spec, _many(spec, 2)).outputs(torch.zeros(5, 4).double())
    with pytest.raises(WeightsError):
        NetworkStack(spec, torch.zeros(2, 5).double()).outputs(torch.zeros(5, 3).double())
