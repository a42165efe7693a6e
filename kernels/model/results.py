"""What a finished model releases about itself: its scores on held-out rows, and its rows.

Members sign it next to the model (privacy/members/endorsement.py). It is public: where the model is
for members only, the coordinator's page shows it. A program without an evaluation releases nothing.

Members compute the scores from the same totals, on different machines, and must sign the same text:
floats are rounded to nine significant digits.
"""

from dataclasses import dataclass
from typing import Any, Self

from kernels.errors import ArtifactError
from kernels.model.card_sections import Evaluation
from kernels.model.model import Model, training_rows
from kernels.model.typed_json import from_plain, to_plain
from kernels.strict_json import encode_json, parse_json


@dataclass(frozen=True, kw_only=True)
class Results:
    """Released results; rows: the number of training rows."""

    evaluation: Evaluation
    rows: int

    @classmethod
    def read(cls, data: bytes) -> Self | None:
        """Read what `released` returned; `data` is not trusted. None if nothing was released."""
        if not data:
            return None
        wrong: list[str] = []
        plain = parse_json(data.decode(errors="replace"), "the results", wrong)
        if wrong:
            raise ArtifactError("; ".join(wrong))
        results: Self = from_plain(cls, plain, "the results")
        return results


def released(model: Model) -> bytes:
    """Return the canonical JSON of a model's scores and number of rows; empty without scores."""
    evaluation = Evaluation.of(model)
    if evaluation is None:
        return b""
    return said(evaluation, training_rows(model))


def said(evaluation: Evaluation, rows: int) -> bytes:
    """Return the text that members sign about scores and rows."""
    plain = to_plain(Results(evaluation=evaluation, rows=rows))
    return encode_json(_rounded(plain)).encode()


def _rounded(plain: Any) -> Any:
    """Return plain data with every float rounded."""
    match plain:
        case dict():
            return {name: _rounded(value) for name, value in plain.items()}
        case list() | tuple():
            return [_rounded(value) for value in plain]
        case float():
            return float(f"{plain:.9g}")
    return plain
