"""One site's posterior of a network, compared with the closed form if there is one."""

from dataclasses import replace

import pytest
import torch

from kernels.ensembles.local_posterior import LocalPosterior, Sampling, sample_posterior, with_noise
from kernels.ensembles.networks import NetworkSpec, outputs, starting_parameters
from kernels.errors import EmptyTable, NotFitted, SpecError
from kernels.samplers.sampler import Batch

LINEAR = NetworkSpec(inputs=2, outputs=1, hidden=())
NETWORK = NetworkSpec(inputs=2, outputs=2, hidden=(16, 16))


def _generator(seed: int = 1) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _rows(count: int, *, noise: float, seed: int = 2) -> Batch:
    generator = _generator(seed)
    x = torch.randn(count, 2, generator=generator, dtype=torch.float64)
    error = torch.randn(count, 1, generator=generator, dtype=torch.float64)
    return x, (x[:, :1] - 0.5 * x[:, 1:]) + noise**0.5 * error


def test_without_hidden_layers_it_is_bayesian_linear_regression() -> None:
    noise, prior = 0.3, 2.0
    x, y = _rows(20, noise=noise)
    sampling = Sampling(
        cycles=160,
        cycle_epochs=20,
        cycle_samples=20,
        most_samples=3200,
        step_size=0.1,
        prior_variance=prior,
        noise_variance=noise,
    )
    start = torch.zeros(3).double()
    posterior = sample_posterior(
        LINEAR, start, (x, y), (x[:0], y[:0]), sampling=sampling, generator=_generator()
    )
    assert len(posterior.samples) == 3200
    phi = torch.cat([x, torch.ones(20, 1).double()], 1)
    precision = phi.mT @ phi / noise + torch.eye(3).double() / prior
    mean = torch.linalg.solve(precision, phi.mT @ y / noise).squeeze(1)
    spread = precision.inverse().diagonal().sqrt()
    # The ends of cycles: steps are small there, and samples far enough apart to be independent.
    ends = posterior.samples[19::20]
    error = spread / len(ends) ** 0.5
    assert ((ends.mean(0) - mean).abs() < 4.5 * error).all()
    assert torch.allclose(ends.std(0), spread, rtol=0.25)
    queries = torch.eye(2).double() * 2
    phi = torch.cat([queries, torch.ones(2, 1).double()], 1)
    found = replace(posterior, samples=ends).predict(queries)
    expected = noise + (phi @ precision.inverse() * phi).sum(1, keepdim=True)
    assert torch.allclose(found.variance, expected, rtol=0.2)


def test_the_noise_is_that_of_rows_which_are_not_trained_on() -> None:
    training, held_out = _rows(60, noise=0.2), _rows(200, noise=0.2, seed=3)
    start = starting_parameters(replace(NETWORK, outputs=1), seed=1)

    def noise(held_out: Batch) -> float:
        posterior = sample_posterior(
            replace(NETWORK, outputs=1),
            start,
            training,
            held_out,
            sampling=Sampling(cycle_epochs=20),
            generator=_generator(),
        )
        return float(posterior.noise_variance)

    honest = noise(held_out)
    assert 0.2 < honest < 0.35
    # Without held-out rows only the training rows are left, whose residuals are too small.
    assert noise((held_out[0][:0], held_out[1][:0])) < honest


def test_a_noise_that_is_known_is_kept_and_one_set_by_hand_replaces_it() -> None:
    x, y = _rows(30, noise=0.2)
    both = y.expand(-1, 2)
    posterior = sample_posterior(
        NETWORK,
        starting_parameters(NETWORK, seed=1),
        (x, both),
        (x, both),
        sampling=Sampling(cycles=1, noise_variance=0.5),
        generator=_generator(),
    )
    assert posterior.noise_variance.tolist() == [0.5, 0.5]
    assert with_noise(posterior, 2.0).noise_variance.tolist() == [2.0, 2.0]
    found = with_noise(posterior, 2.0).predict(x)
    each = outputs(NETWORK, posterior.samples, x)
    assert torch.allclose(found.mean, each.mean(0))
    assert torch.allclose(found.variance, each.var(0) + 2)


def test_the_newest_samples_are_kept() -> None:
    x, y = _rows(30, noise=0.2)
    shared = Sampling(cycles=3, cycle_epochs=3, cycle_samples=2, batch_rows=10)
    many, few = (
        sample_posterior(
            replace(NETWORK, outputs=1),
            starting_parameters(replace(NETWORK, outputs=1), seed=1),
            (x, y),
            (x, y),
            sampling=replace(shared, most_samples=most, noise_variance=1.0),
            generator=_generator(),
        ).samples
        for most in (100, 4)
    )
    assert (len(many), len(few)) == (6, 4)
    assert torch.equal(many[-4:], few)


def test_far_from_its_rows_a_site_is_less_sure() -> None:
    training, held_out = _rows(60, noise=0.05), _rows(30, noise=0.05, seed=3)
    spec = replace(NETWORK, outputs=1)
    posterior = sample_posterior(
        spec,
        starting_parameters(spec, seed=1),
        training,
        held_out,
        sampling=Sampling(cycles=6, cycle_epochs=15),
        generator=_generator(),
    )
    near, far = (posterior.predict(scale * held_out[0]).latent_variance for scale in (1.0, 4.0))
    assert far.mean() > 3 * near.mean()


def test_what_cannot_be_sampled_is_refused_by_name() -> None:
    nothing = torch.zeros(0, 2).double(), torch.zeros(0, 1).double()
    start = torch.zeros(3).double()
    with pytest.raises(EmptyTable, match="no training rows"):
        sample_posterior(
            LINEAR, start, nothing, nothing, sampling=Sampling(), generator=_generator()
        )
    with pytest.raises(NotFitted, match="at least 2 samples"):
        LocalPosterior(LINEAR, start[None], torch.ones(1)).predict(torch.zeros(1, 2).double())
    with pytest.raises(SpecError, match="samples"):
        Sampling(cycle_epochs=2, cycle_samples=3)
