"""The body of `POST /sessions` for a schema, with the automatic program written out, to be edited.

Sent unchanged it makes the session that the coordinator would make without kernel and stages.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from client_sdk.errors import DraftError
from client_sdk.readable import readable
from kernels.rounds.automatic import MAX_FEATURES, MAX_SUMS
from kernels.rounds.in_words import in_words
from kernels.rounds.noise_planning import with_noise
from kernels.rounds.order import whole_program
from kernels.rounds.program import Program
from kernels.rounds.sized import sized_program
from kernels.tables.schema import Schema
from privacy.accounting.promises import planned_noise
from privacy.securesum.terms import default_terms

_NO_SESSION = bytes(16)
_LONGEST_NAME = 200
"""Most bytes of a session's name."""


@dataclass(frozen=True)
class SessionDraft:
    """The body of the request, the program that it makes, and sentences on what it does."""

    body: Mapping[str, Any]
    program: Program
    words: tuple[str, ...]

    def to_json(self) -> str:
        """Return the body as indented JSON, for editing."""
        return json.dumps(self.body, indent=2, ensure_ascii=False)


def draft_session(
    schema: Schema,
    *,
    members: int,
    name: str | None = None,
    budget: tuple[float, float] | None = None,
    members_only: bool = False,
    max_sums: int = MAX_SUMS,
    max_features: int = MAX_FEATURES,
    smallest_table: int | None = None,
) -> SessionDraft:
    """Return the draft of a session over a schema.

    name: by default the names of the targets. budget: ε and δ, for differential privacy.
    members_only: only hospitals get the model. max_sums: the most sums; with fewer, kernels are
    trained in fewer steps. max_features: the most features of a kernel. smallest_table: how many
    rows the smallest hospital has, as a power of two; the program is made to fit it.
    """
    private = budget is not None
    if private and members_only:
        raise DraftError(
            "with differential privacy the coordinator computes the model, so it cannot be for "
            "members only: the model must be served"
        )
    terms = default_terms(
        _NO_SESSION,
        members,
        differential_privacy=private,
        blind=not private,
        members_only=members_only,
    )
    terms.check()
    if members < terms.min_cohort:
        raise DraftError(f"members must be at least {terms.min_cohort}, not {members}")
    if private and smallest_table is not None:
        raise DraftError(
            "with differential privacy hospitals ask for no least number of rows: leave "
            "smallest_table out"
        )
    limits: dict[str, Any] = {
        "min_sites": terms.min_cohort,
        "max_sums": max_sums,
        "max_features": max_features,
    }
    program = sized_program(
        schema, smallest_table=smallest_table, private=private, members=terms.min_cohort, **limits
    )
    whole_program.check(program)
    stages = [
        {"algorithm": algorithm.NAME, "version": algorithm.VERSION, "parameters": asdict(spec)}
        for algorithm, spec in program.algorithms()
    ]
    privacy: dict[str, object] = {"differential_privacy": private}
    if budget is not None:
        epsilon, delta = budget
        privacy |= {"epsilon": epsilon, "delta": delta}
        if schema.patient is not None:
            privacy["max_rows_per_patient"] = 1
        noise = partial(planned_noise, epsilon=epsilon, delta=delta)
        program = with_noise(program, noise)
    body = {
        "name": _name(schema) if name is None else name,
        "schema": json.loads(schema.to_json()),
        **_kernels(program),
        "stages": stages,
        "max_rows": program.max_rows,
        "held_out": program.held_out,
        "least_rows": program.least_rows,
        "members": members,
        "privacy": privacy,
        "model": "members" if members_only else "served",
    }
    words = in_words(
        program,
        blind=terms.blind,
        members_only=members_only,
        budget=None if budget is None else (*budget, 1),
    )
    return SessionDraft(body, program, words)


def _kernels(program: Program) -> dict[str, object]:
    """Return the kernel, or the kernels that a search chooses from."""
    if program.choices:
        return {"choices": [json.loads(own.to_json()) for own in program.choices]}
    return {"kernel": json.loads(program.kernel.to_json())}


def _name(schema: Schema) -> str:
    """Return the targets' names, as a session may be called: without a slash, and not too long."""
    names = " and ".join(readable(target.name) for target in schema.targets)
    return names.replace("/", " per ").encode()[:_LONGEST_NAME].decode(errors="ignore").strip()
