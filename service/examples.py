"""An example of every operation; on a coordinator with the sample those of admins and callers work.

Each stands by itself: none needs another to have been tried before.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from service import sample


@dataclass(frozen=True)
class Example:
    """Parameters by name, the body; where there is neither, an answer."""

    parameters: Mapping[str, Any] = field(default_factory=dict)
    body: Any = None
    answer: Any = None


_TIME = "2027-01-15T08:00:00Z"
_OCTETS = "…"
_OF_SAMPLE = {"session_id": sample.SESSION}
_OF_NEW = {"session_id": sample.NEW}
_BY_ALIAS = {"name": sample.ALIAS, "version": sample.MODEL}
_IN_RUN = {"session_id": sample.RUNNING, "run_id": sample.OPEN_RUN}

EXAMPLES: Mapping[str, Example] = {
    "sessions_create": Example(body={"name": "Length of stay", **sample.STATED}),
    "sessions_every": Example(
        answer=[
            {
                "id": sample.SESSION,
                "name": "Sample",
                "seed": 7,
                "members": 5,
                "enrolled": {"approved": 5},
                "privacy": {
                    "differential_privacy": False,
                    "max_colluders": 1,
                    "min_cohort": 5,
                    "allow_shrinking": False,
                },
                "created_at": _TIME,
            }
        ]
    ),
    "sessions_one": Example(_OF_SAMPLE),
    "sessions_privacy": Example(_OF_SAMPLE),
    "sessions_remove": Example({"session_id": sample.DELETABLE}),
    "roster_invite": Example(_OF_NEW, body={"name": "Langeoog", "expires_in_s": 604800}),
    "roster_invited": Example(_OF_NEW),
    "roster_revoke": Example({**_OF_NEW, "invitation_id": sample.INVITATION}),
    "roster_roster": Example(_OF_SAMPLE),
    "roster_set_status": Example(
        {**_OF_NEW, "name": sample.PENDING_HOSPITAL}, body={"status": "approved"}
    ),
    "roster_roster_file": Example(_OF_SAMPLE),
    "runs_start": Example(_OF_SAMPLE, body={"kind": "train", "deadline_s": 3600}),
    "runs_list_runs": Example(_OF_SAMPLE),
    "runs_show": Example({"run_id": sample.RUN}),
    "runs_cancel": Example({"run_id": sample.OPEN_RUN}),
    "runs_retry": Example({"run_id": sample.FAILED_RUN}),
    "events_follow": Example({"run_id": sample.RUN, "last-event-id": "0" * 16}),
    "models_list_models": Example(
        answer=[
            {
                "id": sample.MODEL,
                "session": sample.SESSION,
                "run": sample.RUN,
                "created_at": _TIME,
                "aliases": [sample.ALIAS],
                "methods": [
                    {"method": "fedbnr", "ensembles": []},
                    {"method": "product", "ensembles": ["distilled"]},
                    {"method": "mixture", "ensembles": ["distilled"]},
                ],
                "open_members": 0,
            }
        ]
    ),
    "models_put_alias": Example({"alias": "stay"}, body={"model": sample.MODEL}),
    "models_delete_alias": Example({"alias": sample.OTHER_ALIAS}),
    "models_get_card": Example({"name": sample.ALIAS}),
    "models_get_artifact": Example({"name": sample.ALIAS}),
    "models_delete_model": Example({"name": sample.OLD_MODEL}),
    "callers_create": Example(body={"name": "Ward dashboard", "models": [sample.ALIAS]}),
    "callers_every": Example(
        answer=[
            {
                "id": sample.CALLER,
                "name": "Sample",
                "models": [sample.ALIAS],
                "created_at": _TIME,
                "expires_at": None,
                "revoked_at": None,
            }
        ]
    ),
    "callers_revoke": Example({"caller_id": sample.CALLER}),
    "public_sets_put": Example({"name": "stays"}, body={"columns": sample.PUBLIC_COLUMNS}),
    "public_sets_every": Example(
        answer=[
            {
                "name": sample.PUBLIC_SET,
                "columns": list(sample.PUBLIC_COLUMNS),
                "rows": 3,
                "created_at": _TIME,
            }
        ]
    ),
    "public_sets_remove": Example({"name": sample.PUBLIC_SET}),
    "predict_predict": Example(
        body={
            "model": sample.ALIAS,
            "records": sample.PATIENTS,
            "intervals": [0.9],
            "method": "fedbnr",
        }
    ),
    "inference_server": Example(answer={"name": "veilgp", "version": "0.1.0", "extensions": []}),
    "inference_live": Example(answer={"live": True}),
    "inference_ready": Example(answer={"ready": True}),
    "inference_describe": Example(_BY_ALIAS),
    "inference_model_ready": Example(_BY_ALIAS),
    "inference_infer": Example(
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
    "membership_enrol": Example(_OF_NEW, body={"invitation": "the secret after the # of a link"}),
    "membership_membership": Example(_OF_SAMPLE),
    "membership_refuse": Example(
        _OF_SAMPLE,
        body={
            "run": None,
            "code": "policy.rows",
            "detail": "The policy of this site asks for 50 rows of each ward.",
        },
    ),
    "rounds_next_item": Example({**_OF_SAMPLE, "wait": 5, "run": sample.RUN}),
    "rounds_broadcast": Example({**_IN_RUN, "address": "0" * 64}),
    "rounds_say": Example({**_IN_RUN, "wait": 5}, body=_OCTETS),
    "rounds_upload": Example({**_IN_RUN, "wait": 5}, body=_OCTETS),
    "open_samples_show": Example(
        {"session_id": sample.SESSION, "run_id": sample.RUN}, body=_OCTETS
    ),
    "open_samples_withdraw": Example(_OF_SAMPLE),
    "open_samples_shown": Example({"run_id": sample.RUN}),
    "anyone_protocol": Example(answer={"protocol": 1, "oldest": 1, "version": "0.1.0"}),
    "operations_healthz": Example(answer={"status": "ok"}),
    "operations_readyz": Example(
        answer={
            "status": "ok",
            "checks": {"database": "ok", "migrations": "ok", "disk": "ok", "engine": "ok"},
        }
    ),
    "operations_metrics": Example(
        answer="# HELP veilgp_sums Secure sums of all runs.\n"
        "# TYPE veilgp_sums gauge\n"
        "veilgp_sums 28.0\n"
    ),
}
