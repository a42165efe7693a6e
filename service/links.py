"""What can be done with an answer: the contract's links between operations, in the order of use."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from service import sample


@dataclass(frozen=True)
class Link:
    """An operation that goes on with what an answer of this status gives."""

    operation: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    status: str = "200"


_ID = "$response.body#/id"
_FIRST_ID = "$response.body#/0/id"
_SESSION = {"session_id": _ID}
_SAME_SESSION = {"session_id": "$request.path.session_id"}
_RUN = {"run_id": _ID}


def _patients(model: str) -> Mapping[str, Any]:
    """Give what is asked of a model of the sample's columns."""
    return {"model": model, "records": sample.PATIENTS}


LINKS: Mapping[str, tuple[Link, ...]] = {
    "sessions_create": (
        Link("roster_invite", _SESSION, status="201"),
        Link("roster_roster", _SESSION, status="201"),
        Link("runs_start", _SESSION, status="201"),
        Link("sessions_one", _SESSION, status="201"),
        Link("sessions_privacy", _SESSION, status="201"),
        Link("sessions_remove", _SESSION, status="201"),
    ),
    "sessions_every": (
        Link("sessions_one", {"session_id": _FIRST_ID}),
        Link("sessions_privacy", {"session_id": _FIRST_ID}),
        Link("runs_list_runs", {"session_id": _FIRST_ID}),
    ),
    "roster_invite": (
        Link("roster_invited", _SAME_SESSION, status="201"),
        Link("roster_revoke", {**_SAME_SESSION, "invitation_id": _ID}, status="201"),
    ),
    "roster_invited": (Link("roster_revoke", {**_SAME_SESSION, "invitation_id": _FIRST_ID}),),
    "roster_roster": (
        Link("roster_set_status", {**_SAME_SESSION, "name": "$response.body#/0/name"}),
    ),
    "roster_set_status": (
        Link("roster_roster_file", _SAME_SESSION),
        Link("runs_start", _SAME_SESSION),
    ),
    "runs_start": (
        Link("runs_show", _RUN, status="201"),
        Link("events_follow", _RUN, status="201"),
        Link("runs_cancel", _RUN, status="201"),
        Link("runs_list_runs", _SAME_SESSION, status="201"),
    ),
    "runs_list_runs": (Link("runs_show", {"run_id": _FIRST_ID}),),
    "runs_show": (
        Link("events_follow", _RUN),
        Link("open_samples_shown", _RUN),
        Link("models_get_card", {"name": "$response.body#/model"}),
        Link("runs_retry", _RUN),
    ),
    "runs_cancel": (Link("runs_retry", _RUN),),
    "runs_retry": (
        Link("runs_show", _RUN, status="201"),
        Link("runs_cancel", _RUN, status="201"),
    ),
    "models_list_models": (
        Link("models_get_card", {"name": _FIRST_ID}),
        Link("models_get_artifact", {"name": _FIRST_ID}),
        Link("models_put_alias", body={"model": _FIRST_ID}),
        Link("models_delete_model", {"name": _FIRST_ID}),
    ),
    "models_put_alias": (
        Link("models_get_card", {"name": "$response.body#/alias"}),
        Link("inference_describe", {"name": "$response.body#/alias"}),
        Link("predict_predict", body=_patients("$response.body#/alias")),
        Link("models_delete_alias", {"alias": "$response.body#/alias"}),
    ),
    "models_get_card": (
        Link("models_get_artifact", {"name": "$request.path.name"}),
        Link("predict_predict", body=_patients("$request.path.name")),
    ),
    "callers_create": (Link("callers_revoke", {"caller_id": _ID}, status="201"),),
    "callers_every": (Link("callers_revoke", {"caller_id": _FIRST_ID}),),
    "public_sets_put": (Link("public_sets_remove", {"name": "$request.path.name"}, status="204"),),
    "public_sets_every": (Link("public_sets_remove", {"name": "$response.body#/0/name"}),),
    "inference_describe": (
        Link("inference_model_ready", {"name": "$response.body#/name"}),
        Link("inference_infer", {"name": "$response.body#/name"}),
    ),
    "membership_enrol": (Link("membership_membership", _SAME_SESSION, status="201"),),
    "membership_membership": (
        Link("rounds_next_item", _SAME_SESSION),
        Link("membership_refuse", _SAME_SESSION),
        Link("open_samples_withdraw", _SAME_SESSION),
    ),
    "rounds_next_item": (
        Link(
            "rounds_broadcast",
            {
                **_SAME_SESSION,
                "run_id": "$response.body#/run",
                "address": "$response.body#/broadcast",
            },
        ),
        Link("rounds_say", {**_SAME_SESSION, "run_id": "$response.body#/run"}),
        Link("rounds_upload", {**_SAME_SESSION, "run_id": "$response.body#/run"}),
        Link("open_samples_show", {**_SAME_SESSION, "run_id": "$response.body#/run"}),
    ),
}
