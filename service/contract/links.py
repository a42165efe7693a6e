"""The contract's links: which operations can use an answer, in the order of use."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from service import sample


@dataclass(frozen=True)
class Link:
    """An operation that can use values of an answer with this status."""

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
    """Return a prediction request for a model with the sample's columns."""
    return {"model": model, "records": sample.PATIENTS}


LINKS: Mapping[str, tuple[Link, ...]] = {
    "createSession": (
        Link("inviteMember", _SESSION, status="201"),
        Link("listMembers", _SESSION, status="201"),
        Link("startRun", _SESSION, status="201"),
        Link("getSession", _SESSION, status="201"),
        Link("getPrivacyReport", _SESSION, status="201"),
        Link("deleteSession", _SESSION, status="201"),
    ),
    "listSessions": (
        Link("getSession", {"session_id": _FIRST_ID}),
        Link("getPrivacyReport", {"session_id": _FIRST_ID}),
        Link("listRuns", {"session_id": _FIRST_ID}),
    ),
    "inviteMember": (
        Link("listInvitations", _SAME_SESSION, status="201"),
        Link("revokeInvitation", {**_SAME_SESSION, "invitation_id": _ID}, status="201"),
    ),
    "listInvitations": (Link("revokeInvitation", {**_SAME_SESSION, "invitation_id": _FIRST_ID}),),
    "listMembers": (Link("setMemberStatus", {**_SAME_SESSION, "name": "$response.body#/0/name"}),),
    "setMemberStatus": (
        Link("getRoster", _SAME_SESSION),
        Link("startRun", _SAME_SESSION),
    ),
    "startRun": (
        Link("getRun", _RUN, status="201"),
        Link("streamRunEvents", _RUN, status="201"),
        Link("cancelRun", _RUN, status="201"),
        Link("listRuns", _SAME_SESSION, status="201"),
    ),
    "listRuns": (Link("getRun", {"run_id": _FIRST_ID}),),
    "getRun": (
        Link("streamRunEvents", _RUN),
        Link("listUnmaskedSamples", _RUN),
        Link("getModelCard", {"name": "$response.body#/model"}),
        Link("retryRun", _RUN),
    ),
    "cancelRun": (Link("retryRun", _RUN),),
    "retryRun": (
        Link("getRun", _RUN, status="201"),
        Link("cancelRun", _RUN, status="201"),
    ),
    "listModels": (
        Link("getModelCard", {"name": _FIRST_ID}),
        Link("downloadModel", {"name": _FIRST_ID}),
        Link("setModelAlias", body={"model": _FIRST_ID}),
        Link("downloadCertificate", {"name": _FIRST_ID}),
        Link("downloadArchive", {"name": _FIRST_ID}),
        Link("allowUncertifiedModel", {"name": _FIRST_ID}),
        Link("deleteModel", {"name": _FIRST_ID}),
    ),
    "setModelAlias": (
        Link("getModelCard", {"name": "$response.body#/alias"}),
        Link("getModelMetadata", {"name": "$response.body#/alias"}),
        Link("predict", body=_patients("$response.body#/alias")),
        Link("deleteModelAlias", {"alias": "$response.body#/alias"}),
    ),
    "getModelCard": (
        Link("downloadModel", {"name": "$request.path.name"}),
        Link("predict", body=_patients("$request.path.name")),
    ),
    "createCaller": (Link("revokeCaller", {"caller_id": _ID}, status="201"),),
    "listCallers": (Link("revokeCaller", {"caller_id": _FIRST_ID}),),
    "storePublicSet": (Link("deletePublicSet", {"name": "$request.path.name"}, status="204"),),
    "listPublicSets": (Link("deletePublicSet", {"name": "$response.body#/0/name"}),),
    "getModelMetadata": (
        Link("checkModelReady", {"name": "$response.body#/name"}),
        Link("infer", {"name": "$response.body#/name"}),
    ),
    "readInvitation": (Link("enrolMember", _SAME_SESSION),),
    "enrolMember": (Link("getMembership", _SAME_SESSION, status="201"),),
    "getMembership": (
        Link("getNextItem", _SAME_SESSION),
        Link("reportRefusal", _SAME_SESSION),
        Link("withdrawUnmaskedSamples", _SAME_SESSION),
    ),
    "getNextItem": (
        Link("downloadTotal", {**_SAME_SESSION, "run_id": "$response.body#/run"}),
        Link("downloadState", {**_SAME_SESSION, "run_id": "$response.body#/run"}),
        Link("sendMessage", {**_SAME_SESSION, "run_id": "$response.body#/run"}),
        Link("uploadVector", {**_SAME_SESSION, "run_id": "$response.body#/run"}),
        Link("sendSealedState", {**_SAME_SESSION, "run_id": "$response.body#/run"}),
        Link("downloadModelToEndorse", {**_SAME_SESSION, "run_id": "$response.body#/run"}),
        Link("handOverModel", {**_SAME_SESSION, "run_id": "$response.body#/run"}),
        Link("uploadUnmaskedSamples", {**_SAME_SESSION, "run_id": "$response.body#/run"}),
    ),
}
