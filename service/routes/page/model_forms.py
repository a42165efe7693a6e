"""Forms of models and callers: name a model, serve it, give out tokens for it, delete it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from starlette.responses import RedirectResponse

from service.context import Context, Here
from service.errors import NotAllowed
from service.http.forms import Browser, Fields, OwnForm, SignedIn
from service.page.model_effects import ModelEffects
from service.prediction.callers import NewCaller
from service.routes import callers, models
from service.routes.models import AliasIn, UncertifiedIn
from service.routes.page.reading import callers_page, model_page
from service.routes.page.rendering import HOME, PageRoute, Trouble, attempt, checked, rendered
from service.routes.page.typed_fields import number, without_empty
from service.routes.parts import EffectsHere, PredictorHere

router = APIRouter(include_in_schema=False, route_class=PageRoute)


@dataclass(frozen=True)
class ModelForm:
    """A form on a model's page, and what answering it needs; `name` is the model's id."""

    request: Request
    name: str
    browser: SignedIn
    fields: Fields
    here: Context
    known: ModelEffects

    def field(self, name: str) -> str:
        """Return a field; an absent one is empty."""
        return self.fields.get(name, "")

    def does(self, form: str, act: Callable[[], object]) -> Response:
        """Do something and show the model again; if it is refused, with the reason."""
        found = attempt(form, self.fields, act)
        if isinstance(found, Trouble):
            return self.refused(found)
        return RedirectResponse(f"/view/models/{self.name}", status_code=303)

    def refused(self, trouble: Trouble) -> Response:
        """Show the model with what is wrong with a form."""
        return model_page(self.request, self.name, self.browser, self.here, self.known, trouble)


async def _model_form(
    request: Request, name: str, browser: Browser, fields: OwnForm, here: Here, known: EffectsHere
) -> ModelForm:
    return ModelForm(request, name, browser, fields, here, known)


Sent = Annotated[ModelForm, Depends(_model_form)]


@router.post("/view/models/{name}/alias")
def give_alias(sent: Sent) -> Response:
    """Give a model a name, which it takes from any other model."""

    def point() -> object:
        new = checked(AliasIn, {"model": sent.name})
        return models.put_alias(sent.browser.token, sent.field("alias").strip(), new, sent.here)

    return sent.does("alias", point)


@router.post("/view/models/{name}/unname")
def remove_alias(sent: Sent) -> Response:
    """Take a name away from a model."""
    by, alias = sent.browser.token, sent.field("alias")
    return sent.does("alias", lambda: models.delete_alias(by, alias, sent.here))


@router.post("/view/models/{name}/serve")
def serve(sent: Sent) -> Response:
    """Serve a model that no quorum of hospitals has signed."""

    def allow() -> None:
        new = checked(UncertifiedIn, {"serve_uncertified": True})
        models.allow_uncertified(sent.browser.token, sent.name, new, sent.here)

    return sent.does("serve", allow)


@router.post("/view/models/{name}/token")
def make_caller(sent: Sent) -> Response:
    """Make a caller's token for a model; it is shown once."""

    def make() -> callers.CallerWithToken:
        plain = {
            "name": sent.field("name").strip(),
            "models": [sent.field("of") or sent.name],
            "expires_in_s": number(sent.field("expires_in_s")),
        }
        return callers.create(
            sent.browser.token, checked(NewCaller, without_empty(plain)), sent.here
        )

    made = attempt("token", sent.fields, make)
    if isinstance(made, Trouble):
        return sent.refused(made)
    base = (sent.here.settings.public_url or str(sent.request.base_url)).rstrip("/")
    return rendered(
        sent.request, "token.html", browser=sent.browser, caller=made, model=sent.name, base=base
    )


@router.post("/view/models/{name}/delete")
def delete(sent: Sent, predictor: PredictorHere) -> Response:
    """Delete a model for good."""

    def remove() -> None:
        if not sent.field("sure"):
            raise NotAllowed("Tick the box to delete the model for good, with all its names.")
        models.delete_model(sent.browser.token, sent.name, sent.here, predictor)

    found = attempt("delete", sent.fields, remove)
    if isinstance(found, Trouble):
        return sent.refused(found)
    return RedirectResponse(HOME, status_code=303)


@router.post("/view/callers")
def revoke_caller(request: Request, browser: Browser, fields: OwnForm, here: Here) -> Response:
    """Revoke a caller's token."""
    caller = fields.get("caller", "")
    found = attempt("callers", fields, lambda: callers.revoke(browser.token, caller, here))
    if isinstance(found, Trouble):
        return callers_page(request, browser, here, found)
    return RedirectResponse("/view/callers", status_code=303)
