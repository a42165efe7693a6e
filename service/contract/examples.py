"""An example of every operation; with the sample data, those of admins and callers work.

Each works on its own: none needs another one to be tried first.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from service import sample
from service.contract.program_examples import sessions


@dataclass(frozen=True)
class Example:
    """Parameters by name and the body; an answer for operations that have neither.

    bodies: several bodies by name, each with a sentence, instead of one.
    """

    parameters: Mapping[str, Any] = field(default_factory=dict)
    body: Any = None
    bodies: Mapping[str, tuple[str, Any]] = field(default_factory=dict)
    answer: Any = None


_TIME = "2027-01-15T08:00:00Z"
_OCTETS = "…"
_OF_SAMPLE = {"session_id": sample.SESSION}
_OF_NEW = {"session_id": sample.NEW}
_BY_ALIAS = {"name": sample.ALIAS, "version": sample.MODEL}
_IN_RUN = {"session_id": sample.RUNNING, "run_id": sample.OPEN_RUN}

EXAMPLES: Mapping[str, Example] = {
    "createSession": Example(bodies=sessions()),
    "listSessions": Example(
        answer=[
            {
                "id": sample.SESSION,
                "name": "Sample",
                "members": 5,
                "enrolled": {"approved": 5},
                "privacy": {
                    "differential_privacy": False,
                    "max_colluders": 1,
                    "min_cohort": 5,
                },
                "sums": "blind",
                "model": "served",
                "created_at": _TIME,
            }
        ]
    ),
    "getSession": Example(_OF_SAMPLE),
    "getPrivacyReport": Example(_OF_SAMPLE),
    "deleteSession": Example({"session_id": sample.DELETABLE}),
    "inviteMember": Example(_OF_NEW, body={"name": "Langeoog", "expires_in_s": 604800}),
    "listInvitations": Example(_OF_NEW),
    "revokeInvitation": Example({**_OF_NEW, "invitation_id": sample.INVITATION}),
    "listMembers": Example(_OF_SAMPLE),
    "setMemberStatus": Example(
        {**_OF_NEW, "name": sample.PENDING_HOSPITAL}, body={"status": "approved"}
    ),
    "getRoster": Example(_OF_SAMPLE),
    "startRun": Example(_OF_SAMPLE, body={"kind": "train", "deadline_s": 3600}),
    "listRuns": Example(_OF_SAMPLE),
    "getRun": Example({"run_id": sample.RUN}),
    "cancelRun": Example({"run_id": sample.OPEN_RUN}),
    "retryRun": Example({"run_id": sample.FAILED_RUN}),
    "streamRunEvents": Example({"run_id": sample.RUN, "last-event-id": "0" * 16}),
    "listModels": Example(
        answer=[
            {
                "id": sample.MODEL,
                "session": sample.SESSION,
                "run": sample.RUN,
                "created_at": _TIME,
                "aliases": [sample.ALIAS],
                "certified": True,
                "members_only": False,
                "methods": [
                    {"method": "fedbnr", "ensembles": []},
                    {"method": "product", "ensembles": ["distilled"]},
                    {"method": "mixture", "ensembles": ["distilled"]},
                ],
                "open_members": 0,
            }
        ]
    ),
    "setModelAlias": Example({"alias": "stay"}, body={"model": sample.MODEL}),
    "deleteModelAlias": Example({"alias": sample.OTHER_ALIAS}),
    "getModelCard": Example({"name": sample.ALIAS}),
    "downloadModel": Example({"name": sample.ALIAS}),
    "downloadCertificate": Example({"name": sample.ALIAS}),
    "downloadArchive": Example({"name": sample.ALIAS}),
    "allowUncertifiedModel": Example({"name": sample.MODEL}, body={"serve_uncertified": True}),
    "deleteModel": Example({"name": sample.OLD_MODEL}),
    "createCaller": Example(body={"name": "Ward dashboard", "models": [sample.ALIAS]}),
    "listCallers": Example(
        answer=[
            {
                "id": sample.CALLER,
                "name": "Sample",
                "models": [sample.ALIAS],
                "trusted": False,
                "created_at": _TIME,
                "expires_at": None,
                "revoked_at": None,
            }
        ]
    ),
    "revokeCaller": Example({"caller_id": sample.CALLER}),
    "storePublicSet": Example({"name": "stays"}, body={"columns": sample.PUBLIC_COLUMNS}),
    "listPublicSets": Example(
        answer=[
            {
                "name": sample.PUBLIC_SET,
                "columns": list(sample.PUBLIC_COLUMNS),
                "rows": 3,
                "created_at": _TIME,
            }
        ]
    ),
    "deletePublicSet": Example({"name": sample.PUBLIC_SET}),
    "predict": Example(
        body={
            "model": sample.ALIAS,
            "records": sample.PATIENTS,
            "intervals": [0.9],
            "method": "fedbnr",
        }
    ),
    "getServerMetadata": Example(answer={"name": "veilgp", "version": "0.1.0", "extensions": []}),
    "checkServerLive": Example(answer={"live": True}),
    "checkServerReady": Example(answer={"ready": True}),
    "getModelMetadata": Example(_BY_ALIAS),
    "checkModelReady": Example(_BY_ALIAS),
    "infer": Example(
        _BY_ALIAS,
        body={
            "inputs": [
                {"name": "age", "shape": [2], "datatype": "FP64", "data": [61, 78]},
                {"name": "lactate", "shape": [2], "datatype": "FP64", "data": [None, 2.4]},
                {
                    "name": "ward",
                    "shape": [2],
                    "datatype": "BYTES",
                    "data": ["medical", "surgical"],
                },
            ],
            "outputs": [{"name": "mean"}],
        },
    ),
    "readInvitation": Example(_OF_NEW, body={"invitation": "the part of the join link after #"}),
    "enrolMember": Example(_OF_NEW, body={"invitation": "the part of the join link after #"}),
    "getMembership": Example(_OF_SAMPLE),
    "reportRefusal": Example(
        _OF_SAMPLE,
        body={
            "run": None,
            "code": "policy.rows",
            "detail": "This site's policy requires at least 50 rows of each ward.",
        },
    ),
    "getNextItem": Example({**_OF_SAMPLE, "wait": 5, "run": sample.RUN}),
    "downloadTotal": Example({**_IN_RUN, "epoch": 0, "slot": 0}),
    "downloadState": Example({**_IN_RUN, "digest": "0" * 64}),
    "sendMessage": Example({**_IN_RUN, "wait": 5}, body=_OCTETS),
    "uploadVector": Example({**_IN_RUN, "wait": 5}, body=_OCTETS),
    "sendSealedState": Example({**_IN_RUN, "wait": 5}, body=_OCTETS),
    "downloadModelToEndorse": Example(_IN_RUN),
    "handOverModel": Example({**_IN_RUN, "wait": 5, "model": "0" * 64}, body=_OCTETS),
    "uploadUnmaskedSamples": Example(
        {"session_id": sample.SESSION, "run_id": sample.RUN}, body=_OCTETS
    ),
    "withdrawUnmaskedSamples": Example(_OF_SAMPLE),
    "listUnmaskedSamples": Example({"run_id": sample.RUN}),
    "getProtocol": Example(answer={"protocol": 2, "oldest": 2, "version": "0.1.0"}),
    "checkHealth": Example(answer={"status": "ok"}),
    "checkReadiness": Example(
        answer={
            "status": "ok",
            "checks": {"database": "ok", "migrations": "ok", "disk": "ok", "engine": "ok"},
        }
    ),
    "getMetrics": Example(
        answer="# HELP veilgp_sums Secure sums of all runs.\n"
        "# TYPE veilgp_sums gauge\n"
        "veilgp_sums 28.0\n"
    ),
}
