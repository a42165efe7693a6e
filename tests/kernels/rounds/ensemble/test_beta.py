"""β from sums of slopes over the sites' held-out rows."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from client_sdk.simulation import simulate
from kernels import storage
from kernels.ensembles.distilled import Method
from kernels.ensembles.interpolation import fit_beta, slopes
from kernels.errors import NotFitted, ProgramError, StateError, StatisticsError
from kernels.model.model import Model
from kernels.rounds.ensemble import beta
from kernels.rounds.plan import stages_disclosed
from kernels.rounds.program import Program
from kernels.rounds.site.site import Part, Site
from kernels.scores.gaussians import Gaussian
from tests.conformance.algorithm import AdditiveOverRows, EqualToPooled
from tests.dealing import DEALING
from tests.kernels.rounds import sums, tables
from tests.kernels.rounds.ensemble.test_predictive import SPEC as PREDICTIVE

SPEC = beta.Spec(sums=2, points=9)


class TestBeta(AdditiveOverRows, EqualToPooled):
    algorithm = beta

    def spec(self) -> Any:
        return SPEC

    def model(self, sites: list[Site]) -> Model:
        return tables.fitted(sites, PREDICTIVE)


def _sites_and_model() -> tuple[list[Site], Model]:
    sites = [tables.site(60, seed=seed, held_out=0.5) for seed in range(3)]
    return sites, tables.fitted(sites, PREDICTIVE)


def test_beta_is_the_one_of_eq_4_11_on_all_sites_rows_in_one_place() -> None:
    sites, model = _sites_and_model()
    x, y = tables.together(sites).table(Part.STOPPING, model)
    ends = [model.distilled.predict(each, x) for each in (Method.PRODUCT, Method.MIXTURE)]
    expected = fit_beta(*ends, y)
    last = sums.after_all(beta, beta.Spec(), model, sites)
    found = last.model.distilled.beta
    assert torch.allclose(found, expected, atol=1e-4)
    assert ((last.low <= found) & (found <= last.high)).all()
    # How sure one can be of it: the curvature where it is.
    curvature = slopes(*ends, y, found.unsqueeze(0))[1][0]
    assert torch.allclose(last.curvature, curvature, rtol=0.02)


def test_there_is_a_student_of_the_beta_committee_beside_the_others() -> None:
    sites, model = _sites_and_model()
    distilled = sums.after_all(beta, SPEC, model, sites).model.distilled
    assert [each.method for each in distilled.students] == [*PREDICTIVE.methods, Method.BETA]
    opinion = distilled.opinion
    teacher = opinion.teacher(Method.BETA, distilled.beta)
    student = distilled.lesson.taught(distilled.spec, teacher, opinion.inputs)
    assert torch.equal(distilled.student(Method.BETA).parameters, student)
    ends = opinion.teacher(Method.PRODUCT), opinion.teacher(Method.MIXTURE)
    between = torch.lerp(ends[1].precision, ends[0].precision, distilled.beta)
    assert torch.allclose(teacher.precision, between)
    # Asked again, it replaces its student.
    again = sums.after_all(beta, SPEC, replace(model, distilled=distilled), sites)
    assert len(again.model.distilled.students) == len(distilled.students)


def test_each_sum_narrows_the_range_by_the_points_between() -> None:
    sites, model = _sites_and_model()
    state = beta.initial(SPEC, model)
    widths = []
    while not beta.finished(state):
        state = sums.after_one(beta, state, sites)
        widths.append((state.high - state.low).max().item())
    assert widths[0] <= 1 / 8 + 1e-12
    assert widths[1] <= 1 / 64 + 1e-12


def test_a_row_that_nobody_foresaw_does_not_decide_alone() -> None:
    y = torch.tensor([[1e4]]).double()
    ends = Gaussian(torch.zeros(1, 1), torch.full((1, 1), 1e-4)), Gaussian(0 * y, 0 * y + 1)
    betas = torch.linspace(0, 1, 5).double()[:, None]
    free, ended = (slopes(*ends, y, betas, most=most)[0] for most in (1e300, beta.ROW_BOUND))
    assert (free > 1e9).all()
    assert (ended == beta.ROW_BOUND).all()


def test_without_held_out_rows_or_students_it_says_what_is_missing() -> None:
    sites, model = _sites_and_model()
    bare = [Site({Part.TRAINING: site.records[Part.TRAINING]}) for site in sites]
    with pytest.raises(StatisticsError, match="held_out above 0"):
        sums.after_all(beta, SPEC, model, bare)
    with pytest.raises(NotFitted, match="predictive"):
        beta.initial(SPEC, replace(model, distilled=None))
    only = replace(model.distilled, students=model.distilled.students[:1])
    with pytest.raises(NotFitted, match="mixture"):
        beta.initial(SPEC, replace(model, distilled=only))


@pytest.mark.parametrize("wrong", [{"sums": 0}, {"points": 2}])
def test_impossible_parameters_are_refused_by_name(wrong: dict[str, int]) -> None:
    with pytest.raises(ProgramError, match=next(iter(wrong))):
        replace(SPEC, **wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"low": torch.zeros(3).double()},
        {"low": -torch.ones(2).double()},
        {"high": 2 * torch.ones(2).double()},
        {"low": torch.ones(2).double(), "high": torch.zeros(2).double()},
        {"asked": 3},
    ],
)
def test_a_range_that_is_none_is_refused(wrong: dict[str, Any]) -> None:
    _, model = _sites_and_model()
    with pytest.raises(StateError):
        replace(beta.initial(SPEC, model), **wrong)


def test_masks_change_nothing() -> None:
    program = Program.from_json(tables.program(PREDICTIVE, SPEC).to_json())
    assert (stages_disclosed(program)[2].sums, stages_disclosed(program)[2].numbers) == (2, 37)
    hidden, plain = (simulate(program, tables.tables(3), DEALING, secure=s) for s in (True, False))
    for one, other in zip(hidden.states, plain.states, strict=True):
        assert storage.encode(one) == storage.encode(other)
