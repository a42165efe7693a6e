"""The body of `POST /sessions`, read at a hospital: the program and terms of a session to be.

The coordinator makes the same of it. It is read here so that a hospital can try its table on a
session that somebody proposes, before there is one (`veilgp check session.json TABLE`).
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from client_sdk.errors import DraftError
from kernels.features.spec import VERSION as KERNEL_VERSION
from kernels.rounds.automatic import MAX_FEATURES, MAX_SUMS
from kernels.rounds.noise_planning import with_noise
from kernels.rounds.order import whole_program
from kernels.rounds.program import Program
from kernels.rounds.registry import ALGORITHMS
from kernels.rounds.sized import check_fits_smallest, sized_program
from kernels.strict_json import encode_json
from kernels.tables.schema import Schema
from privacy.accounting.promises import planned_noise
from privacy.securesum.terms import Terms, default_terms

_NO_SESSION = bytes(16)


def program_and_terms(text: str) -> tuple[Program, Terms]:
    """Return the program and terms of a session that would be made of this body."""
    try:
        body = json.loads(text)
        terms = _terms(body)
        program = _program(body, terms)
        return _with_noise(program, body), terms
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise DraftError(
            "this is not the body of POST /sessions, as `veilgp session draft` prints it "
            f"({type(error).__name__}: {error})"
        ) from error


def _terms(body: Mapping[str, Any]) -> Terms:
    privacy = body["privacy"]
    private = bool(privacy["differential_privacy"])
    terms = default_terms(
        _NO_SESSION,
        body["members"],
        differential_privacy=private,
        blind=body.get("sums", "open" if private else "blind") == "blind",
        members_only=body["model"] == "members",
    )
    if privacy.get("max_colluders") is not None:
        colluders = privacy["max_colluders"]
        least = max(terms.min_cohort, colluders + 2)
        terms = replace(terms, max_colluders=colluders, min_cohort=least)
    if privacy.get("min_cohort") is not None:
        terms = replace(terms, min_cohort=privacy["min_cohort"])
    terms.check()
    return terms


def _program(body: Mapping[str, Any], terms: Terms) -> Program:
    schema = Schema.from_json(json.dumps({"version": Schema.VERSION, **body["schema"]}))
    stated = {name: body[name] for name in ("max_rows", "held_out", "least_rows") if name in body}
    smallest = body.get("smallest_table")
    if body.get("stages") is None:
        return _made(schema, body, terms, stated, smallest)
    defaults = {"version": KERNEL_VERSION, "inputs": len(schema.feature_names)}
    choices = [{**defaults, **own} for own in body.get("choices") or ()]
    kernel = {**defaults, **body["kernel"]} if body.get("kernel") else (choices or [defaults])[0]
    stages = [
        {
            "algorithm": own["algorithm"],
            "version": own.get("version") or _version(own["algorithm"]),
            "parameters": own.get("parameters", {}),
        }
        for own in body["stages"]
    ]
    document = {
        "version": Program.VERSION,
        "schema": schema.to_json(),
        "kernel": encode_json(kernel),
        "choices": [encode_json(own) for own in choices],
        "stages": stages,
        "max_rows": Program.max_rows,
        "held_out": Program.held_out,
        "least_rows": Program.least_rows,
        **stated,
    }
    program = Program.from_json(encode_json(document))
    whole_program.check(program)
    if smallest is not None:
        check_fits_smallest(program, smallest)
    return program


def _made(
    schema: Schema,
    body: Mapping[str, Any],
    terms: Terms,
    stated: Mapping[str, Any],
    smallest: int | None,
) -> Program:
    limits: dict[str, Any] = {
        "min_sites": terms.min_cohort,
        "max_sums": body.get("max_sums") or MAX_SUMS,
        "max_features": body.get("max_features") or MAX_FEATURES,
    }
    return sized_program(
        schema,
        smallest_table=smallest,
        private=terms.differential_privacy,
        members=terms.min_cohort,
        **limits,
        **stated,
    )


def _with_noise(program: Program, body: Mapping[str, Any]) -> Program:
    privacy = body["privacy"]
    if not privacy["differential_privacy"]:
        return program
    noise = partial(
        planned_noise,
        epsilon=privacy["epsilon"],
        delta=privacy["delta"],
        runs=privacy.get("runs") or 1,
    )
    return with_noise(program, noise, max_rows_per_patient=privacy.get("max_rows_per_patient") or 1)


def _version(name: str) -> int:
    algorithm = ALGORITHMS.get(name)
    return 0 if algorithm is None else algorithm.VERSION
