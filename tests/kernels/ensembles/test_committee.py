"""Predictions of many sites combined into one."""

from dataclasses import dataclass, fields

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from kernels.ensembles.committee import (
    Committee,
    Guard,
    generalised,
    interpolated,
    mixture,
    product,
    robust,
)
from kernels.errors import ImproperProduct, PredictionError, WrongShape
from kernels.scores.gaussians import Gaussian, divergence

PRIOR = Gaussian(
    torch.tensor([0.3, -0.1], dtype=torch.float64), torch.tensor([2.0, 3.0], dtype=torch.float64)
)


@dataclass(frozen=True, eq=False)
class Opinions:
    """The predictions of a few sites, with their numbers of rows."""

    means: Tensor
    variances: Tensor
    rows: Tensor

    @classmethod
    def of(cls, sites: int, *, seed: int = 0, queries: int = 6) -> "Opinions":
        generator = torch.Generator().manual_seed(seed)
        shape = (sites, queries, 2)
        means = torch.randn(shape, generator=generator, dtype=torch.float64)
        variances = 0.1 + 1.8 * torch.rand(shape, generator=generator, dtype=torch.float64)
        return cls(means, variances, torch.randint(5, 90, (sites,), generator=generator))

    def committee(self) -> Committee:
        return Committee.of(Gaussian(self.means, self.variances), rows=self.rows, prior=PRIOR)

    def members(self) -> list[Committee]:
        return [
            Committee.alone(Gaussian(mean, variance), rows=int(rows), prior=PRIOR)
            for mean, variance, rows in zip(self.means, self.variances, self.rows, strict=True)
        ]


def close(left: Gaussian, right: Gaussian) -> bool:
    return torch.allclose(left.mean, right.mean, rtol=1e-10, atol=1e-12) and torch.allclose(
        left.variance, right.variance, rtol=1e-10, atol=1e-12
    )


# -- the formulas


def in_one_place(opinions: Opinions) -> dict[str, Gaussian]:
    """Return every method computed from all sites' predictions, as in [PredBayes]."""
    mu, v, n = opinions.means, opinions.variances, opinions.rows[:, None, None].double()
    mu_p, v_p, sites = PRIOR.mean, PRIOR.variance, len(mu)
    v_product = 1 / ((1 / v).sum(0) - (sites - 1) / v_p)
    share = n / n.sum()
    mean = (share * mu).sum(0)
    v_mixture = (share * (v + (mu - mean) ** 2)).sum(0)
    w = 0.5 * (v_p.log() - v.log())
    v_robust = 1 / ((w / v).sum(0) + (1 - w.sum(0)) / v_p)
    w1 = w / w.sum(0)
    v_generalised = 1 / (w1 / v).sum(0)
    return {
        "product": Gaussian(v_product * ((mu / v).sum(0) - (sites - 1) * mu_p / v_p), v_product),
        "mixture": Gaussian(mean, v_mixture),
        "robust": Gaussian(
            v_robust * ((w * mu / v).sum(0) + (1 - w.sum(0)) * mu_p / v_p), v_robust
        ),
        "generalised": Gaussian(v_generalised * (w1 * mu / v).sum(0), v_generalised),
    }


def from_sums(committee: Committee) -> dict[str, Gaussian]:
    return {
        "product": product(committee, PRIOR),
        "mixture": mixture(committee),
        "robust": robust(committee, PRIOR),
        "generalised": generalised(committee, PRIOR),
    }


@settings(max_examples=25)
@given(sites=st.integers(1, 7), seed=st.integers(0, 100))
def test_sums_over_sites_give_what_all_predictions_in_one_place_give(sites: int, seed: int) -> None:
    opinions = Opinions.of(sites, seed=seed)
    one_by_one = opinions.members()[0]
    for member in opinions.members()[1:]:
        one_by_one = one_by_one + member
    for committee in (opinions.committee(), one_by_one):
        found, expected = from_sums(committee), in_one_place(opinions)
        for name in expected:
            assert close(found[name], expected[name]), name


@settings(max_examples=25)
@given(seed=st.integers(0, 100))
def test_the_order_of_sites_does_not_matter(seed: int) -> None:
    opinions = Opinions.of(4, seed=seed)
    turned = Opinions(*(getattr(opinions, field.name).flip(0) for field in fields(opinions)))
    one, other = from_sums(opinions.committee()), from_sums(turned.committee())
    assert all(close(one[name], other[name]) for name in one)


def test_one_site_alone_is_believed() -> None:
    opinions = Opinions.of(1)
    said = Gaussian(opinions.means[0], opinions.variances[0])
    committee = opinions.committee()
    for found in (product(committee, PRIOR), mixture(committee), generalised(committee, PRIOR)):
        assert close(found, said)


def test_sites_that_know_nothing_say_the_prior() -> None:
    """This fails with [PredOneRound] eq. 4, which adds the prior's shift instead of subtracting."""
    nothing = Gaussian(PRIOR.mean.expand(5, 4, 2), PRIOR.variance.expand(5, 4, 2))
    committee = Committee.of(nothing, rows=torch.tensor([3, 1, 4, 1, 5]), prior=PRIOR)
    expected = Gaussian(PRIOR.mean.expand(4, 2), PRIOR.variance.expand(4, 2))
    for found in from_sums(committee).values():
        assert close(found, expected)


def test_a_site_that_knows_nothing_changes_neither_product_nor_robust() -> None:
    opinions = Opinions.of(3)
    joined = opinions.committee() + Committee.alone(
        Gaussian(PRIOR.mean.expand(6, 2), PRIOR.variance.expand(6, 2)), rows=50, prior=PRIOR
    )
    before, after = from_sums(opinions.committee()), from_sums(joined)
    for name in ("product", "robust", "generalised"):
        assert close(before[name], after[name])
    assert not close(before["mixture"], after["mixture"])


# -- products without a positive precision


def _unsure(scale: float = 5.0) -> Committee:
    opinions = Opinions.of(3)
    variances = opinions.variances.clone()
    variances[:, 0] = scale * PRIOR.variance
    return Committee.of(Gaussian(opinions.means, variances), rows=opinions.rows, prior=PRIOR)


def test_a_product_without_a_positive_precision_is_refused_by_name() -> None:
    with pytest.raises(ImproperProduct, match="2 of 12 predictions"):
        product(_unsure(), PRIOR)
    # Also at a precision of exactly 0: three sites at 3/2 of the prior's variance.
    with pytest.raises(ImproperProduct):
        product(_unsure(1.5), PRIOR)


@pytest.mark.parametrize("scale", [5.0, 1.5, 1.2])
def test_a_guarded_product_has_the_priors_variance_there_and_is_itself_elsewhere(
    scale: float,
) -> None:
    committee = _unsure(scale)
    guarded = product(committee, PRIOR, guard=Guard.PRIOR)
    assert torch.allclose(guarded.variance[0], PRIOR.variance)
    assert torch.allclose(guarded.mean[0], (committee.shift / committee.precision)[0])
    rest = product(Opinions.of(3).committee(), PRIOR)
    assert torch.allclose(guarded.mean[1:], rest.mean[1:])
    assert torch.allclose(guarded.variance[1:], rest.variance[1:])


def test_methods_with_weights_need_no_guard() -> None:
    committee = _unsure()
    for found in (generalised(committee, PRIOR), robust(committee, PRIOR)):
        assert torch.allclose(found.variance[0], PRIOR.variance)
        assert torch.allclose(found.mean[0], PRIOR.mean)


# -- β


def test_beta_goes_from_the_mixture_to_the_product_by_precisions() -> None:
    committee = Opinions.of(3).committee()
    ends = product(committee, PRIOR), mixture(committee)
    assert close(interpolated(*ends, 1.0), ends[0])
    assert close(interpolated(*ends, 0.0), ends[1])
    third = interpolated(*ends, 0.3)
    precision = 0.3 / ends[0].variance + 0.7 / ends[1].variance
    shift = 0.3 * ends[0].mean / ends[0].variance + 0.7 * ends[1].mean / ends[1].variance
    assert close(third, Gaussian(shift / precision, 1 / precision))
    # [PredBayes] eq. 4.8: the log density is that of both, interpolated, up to a constant in y.
    y = torch.linspace(-3, 3, 7).double()[:, None, None]
    apart = third.log_density(y) - 0.3 * ends[0].log_density(y) - 0.7 * ends[1].log_density(y)
    assert torch.allclose(apart, apart[:1].expand_as(apart))


def test_each_target_can_have_its_own_beta() -> None:
    committee = Opinions.of(3).committee()
    ends = product(committee, PRIOR), mixture(committee)
    both = interpolated(*ends, torch.tensor([0.2, 0.9]).double())
    for target, beta in enumerate((0.2, 0.9)):
        alone = interpolated(*ends, beta)
        assert torch.allclose(both.mean[:, target], alone.mean[:, target])


@pytest.mark.parametrize("beta", [-0.1, 1.1, float("nan")])
def test_beta_outside_of_its_range_is_refused(beta: float) -> None:
    committee = Opinions.of(3).committee()
    with pytest.raises(PredictionError, match="beta must be from 0"):
        interpolated(product(committee, PRIOR), mixture(committee), beta)


# -- theorems 2 to 5 of [PredBayes], with Gaussian processes at the sites

NOISE, SCALE = 0.2, 1.5
"""σ_o² and k(x, x)."""
GP_PRIOR = Gaussian(torch.zeros(1).double(), torch.full((1,), NOISE + SCALE).double())
CENTRES = torch.tensor([0.0, 30.0, 60.0, 90.0]).double()
"""Clusters that are practically independent under the kernel."""
SIZES = (40, 80, 160)


def _truth(x: Tensor) -> Tensor:
    return 1.0 + torch.sin(3 * x)


def _gp(x: Tensor, y: Tensor, queries: Tensor) -> Gaussian:
    """[PredBayes] eq. 4.3 and 4.4 with a squared exponential kernel."""

    def kernel(a: Tensor, b: Tensor) -> Tensor:
        return SCALE * torch.exp(-((a[:, None] - b) ** 2) / 2)

    gram = kernel(x, x) + NOISE * torch.eye(len(x)).double()
    across = kernel(queries, x)
    solved = torch.linalg.solve(gram, across.mT)
    variance = NOISE + SCALE - (across * solved.mT).sum(1)
    return Gaussian((across @ torch.linalg.solve(gram, y))[:, None], variance[:, None])


def _committees(*, homogeneous: bool, queries: Tensor) -> list[Committee]:
    """Four sites with growing numbers of rows, all in one cluster or each in its own."""
    found = []
    for size in SIZES:
        generator = torch.Generator().manual_seed(size)
        said = []
        for site in range(4):
            centre = CENTRES[0] if homogeneous else CENTRES[site]
            x = centre + 2 * torch.rand(size, generator=generator, dtype=torch.float64) - 1
            noise = torch.randn(size, generator=generator, dtype=torch.float64)
            said.append(_gp(x, _truth(x) + NOISE**0.5 * noise, queries))
        stacked = Gaussian(
            torch.stack([each.mean for each in said]),
            torch.stack([each.variance for each in said]),
        )
        rows = torch.full((4,), size)
        found.append(Committee.of(stacked, rows=rows, prior=GP_PRIOR))
    return found


def _approaches(found: list[Tensor], limit: Tensor | float) -> bool:
    """Return whether the largest gap halves or better as rows double twice, and ends within 5 %."""
    gaps = [float((each - limit).abs().max()) for each in found]
    return gaps[-1] < gaps[0] / 2 and gaps[-1] < 0.05 * float(torch.as_tensor(limit).max())


HERE = torch.tensor([-0.5, 0.0, 0.4]).double()


def test_theorem_2_the_product_is_too_sure_where_sites_know_the_same() -> None:
    committees = _committees(homogeneous=True, queries=HERE)
    found = [product(each, GP_PRIOR).variance for each in committees]
    assert all((each < NOISE).all() for each in found)
    limit = 1 / (4 / NOISE - 3 / (NOISE + SCALE))
    assert limit < NOISE
    assert _approaches(found, limit)
    # With a wide prior, by a factor of the number of sites; the mean is still right.
    wide = Gaussian(torch.zeros(1).double(), torch.full((1,), 1e9).double())
    last = product(committees[-1], wide)
    assert torch.allclose(last.variance, torch.tensor(NOISE / 4).double(), rtol=0.05)
    assert torch.allclose(last.mean[:, 0], _truth(HERE), atol=0.15)


def test_theorem_3_the_product_is_right_where_sites_know_different_things() -> None:
    committees = _committees(homogeneous=False, queries=HERE)
    found = [product(each, GP_PRIOR).variance for each in committees]
    assert _approaches(found, NOISE)


def test_theorem_4_the_mixture_is_right_where_sites_know_the_same() -> None:
    committees = _committees(homogeneous=True, queries=HERE)
    assert _approaches([mixture(each).variance for each in committees], NOISE)


def test_theorem_5_the_mixture_is_too_unsure_where_sites_know_different_things() -> None:
    """In [PredBayes] the excess is k(x, x)(1 − w), where w is the share of the rows that are near.

    Its proof uses w·f² for μ_mix², which is w²f²: the excess is larger by w(1 − w)f².
    """
    committees = _committees(homogeneous=False, queries=HERE)
    found = [mixture(each).variance for each in committees]
    assert all((each > NOISE + SCALE * 0.75).all() for each in found)
    excess = SCALE * 0.75 + 0.25 * 0.75 * _truth(HERE)[:, None] ** 2
    assert _approaches(found, NOISE + excess)


# -- Gaussians


def test_the_divergence_is_the_kullback_leibler_one() -> None:
    opinions = Opinions.of(2)
    first, second = (Gaussian(opinions.means[i], opinions.variances[i]) for i in (0, 1))
    expected = torch.distributions.kl_divergence(
        *(torch.distributions.Normal(each.mean, each.variance.sqrt()) for each in (first, second))
    )
    assert torch.allclose(divergence(first, second), expected)


@pytest.mark.parametrize("variance", [0.0, -1.0, float("nan"), float("inf")])
def test_impossible_predictions_are_refused(variance: float) -> None:
    with pytest.raises(PredictionError):
        Gaussian(torch.zeros(1), torch.tensor([variance]))


def test_a_committee_needs_rows_for_every_site() -> None:
    with pytest.raises(WrongShape, match="sites"):
        Committee.of(
            Gaussian(torch.zeros(2, 3, 1), torch.ones(2, 3, 1)),
            rows=torch.tensor([1, 2, 3]),
            prior=GP_PRIOR,
        )
