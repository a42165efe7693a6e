"""Sites that show their samples: one committee at any row, of exactly those that are in it."""

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from client_sdk.simulation import simulate
from kernels import storage
from kernels.ensembles.committee import (
    Committee,
    generalised,
    interpolated,
    mixture,
    product,
    robust,
)
from kernels.ensembles.distilled import Method
from kernels.ensembles.local_posterior import LocalPosterior
from kernels.errors import KernelsError, NotFitted, ProgramError, StateError
from kernels.model.model import Model
from kernels.rounds.ensemble import beta, open_ensemble, predictive
from kernels.rounds.ensemble.open_ensemble import (
    MOST_PARAMETER,
    OpenEnsemble,
    OpenSamples,
    asked,
    most_octets,
    open_stage,
    samples_of,
)
from kernels.rounds.ensemble.predictive import bounded, predict_at, prior_at
from kernels.rounds.program import Program
from kernels.rounds.site.site import Part, Site
from kernels.scores.gaussians import Gaussian
from tests.dealing import DEALING
from tests.kernels.rounds import tables
from tests.kernels.rounds.ensemble.test_predictive import SPEC
from tests.kernels.rounds.network_rows import without_rows

OPEN = replace(SPEC, open=True)
PROGRAM = tables.program(OPEN, beta.Spec())
SITES = 4


@cache
def finished() -> tuple[tuple[Site, ...], Model, tuple[OpenSamples, ...]]:
    """Sites, the model of a run over them, and what each of them shows."""
    sites = tuple(tables.site(20 + 10 * seed, seed=seed) for seed in range(SITES))
    model = simulate(PROGRAM, list(sites), DEALING, secure=False).model
    state = predictive.State(replace(model, distilled=None), OPEN)
    shown = [samples_of(state, site) for site in sites]
    return sites, model, tuple(own for own in shown if own is not None)


def rows(count: int = 7, seed: int = 3) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    inputs = PROGRAM.kernel.inputs
    return torch.randn(count, inputs, generator=generator, dtype=torch.float64)


def ensemble(*members: OpenSamples) -> OpenEnsemble:
    return OpenEnsemble.of(finished()[1], PROGRAM, members)


def one_by_one(members: tuple[OpenSamples, ...], x: torch.Tensor) -> dict[Method, Gaussian]:
    """Every method, of predictions that are made one member after the other."""
    _, model, _ = finished()
    prior = prior_at(model, OPEN, x)
    total: Committee | None = None
    for each in members:
        posterior = LocalPosterior(OPEN.network(model), each.samples, each.noise_variance)
        own = Committee.alone(bounded(posterior.predict(x)), rows=each.rows, prior=prior)
        total = own if total is None else total + own
    assert total is not None
    assert model.distilled is not None
    assert model.distilled.beta is not None
    ends = product(total, prior, guard=OPEN.guard), mixture(total)
    return {
        Method.PRODUCT: ends[0],
        Method.MIXTURE: ends[1],
        Method.BETA: interpolated(*ends, model.distilled.beta),
        Method.GPOE: generalised(total, prior),
        Method.RBCM: robust(total, prior),
    }


def close(left: Gaussian, right: Gaussian) -> bool:
    return torch.allclose(left.mean, right.mean, rtol=1e-9, atol=1e-10) and torch.allclose(
        left.variance, right.variance, rtol=1e-9
    )


# -- what it predicts


@settings(max_examples=15)
@given(
    who=st.permutations(range(SITES)),
    members=st.integers(1, SITES),
    kept=st.lists(st.integers(2, 4), min_size=SITES, max_size=SITES),
)
def test_one_batch_is_the_committee_made_one_by_one_in_any_order_and_of_any_number(
    who: list[int], members: int, kept: list[int]
) -> None:
    shown = finished()[2]
    chosen = tuple(replace(shown[i], samples=shown[i].samples[: kept[i]]) for i in who[:members])
    x = rows()
    expected, turned = one_by_one(chosen, x), ensemble(*reversed(chosen))
    for method, together in expected.items():
        assert close(ensemble(*chosen).predict(method, x), together), method
        assert close(turned.predict(method, x), together), method


def test_many_rows_are_predicted_in_pieces_and_none_are_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown, x = finished()[2], rows(50)
    whole = ensemble(*shown).predict(Method.PRODUCT, x)
    monkeypatch.setattr(open_ensemble, "_OUTPUTS", 64)
    assert close(ensemble(*shown).predict(Method.PRODUCT, x), whole)
    assert ensemble(*shown).predict(Method.BETA, x[:0]).mean.shape == (0, 2)


def test_what_a_site_shows_is_what_it_contributed_with() -> None:
    sites, model, shown = finished()
    inputs = OPEN.inputs(model)
    each = ensemble(*shown).each(inputs)
    for site, mean, variance in zip(sites, each.mean, each.variance, strict=True):
        said = bounded(predict_at(site, replace(model, distilled=None), OPEN, inputs))
        assert close(Gaussian(mean, variance), said)
    # So all of them together are what was summed, and what students were taught.
    assert model.distilled is not None
    assert model.distilled.opinion is not None
    for method in Method:
        taught = model.distilled.opinion.teacher(method, model.distilled.beta)
        found = ensemble(*shown).predict(method, inputs)
        assert torch.allclose(found.mean, taught.mean, atol=1e-7)
        assert torch.allclose(found.variance, taught.variance, rtol=1e-6)
    assert [own.rows for own in shown] == [site.count(Part.TRAINING) for site in sites]


def test_without_a_member_it_is_as_if_that_one_had_never_shown_anything() -> None:
    shown, x = finished()[2], rows()
    without = ensemble(*shown[1:])
    altered = replace(shown[0], samples=shown[0].samples + 1)
    for method in Method:
        assert not close(
            ensemble(*shown).predict(method, x), ensemble(altered, *shown[1:]).predict(method, x)
        )
        assert close(without.predict(method, x), one_by_one(shown[1:], x)[method])
    assert without.least_rows == min(own.rows for own in shown[1:])


def test_an_ensemble_of_nobody_predicts_nothing_and_one_of_one_is_that_sites_model() -> None:
    with pytest.raises(NotFitted, match="no site has sent"):
        ensemble().predict(Method.MIXTURE, rows())
    alone = ensemble(finished()[2][0])
    for method in (Method.PRODUCT, Method.MIXTURE, Method.GPOE):
        said = alone.each(rows())
        assert close(alone.predict(method, rows()), Gaussian(said.mean[0], said.variance[0]))


def test_beta_needs_the_stage_that_finds_it() -> None:
    _, model, shown = finished()
    assert model.distilled is not None
    without = replace(model, distilled=replace(model.distilled, beta=None))
    with pytest.raises(NotFitted, match="beta"):
        OpenEnsemble.of(without, PROGRAM, shown).predict(Method.BETA, rows())


# -- what a program asks for


def test_samples_are_asked_for_by_the_last_stage_that_distils_and_by_no_other() -> None:
    assert open_stage(PROGRAM) == 1
    assert open_stage(Program.from_json(PROGRAM.to_json())) == 1
    assert open_stage(tables.program(SPEC)) is None
    assert open_stage(tables.program(OPEN, SPEC)) is None
    assert open_stage(tables.program(SPEC, OPEN)) == 2
    with pytest.raises(ProgramError, match="does not request"):
        asked(tables.program(SPEC))
    assert len(finished()[2][0].to_bytes()) <= most_octets(PROGRAM)


def test_more_than_fits_is_refused_when_the_program_is_read() -> None:
    wide = replace(OPEN, hidden=(3000, 3000))
    with pytest.raises(ProgramError, match="fewer samples"):
        asked(tables.program(wide))


@pytest.mark.parametrize(
    "wrong", [{"open": 1}, {"open": "yes"}, {"open": True, "expert": "linear"}]
)
def test_open_is_a_flag_and_for_networks(wrong: dict[str, Any]) -> None:
    with pytest.raises(ProgramError, match="open"):
        replace(SPEC, **wrong)


def test_a_site_without_rows_shows_nothing() -> None:
    sites, model, _ = finished()
    state = predictive.State(replace(model, distilled=None), OPEN)
    assert samples_of(state, without_rows(sites[0])) is None


# -- bytes that are not trusted


def test_samples_survive_their_file() -> None:
    own = finished()[2][0]
    read = OpenSamples.from_bytes(own.to_bytes(), PROGRAM)
    assert read.rows == own.rows
    assert torch.equal(read.samples, own.samples)
    assert torch.equal(read.noise_variance, own.noise_variance)
    assert "0." not in repr(own)


def _changed(**parts: Any) -> bytes:
    """Give a file that no constructor has checked."""
    own = finished()[2][0]
    forged = object.__new__(OpenSamples)
    for name in OpenSamples.__dataclass_fields__:
        object.__setattr__(forged, name, parts.get(name, getattr(own, name)))
    return storage.encode(forged)


def _with(place: int, value: float) -> torch.Tensor:
    samples = finished()[2][0].samples.clone()
    samples.view(-1)[place] = value
    return samples


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: _changed(samples=_with(3, float("nan"))),
        lambda: _changed(samples=_with(-1, float("-inf"))),
        lambda: _changed(samples=_with(0, 2 * MOST_PARAMETER)),
        lambda: _changed(samples=finished()[2][0].samples.float()),
        lambda: _changed(samples=finished()[2][0].samples[:, :-1]),
        lambda: _changed(samples=finished()[2][0].samples[:1]),
        lambda: _changed(samples=finished()[2][0].samples.repeat(4, 1)),
        lambda: _changed(samples=finished()[2][0].samples[0]),
        lambda: _changed(samples=3),
        lambda: _changed(noise_variance=torch.zeros(2).double()),
        lambda: _changed(noise_variance=torch.ones(3).double()),
        lambda: _changed(noise_variance=torch.full((2,), 1e9).double()),
        lambda: _changed(noise_variance=None),
        lambda: _changed(rows=0),
        lambda: _changed(rows=True),
        lambda: _changed(rows=PROGRAM.max_rows + 1),
        lambda: storage.encode(finished()[1]),
        lambda: b"",
        lambda: b"\xff" * 64,
        lambda: (1 << 40).to_bytes(8, "little") + b"{}",
        lambda: finished()[2][0].to_bytes()[:-1],
        lambda: finished()[2][0].to_bytes() + b"\0",
    ],
)
def test_what_is_not_this_programs_samples_is_refused_by_name(wrong: Any) -> None:
    with pytest.raises(StateError):
        OpenSamples.from_bytes(wrong(), PROGRAM)


@settings(max_examples=60)
@given(place=st.integers(0, 4000), octet=st.integers(0, 255))
def test_any_octet_may_be_wrong_and_nothing_but_a_named_error_comes_of_it(
    place: int, octet: int
) -> None:
    data = bytearray(finished()[2][0].to_bytes())
    data[place % len(data)] = octet
    try:
        read = OpenSamples.from_bytes(bytes(data), PROGRAM)
    except KernelsError:
        return
    # What is read predicts: no site's samples can keep the others from it.
    others = finished()[2][1:]
    for method in Method:
        assert ensemble(read, *others).predict(method, rows()).mean.isfinite().all()


def test_the_worst_samples_that_are_taken_leave_predictions_finite() -> None:
    own = finished()[2][0]
    signs = torch.where(torch.arange(own.samples.numel()) % 3 == 0, -1.0, 1.0).double()
    worst = replace(own, samples=MOST_PARAMETER * signs.reshape(own.samples.shape))
    for method in Method:
        found = ensemble(worst, *finished()[2][1:]).predict(method, rows())
        assert found.mean.isfinite().all()


def test_the_worst_samples_of_the_deepest_network_leave_the_others_as_they_are() -> None:
    _, model, _ = finished()
    deep = replace(OPEN, hidden=(300,) * 30, most_samples=2)
    network = deep.network(model)
    noise = torch.ones(network.outputs).double()
    signs = torch.tensor([[1.0], [0.5]]).double()
    worst = OpenSamples(9, signs * torch.full((2, network.parameters), MOST_PARAMETER), noise)
    quiet = replace(worst, samples=worst.samples * 0)
    x, program = rows().abs(), tables.program(deep)
    alone = OpenEnsemble.of(model, program, [quiet]).each(x)
    both = OpenEnsemble.of(model, program, [quiet, worst]).each(x)
    for name in ("mean", "variance"):
        assert torch.equal(getattr(both, name)[:1], getattr(alone, name))
        assert getattr(both, name).isfinite().all()
