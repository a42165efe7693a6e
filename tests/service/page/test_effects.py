"""The page says what the columns of a served model do, to admins only, without waiting for it."""

import re
import time
from threading import Event

from kernels.model.effects import ColumnEffect, column_effects
from kernels.model.model import Model
from service.page.effect_plots import effect_plot, importance_plot, limits
from service.page.model_effects import ModelEffects
from tests.certified import certificate_of, signable
from tests.kernels.rounds import artifacts, every_kind
from tests.service.coordinator import Coordinator
from tests.service.page.browsing import page, signed_in
from tests.service.stored import add_caller, add_model, add_sealed


def section(coordinator: Coordinator, model: str, cookie: str) -> str:
    """Return the section of the effects once they are there; empty if there is none."""
    for _ in range(300):
        shown = page(coordinator, f"/view/models/{model}", cookie).text
        if "are being computed" not in shown:
            break
        time.sleep(0.1)
    found: str = shown.partition("<h2>What the columns do</h2>")[2].partition("</section>")[0]
    return found


def test_effects_of_every_target_are_shown_and_the_first_is_open(coordinator: Coordinator) -> None:
    session, cookie = coordinator.session(), signed_in(coordinator)
    made = every_kind.judged()
    shown = section(coordinator, add_model(coordinator, made, session), cookie)
    names = [target.name for target in made.card.schema.targets]
    assert f"<h3>{names[0]}</h3>" in shown
    assert re.findall(r"<summary><strong>(\w+)</strong>", shown) == names[1:]
    assert shown.count('role="img"') == len(names) * (1 + 3)
    for promised in (
        "What readmitted depends on: age ",
        "probability of readmitted = yes",
        "stay in d",
        "expected number of visits, for an exposure of 1",
        "risk of died by 30 d",
        "band band-2",
        "Mean stay by lactate: ",
        ">missing<",
        ">hospice<",
        "no row of a patient is read",
    ):
        assert promised in shown, promised
    assert "style=" not in shown


def test_one_target_has_no_heading_of_its_own(coordinator: Coordinator) -> None:
    session, cookie = coordinator.session(), signed_in(coordinator)
    model = add_model(coordinator, every_kind.artifact(every_kind.STAY), session)
    shown = section(coordinator, model, cookie)
    assert "<h3>" not in shown
    assert shown.count('role="img"') == 1 + 3


def test_a_model_that_is_not_served_has_no_effects(coordinator: Coordinator) -> None:
    session, cookie = coordinator.session(), signed_in(coordinator)
    model = add_model(coordinator, artifacts.artifact(), session, serve_uncertified=False)
    assert section(coordinator, model, cookie) == ""
    sealed = add_sealed(coordinator, session, certificate_of(signable(artifacts.artifact())))
    assert section(coordinator, sealed, cookie) == ""


def test_once_a_model_is_served_its_effects_are_there(coordinator: Coordinator) -> None:
    session, cookie = coordinator.session(), signed_in(coordinator)
    model = add_model(coordinator, artifacts.artifact(), session, serve_uncertified=False)
    assert section(coordinator, model, cookie) == ""
    allowed = coordinator.admin("PATCH", f"/models/{model}", {"serve_uncertified": True})
    assert allowed.status_code == 204
    assert "depends on" in section(coordinator, model, cookie)


def test_callers_do_not_see_them(coordinator: Coordinator) -> None:
    session = coordinator.session()
    model = add_model(coordinator, artifacts.artifact(), session)
    caller = add_caller(coordinator, model)
    for path in (f"/view/models/{model}", f"/models/{model}"):
        answer = coordinator.bearer(caller, "GET", path)
        assert "depends on" not in answer.text
        assert "deviation" not in answer.text


def test_a_page_does_not_wait_for_long_and_each_model_is_computed_once(
    coordinator: Coordinator,
) -> None:
    go, computed = Event(), []

    def slow(model: Model) -> tuple[ColumnEffect, ...]:
        computed.append(model)
        assert go.wait(60)
        return column_effects(model)

    session, cookie = coordinator.session(), signed_in(coordinator)
    model = add_model(coordinator, artifacts.artifact(), session)
    own = ModelEffects(coordinator.app.state.predictor, slow)
    coordinator.app.state.effects.stop()
    coordinator.app.state.effects = own
    assert own.get(model, wait_s=0.01) is None
    assert "are being computed" in page(coordinator, f"/view/models/{model}", cookie).text
    go.set()
    assert "depends on" in section(coordinator, model, cookie)
    assert own.get(model)
    assert len(computed) == 1


def test_names_and_levels_cannot_write_into_a_plot() -> None:
    (ward,) = column_effects(every_kind.judged().model, ["ward"])
    evil = "<script>"
    renamed = ColumnEffect(
        type(ward.column)(evil, (evil, "b " + evil)), (evil, "b " + evil), ward.targets
    )
    for own in ward.targets:
        heights = limits([own], shares=False)
        assert "<script>" not in effect_plot(renamed, own, heights, shares=False)
    assert "<script>" not in importance_plot(evil, [evil], [0.1], [0.1])
