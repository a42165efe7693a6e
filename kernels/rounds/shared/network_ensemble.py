"""An ensemble of the sites' networks on public rows, from sums of their outputs and squares."""

import numpy as np
import torch
from torch import Tensor

from kernels.ensembles.networks import outputs
from kernels.ensembles.served_networks import NetworkMethod, Networks
from kernels.model.model import Model
from kernels.rounds.algorithm import Contribution
from kernels.rounds.shared.lessons import OfPublicRows
from kernels.rounds.shared.site_mean import SITES
from kernels.rounds.shared.sufficient import RESOLUTION, TARGET_BOUND
from kernels.scores.gaussians import Gaussian
from privacy.layout import Block


def output_blocks(model: Model, public_rows: int) -> tuple[Block, ...]:
    """Return the blocks of f and f² at the public rows, and of the number of networks."""
    shape = (public_rows, model.targets)
    return (
        Block("outputs", shape, TARGET_BOUND, RESOLUTION),
        Block("output_squares", shape, TARGET_BOUND**2, RESOLUTION),
        SITES,
    )


def output_contribution(said: Tensor) -> Contribution:
    """Return one network's contribution to these blocks, given its outputs."""
    return {
        "outputs": said.numpy(),
        "output_squares": said.square().numpy(),
        SITES.name: np.ones(()),
    }


def said_at(spec: OfPublicRows, model: Model, parameters: Tensor) -> Tensor:
    """Return the outputs of networks (…, P) at the public rows, (…, K, T), within ±TARGET_BOUND."""
    said = outputs(spec.network(model), parameters, spec.inputs(model))
    return said.clamp(-TARGET_BOUND, TARGET_BOUND)


def ensemble(said: Tensor, squares: Tensor, count: float, noise_variance: Tensor) -> Gaussian:
    """Return N(mean, spread + σ²) from Σ f and Σ f² of `count` networks."""
    mean = said / count
    return Gaussian(mean, (squares / count - mean.square()).clamp_min(0.0) + noise_variance)


def taught(
    method: NetworkMethod, spec: OfPublicRows, model: Model, teacher: Gaussian, *, rows: int
) -> Networks:
    """Return the student of an ensemble's predictions at the public rows."""
    student = spec.student(model)
    parameters = spec.lesson.taught(student, teacher, spec.inputs(model))
    no_noise = torch.zeros(model.targets, dtype=torch.float64)
    return Networks(method, student, parameters[None], no_noise, rows)
