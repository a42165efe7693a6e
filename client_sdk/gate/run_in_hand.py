"""A run that this hospital takes part in, as it remembers it."""

import hashlib
from dataclasses import dataclass
from uuid import UUID

from kernels.rounds.program import Program
from kernels.strict_json import encode_json


@dataclass(frozen=True)
class RunInHand:
    """What a run computes, from which seed; `text` is its program as it was received."""

    session: UUID
    run: UUID
    kind: str
    text: str
    program: Program
    seed: int

    def parameters(self, stage: int) -> bytes:
        """Return what a task of this run says at a stage."""
        return encode_json(
            {
                "program": hashlib.sha256(self.text.encode()).hexdigest(),
                "run_kind": self.kind,
                "seed": self.seed,
                "stage": stage,
            }
        ).encode()
