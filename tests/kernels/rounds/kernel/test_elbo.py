"""DP-SGD on the evidence's lower bound: with a linear part, and when it leads nowhere."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from client_sdk.simulation import simulate
from kernels.errors import Diverged
from kernels.model.model import known
from kernels.rounds.columns import moments
from kernels.rounds.kernel import elbo
from kernels.rounds.layer import refinement
from privacy import noise
from tests.dealing import DEALING
from tests.kernels.rounds import private


def test_a_linear_part_is_trained_and_refined_beside_a_network() -> None:
    kernel = replace(private.KERNEL, linear_part=True, radius=1.0)
    stages = moments.Spec(from_bounds=True), elbo.Spec(steps=3, sampling_rate=0.5)
    program = private.program(*stages, refinement.Spec(), kernel=kernel, multiplier=0.5)
    tables = [private.table(60, seed=seed) for seed in range(3)]
    source = noise.approximate(np.random.default_rng(1))
    model = simulate(program, tables, DEALING, secure=False, source=source).model
    centre = known(model.centre, "elbo").weights
    assert bool((centre[kernel.main_features :] != 0).all())
    assert bool(model.posterior.weights.isfinite().all())


def test_a_private_run_that_diverges_ends_before_it_spends_more() -> None:
    spec = elbo.Spec(steps=400, sampling_rate=0.5, learning_rate=1.0)
    program = private.program(moments.Spec(from_bounds=True), spec, multiplier=50.0)
    tables, asked = [private.table(30, seed=1)], list[str]()
    with pytest.raises(Diverged, match=r"elbo .* the noise leads the steps") as ended:
        simulate(
            program,
            tables,
            DEALING,
            secure=False,
            source=noise.approximate(np.random.default_rng(1)),
            watch=lambda name, _: asked.append(name),
        )
    assert ended.value.code == "run.diverged"
    assert asked.count("elbo") < 200


def test_default_steps_through_noise_alone_do_not_count_as_divergence() -> None:
    program = private.program(
        moments.Spec(from_bounds=True), elbo.Spec(steps=30, sampling_rate=0.5), multiplier=1000.0
    )
    tables = [private.table(20, seed=seed) for seed in range(3)]
    source = noise.approximate(np.random.default_rng(1))
    model = simulate(program, tables, DEALING, secure=False, source=source).model
    assert bool(torch.as_tensor(known(model.weights, "elbo")).isfinite().all())
