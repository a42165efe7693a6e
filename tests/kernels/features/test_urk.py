"""The unifying random kernel: theorems 3 to 6, its weights, and the same features everywhere."""

import hashlib
import math
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from kernels.errors import EmptyTable, NotFinite, WeightsError, WrongShape
from kernels.features.architectures import Deep
from kernels.features.seeded_random import normals
from kernels.features.spec import Architecture, Ending, KernelSpec, Normaliser, Replication
from kernels.features.urk import URK, starting_weights, weight_count, weight_shapes
from tests.kernels.features.specs import EVERY_SPEC

every_spec = pytest.mark.parametrize("spec", EVERY_SPEC.values(), ids=EVERY_SPEC)


def rows(count: int, inputs: int, *, seed: int = 0, scale: float = 1.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(count, inputs, generator=generator, dtype=torch.float64)


def _distances(x: Tensor) -> Tensor:
    return torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist")


def _closed_form(architecture: Architecture, x: Tensor, lengthscale: Tensor) -> Tensor:
    x = x / lengthscale
    r = _distances(x)
    match architecture:
        case Architecture.RBF:
            return (-(r**2) / 2).exp()
        case Architecture.MATERN12:
            return (-r).exp()
        case Architecture.MATERN32:
            return (1 + math.sqrt(3) * r) * (-math.sqrt(3) * r).exp()
        case Architecture.MATERN52:
            return (1 + math.sqrt(5) * r + 5 * r**2 / 3) * (-math.sqrt(5) * r).exp()
        case Architecture.EXPONENTIAL:
            return ((x.unsqueeze(0) + x.unsqueeze(1)).square().sum(-1) / 2).exp()
        case Architecture.POLYNOMIAL:
            return (x @ x.mT + 0.5) ** 3
    raise AssertionError(architecture)


CLASSICAL = ["rbf", "matern12", "matern32", "matern52", "exponential", "polynomial"]


@pytest.mark.parametrize("name", CLASSICAL)
@pytest.mark.parametrize("normaliser", Normaliser)
def test_gram_matrices_converge_to_the_closed_form_at_rate_root_m(
    name: str, normaliser: Normaliser
) -> None:
    architecture = Architecture(name)
    extra = {"degree": 3, "offset": 0.5} if architecture is Architecture.POLYNOMIAL else {}
    x = rows(8, 3, scale=0.25 if architecture is Architecture.EXPONENTIAL else 1.0)
    lengthscale = torch.tensor([0.8, 1.0, 1.5], dtype=torch.float64)
    exact = _closed_form(architecture, x, lengthscale)
    errors = []
    for samples in (250, 4_000, 64_000):
        squares = []
        for seed in range(6):
            spec = KernelSpec(
                architecture=architecture,
                inputs=3,
                samples=samples,
                seed=seed,
                normaliser=normaliser,
                **extra,
            )
            phi = URK(spec, lengthscale.log()).features(x).detach()
            squares.append(((phi @ phi.mT - exact) ** 2).mean())
        errors.append(float(torch.stack(squares).mean().sqrt()))
    # 16 times the samples: a quarter of the error; the slope over 256 times is −1/2.
    slope = math.log(errors[2] / errors[0]) / math.log(64_000 / 250)
    assert slope == pytest.approx(-0.5, abs=0.12)
    assert errors[2] < 0.02 * exact.abs().max()


def test_polynomial_features_keep_the_sign_that_a_logarithm_loses() -> None:
    spec = KernelSpec(architecture=Architecture.POLYNOMIAL, inputs=1, samples=50, degree=3)
    phi = URK(spec).features(torch.tensor([[-2.0], [2.0]], dtype=torch.float64)).detach()
    assert torch.isfinite(phi).all()
    assert (phi[0] < 0).any()
    assert torch.equal(phi[0].abs(), phi[1].abs())


def _numpy_features(spec: KernelSpec, x: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return features of the three network architectures, by loops over their definitions."""
    named, first = {}, 0
    for name, shape in weight_shapes(spec).items():
        named[name] = weights[first : first + math.prod(shape)].reshape(shape)
        first += math.prod(shape)

    def f(row: np.ndarray) -> np.ndarray:
        hidden = row
        for layer in range(len(spec.hidden)):
            hidden = np.tanh(named[f"f.{layer}.weight"] @ hidden + named[f"f.{layer}.bias"])
        last = len(spec.hidden)
        out = named[f"f.{last}.weight"] @ hidden + named[f"f.{last}.bias"]
        return out + named["f.skip"] @ row

    def h(omega: np.ndarray) -> np.ndarray:
        bent = np.tanh(named["h.0.weight"] @ omega + named["h.0.bias"])
        return named["h.1.weight"] @ bent + named["h.1.bias"] + named["h.skip"] @ omega

    shifted = spec.architecture is Architecture.SHIFTED
    dimension = spec.shifter_inputs if shifted else spec.latent
    omegas = normals(spec.seed, "frequencies", spec.samples, dimension).numpy()
    copies = normals(spec.seed, "copies", spec.samples, spec.inputs).numpy()
    columns = []
    for omega, copy in zip(omegas, copies, strict=True):
        frequency = (h(omega) if shifted else omega) * spec.frequency_scale / spec.latent**0.5
        rows = x
        if spec.architecture is Architecture.REPLICATED:
            noise = spec.replication_scale * copy
            rows = x + noise if spec.replication is Replication.ADD else x * (1 + noise)
        latent = np.stack([f(row) for row in rows])
        if spec.ending is Ending.LINEAR:
            columns.append(latent)
        else:
            angle = latent @ frequency
            columns.append(np.stack([np.cos(angle), np.sin(angle)], axis=1))
    stacked = np.stack(columns, axis=2)  # (rows, d, m): coordinate by coordinate
    return stacked.reshape(len(x), -1) / spec.samples**0.5


NETWORKS = ["deep", "shifted", "replicated", "replicated-multiply-linear"]


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_are_what_their_formulas_say_at_any_weights(name: str) -> None:
    spec = EVERY_SPEC[name]
    weights = np.random.default_rng(3).normal(size=weight_count(spec))
    x = rows(5, 3)
    ours = URK(spec, torch.from_numpy(weights)).features(x).detach().numpy()
    np.testing.assert_allclose(ours, _numpy_features(spec, x.numpy(), weights), atol=1e-12)


@every_spec
@given(leading=st.integers(1, 9), seed=st.integers(0, 100))
@settings(max_examples=10, deadline=None)
def test_the_way_back_is_autograds(spec: KernelSpec, leading: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    weights = torch.randn(weight_count(spec), generator=generator, dtype=torch.float64)
    kernel, x = URK(spec, weights), rows(9, 3, seed=seed)
    gradient = rows(leading, spec.features, seed=seed + 1)
    phi = kernel.features(x)
    (theirs,) = torch.autograd.grad(phi[:leading], kernel.weights, gradient)
    features, pullback = kernel.features_and_pullback(x)
    kept = gradient.clone()
    ours = pullback(gradient)
    assert torch.equal(features, phi)
    assert not features.requires_grad
    assert not ours.requires_grad
    # Far lengthscales cancel digits of inducing features, here and in autograd.
    assert (ours - theirs).norm() <= (1e-9 if spec.inducing_features else 1e-12) * theirs.norm()
    assert torch.equal(pullback(gradient), ours)
    assert torch.equal(gradient, kept)


def test_iterating_over_chunks_leaves_gradients_on() -> None:
    kernel = URK(EVERY_SPEC["rbf"])
    for _, phi in kernel.features_in_chunks(rows(9, 3), chunk_rows=2):
        assert torch.is_grad_enabled()
        assert not phi.requires_grad


def test_weights_decide_the_floating_point_type() -> None:
    spec = EVERY_SPEC["shifted"]
    assert URK(spec, starting_weights(spec).float()).features(rows(9, 3)).dtype == torch.float32


def test_a_deep_kernel_is_the_gaussian_kernel_of_its_network() -> None:
    spec = KernelSpec(
        architecture=Architecture.DEEP, inputs=3, samples=40_000, hidden=(6,), latent=4
    )
    kernel, x = URK(spec), rows(8, 3)
    phi = kernel.features(x).detach()
    latent = Deep.network(spec, x, kernel.named_weights())[0].detach()
    lengthscale = math.sqrt(spec.latent) / spec.frequency_scale
    gaussian = (-((_distances(latent) / lengthscale) ** 2) / 2).exp()
    assert (phi @ phi.mT - gaussian).abs().max() < 0.02


def test_the_shifter_has_the_identity_in_its_family() -> None:
    network = {"inputs": 3, "samples": 30, "hidden": (6,), "seed": 4}
    shifted = KernelSpec(architecture=Architecture.SHIFTED, **network)
    deep = KernelSpec(architecture=Architecture.DEEP, **network)
    kernel = URK(shifted)
    with torch.no_grad():
        assert torch.equal(kernel.named_weights()["h.skip"], torch.eye(5, dtype=torch.float64))
        kernel.named_weights()["h.1.weight"].zero_()
    x = rows(9, 3)
    f_weights = kernel.weights.detach()[: weight_count(deep)]
    assert torch.equal(kernel.features(x), URK(deep, f_weights).features(x))


@every_spec
@given(seed=st.integers(0, 2**53 - 1), samples=st.integers(2, 12), shift=st.floats(-3, 3))
@settings(max_examples=20, deadline=None)
def test_every_gram_matrix_is_positive_semidefinite(
    spec: KernelSpec, seed: int, samples: int, shift: float
) -> None:
    if spec.main_features:
        spec = replace(spec, seed=seed, samples=samples)
    kernel = URK(spec, starting_weights(spec) + shift / 10)
    x = rows(9, 3, seed=seed % 97)
    phi = kernel.features(x).detach()
    gram = kernel(x).to_dense().detach()
    assert torch.linalg.eigvalsh(gram)[0] >= -1e-12 * gram.trace()
    bound = spec.squared_norm_bound
    if bound is not None:
        assert (phi.square().sum(1) <= bound * (1 + 1e-12)).all()


@every_spec
def test_weights_are_one_flat_vector_in_a_fixed_order(spec: KernelSpec) -> None:
    kernel = URK(spec)
    flat = torch.arange(weight_count(spec), dtype=torch.float64)
    again = URK(spec, flat)
    assert list(kernel.named_weights()) == list(weight_shapes(spec))
    pieces = [piece.flatten() for piece in again.named_weights().values()]
    assert torch.equal(torch.cat(pieces), flat)
    assert [parameter.numel() for parameter in kernel.parameters()] == [weight_count(spec)]


def test_the_order_of_the_default_kernels_weights_is_documented() -> None:
    spec = KernelSpec(inputs=3, hidden=(7, 6), latent=4, shifter_hidden=2)
    assert list(weight_shapes(spec).items()) == [
        ("f.0.weight", (7, 3)),
        ("f.0.bias", (7,)),
        ("f.1.weight", (6, 7)),
        ("f.1.bias", (6,)),
        ("f.2.weight", (4, 6)),
        ("f.2.bias", (4,)),
        ("f.skip", (4, 3)),
        ("h.0.weight", (2, 5)),
        ("h.0.bias", (2,)),
        ("h.1.weight", (4, 2)),
        ("h.1.bias", (4,)),
        ("h.skip", (4, 5)),
    ]


_FRESH = """
import hashlib, sys, torch
from kernels.features.spec import KernelSpec
from kernels.features.urk import URK
torch.set_num_threads(1)
torch.manual_seed(987)
for line in sys.stdin:
    spec = KernelSpec.from_json(line)
    weights = torch.linspace(-1, 1, URK(spec).weights.numel(), dtype=torch.float64)
    x = torch.linspace(-2, 2, 33, dtype=torch.float64).reshape(11, 3)
    print(hashlib.sha256(URK(spec, weights).features(x).detach().numpy().tobytes()).hexdigest())
"""


@pytest.mark.full
def test_a_fresh_process_has_bit_identical_features() -> None:
    digests = []
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for spec in EVERY_SPEC.values():
            weights = torch.linspace(-1, 1, weight_count(spec), dtype=torch.float64)
            x = torch.linspace(-2, 2, 33, dtype=torch.float64).reshape(11, 3)
            phi = URK(spec, weights).features(x).detach()
            digests.append(hashlib.sha256(phi.numpy().tobytes()).hexdigest())
    finally:
        torch.set_num_threads(threads)
    fresh = subprocess.run(
        [sys.executable, "-c", _FRESH],
        input="\n".join(spec.to_json() for spec in EVERY_SPEC.values()),
        capture_output=True,
        text=True,
        check=True,
    )
    assert fresh.stdout.split() == digests


def test_the_global_generator_is_neither_read_nor_moved() -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = URK(EVERY_SPEC["shifted"]).weights.detach()
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert torch.equal(URK(EVERY_SPEC["shifted"]).weights, first)


@every_spec
def test_chunked_features_are_the_unchunked_ones(spec: KernelSpec) -> None:
    kernel, x = URK(spec), rows(23, 3)
    chunks = [phi for _, phi in kernel.features_in_chunks(x, chunk_rows=5)]
    torch.testing.assert_close(
        torch.cat(chunks), kernel.features(x).detach(), rtol=1e-13, atol=1e-14
    )


@every_spec
def test_it_is_a_gpytorch_kernel(spec: KernelSpec) -> None:
    kernel, left, right = URK(spec), rows(23, 3), rows(4, 3, seed=1)
    phi, psi = kernel.features(left), kernel.features(right)
    torch.testing.assert_close(kernel(left).to_dense(), phi @ phi.mT)
    torch.testing.assert_close(kernel(left, right).to_dense(), phi @ psi.mT)
    torch.testing.assert_close(kernel(left, diag=True), phi.square().sum(-1))
    torch.testing.assert_close(
        kernel(left, left + 1, diag=True), (phi * kernel.features(left + 1)).sum(-1)
    )
    kernel(left).to_dense().sum().backward()
    assert torch.isfinite(kernel.weights.grad).all()


def test_float32_features_are_close_to_float64() -> None:
    spec = EVERY_SPEC["shifted"]
    phi = URK(spec).float().features(rows(9, 3))
    assert phi.dtype == torch.float32
    torch.testing.assert_close(phi.double(), URK(spec).features(rows(9, 3)), rtol=1e-4, atol=1e-5)


def test_bad_rows_and_weights_are_named() -> None:
    spec = EVERY_SPEC["shifted"]
    kernel = URK(spec)
    with pytest.raises(WrongShape, match=r"\(rows, 3\)"):
        kernel.features(rows(4, 2))
    with pytest.raises(WrongShape):
        kernel.features(rows(4, 3)[0])
    with pytest.raises(EmptyTable):
        kernel.features(rows(0, 3))
    for bad in (math.nan, math.inf):
        x = rows(4, 3)
        x[2, 1] = bad
        with pytest.raises(NotFinite, match="1 of 4 rows"):
            kernel.features(x)
    count = weight_count(spec)
    for weights in (torch.zeros(count + 1), torch.zeros(1, count), torch.zeros(count).int()):
        with pytest.raises(WeightsError):
            URK(spec, weights)
    with pytest.raises(WeightsError, match="diverged"):
        URK(spec, torch.full((count,), math.nan))
