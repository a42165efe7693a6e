"""The form of a new session: a schema file and a few choices, as the API's request."""

from typing import Any

from fastapi.exceptions import RequestValidationError

from kernels.strict_json import parse_json
from service.http.forms import Fields
from service.routes.page.rendering import checked
from service.routes.page.typed_fields import number, without_empty
from service.sessions.sessions import NewSession

_OF_BUDGET = ("epsilon", "delta", "runs", "max_rows_per_patient")
_OF_COHORT = ("min_cohort", "max_colluders")
_LIMITS = ("max_sums", "max_features", "max_rows", "least_rows")


def entered(form: Fields) -> dict[str, str]:
    """Return what was entered, with the text of the file in the field for text.

    A browser never fills a file in again.
    """
    kept = {name: text for name, text in form.items() if name != "schema_file"}
    if form.get("schema_file", "").strip():
        kept["schema"] = form["schema_file"]
    return kept


def session_of(kept: Fields) -> NewSession:
    """Return the request for a session, or the API's error."""
    noisy = kept.get("privacy") == "noise"
    privacy: dict[str, object] = {"differential_privacy": noisy}
    if noisy:
        privacy |= {name: number(kept.get(name, "")) for name in _OF_BUDGET}
        privacy |= {"without_prospect": True} if kept.get("without_prospect") else {}
    privacy |= {name: number(kept.get(name, "")) for name in _OF_COHORT}
    plain: dict[str, object] = {
        "name": kept.get("name", "").strip(),
        "schema": _schema(kept.get("schema", "")),
        "members": number(kept.get("members", "")),
        "privacy": without_empty(privacy),
        "model": kept.get("model", ""),
        "sums": kept.get("sums", ""),
        # Hidden while noise is chosen, when no table is too small.
        "smallest_table": "" if noisy else number(kept.get("smallest_table", "")),
        **{name: number(kept.get(name, "")) for name in _LIMITS},
    }
    return checked(NewSession, without_empty(plain))


def _schema(text: str) -> dict[str, Any]:
    """Return the schema, or say where it is not JSON."""
    if not text.strip():
        raise _refused("choose a schema file, which `veilgp schema draft` drafts at a hospital")
    wrong: list[str] = []
    found = parse_json(text, "the schema", wrong)
    if wrong:
        raise _refused("; ".join(wrong))
    if not isinstance(found, dict):
        raise _refused('the schema must be a JSON object with "features" and "targets"')
    return found


def _refused(why: str) -> RequestValidationError:
    return RequestValidationError([{"loc": ("schema",), "msg": why}])
