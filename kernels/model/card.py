"""The card of a model: what a person or a program should know about it without loading it.

Pure data, JSON, versioned. It identifies its model's bytes by their SHA-256, and the model's id is
a hash of the card's canonical text (RFC 8785): one id determines both, to the last bit (floats keep
every bit in JSON). A card that is read is not trusted: it is refused unless it has exactly the
fields of `Card` and of its sections, each with its type. Its statements about quality and privacy
are claims of the coordinator, which cannot be verified from the card.
"""

import hashlib
import json
import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, Self

from kernels.errors import ArtifactError, DamagedArtifact, NewerArtifact, OlderArtifact
from kernels.features.spec import KernelSpec
from kernels.model.card_sections import (
    Evaluation,
    Law,
    Layer,
    OutcomeLayer,
    Privacy,
    SecondKernel,
    Served,
)
from kernels.model.methods import FEDBNR
from kernels.model.typed_json import from_plain, to_plain
from kernels.strict_json import encode_json, parse_json
from kernels.tables.schema import Schema
from kernels.tables.standardiser import Standardiser
from kernels.tables.targets import kind_of

ID_DIGITS = 64
"""Hexadecimal digits of a model's id: all of the SHA-256. Hospitals compute with the model that an
id names, so two models must not share one: whoever chooses both needs 2¹²⁸ tries, and with half the
digits 2⁶⁴."""

NO_SALT = "0" * 64
"""The salt of a model that no member has signed."""

_DIGEST = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, kw_only=True)
class Card:
    """The description of a model.

    created: the time, ISO 8601 with an offset. veilgp: the version that wrote the card.
    artifact: SHA-256 of the model's bytes, in hex. parent: the id of the model it started from.
    program: the text of the program that made it, and its SHA-256.
    members: number of hospitals. sums: number of secure sums. rows: number of training rows in all;
    0 of a kernel alone.
    rows_error: the standard error of that number, if the sums had noise.
    layer: of the targets that are real numbers; empty for networks alone. outcomes: the layers of
    all other targets.
    second: of a model that predicts a mixture of two kernels, the other kernel and its layers.
    methods: its prediction methods, the default first.
    salt: of the commitments that members have signed (privacy/members/endorsement.py), in hex;
    `NO_SALT` if they have signed none. Whoever does not have it, as a coordinator whose members
    keep the model to themselves, cannot find the model by comparing guesses with its id.
    """

    created: str
    veilgp: str
    artifact: str
    parent: str | None
    schema: Schema
    kernel: KernelSpec
    standardiser: Standardiser
    program: str
    program_digest: str
    members: int
    sums: int
    rows: int
    rows_error: float | None
    layer: tuple[Layer, ...]
    second: SecondKernel | None
    outcomes: tuple[OutcomeLayer, ...]
    recalibration: tuple[Law, ...] | None
    evaluation: Evaluation | None
    privacy: Privacy
    methods: tuple[Served, ...]
    salt: str = field(repr=False)

    FORMAT: ClassVar[str] = "veilgp model"
    VERSION: ClassVar[int] = 8

    def __post_init__(self) -> None:
        if not _DIGEST.fullmatch(self.artifact):
            raise ArtifactError("the card's artifact must be a SHA-256 of 64 hex digits")
        if not _DIGEST.fullmatch(self.salt):
            raise ArtifactError("the card's salt must have 64 hex digits")
        if not _is_time(self.created):
            raise ArtifactError("the card's created must be a time in ISO 8601 with an offset")
        if digest(self.program.encode(errors="replace")) != self.program_digest:
            raise DamagedArtifact(
                "the card's program does not match its program_digest: fetch the model again"
            )
        if not self.methods and not self.kernel_alone:
            raise ArtifactError("the card's methods must list at least one method")
        names = [target.name for target in self.schema.real]
        evaluation = self.evaluation
        if self.kernel_alone:
            if self.rows or self.recalibration or evaluation:
                raise ArtifactError("the card of a kernel without layers has no rows and no scores")
            return
        lists: list[Any] = [self.recalibration]
        lists += [self.layer] if self.methods[0].method == FEDBNR else []
        lists += [] if self.second is None else [self.second.layer]
        if evaluation:
            lists += [evaluation.gaussian, evaluation.recalibrated]
            lists += [each.quality for each in evaluation.others]
            self._check_judged(evaluation)
        others = [(own.name, own.kind) for own in self.outcomes]
        if others != [(own.name, kind_of(own)) for own in self.schema.outcomes] or any(
            each is not None and [own.name for own in each] != names for each in lists
        ):
            raise ArtifactError("a card must describe each target of its schema once, in order")
        if evaluation and evaluation.conformal and len(evaluation.conformal) != len(names):
            raise ArtifactError(
                "the card's evaluation.conformal must have one curve for each target of its schema"
            )

    def _check_judged(self, evaluation: Evaluation) -> None:
        """Refuse scores of other methods than the model has."""
        default, *others = [each.method for each in self.methods]
        judged = [each.method for each in evaluation.others]
        if evaluation.method != default:
            raise ArtifactError("the card's evaluation.method must be the first of its methods")
        if judged and judged != others:
            raise ArtifactError(
                "the card's evaluation.others must list every other method once, in order"
            )

    @property
    def kernel_alone(self) -> bool:
        """Whether the model has no layer, so that every site fits its own to the kernel."""
        return not (self.methods or self.layer or self.outcomes)

    @property
    def id(self) -> str:
        """The model's id: a hash of the card, which includes the hash of the bytes (`artifact`)."""
        return digest(self.to_json().encode())[:ID_DIGITS]

    def to_plain(self) -> dict[str, Any]:
        """Return the card as a JSON object."""
        plain: dict[str, Any] = to_plain(self)
        return {"format": self.FORMAT, "version": self.VERSION, **plain}

    def to_json(self) -> str:
        """Return the canonical JSON."""
        return encode_json(self.to_plain())

    @classmethod
    def from_plain(cls, plain: object) -> Self:
        """Read a card from a JSON object, which is not trusted."""
        # Not encode_json, which refuses large integers: a JSON reader returns the float 1e17,
        # written without a point, as an integer, and from_json makes it a float again.
        try:
            text = json.dumps(plain, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as problem:
            raise ArtifactError(
                "the card must be a JSON object without NaN or infinite values"
            ) from problem
        return cls.from_json(text)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read a card; `text` is not trusted."""
        wrong: list[str] = []
        plain = parse_json(text, "the card", wrong)
        if wrong or not isinstance(plain, dict) or plain.pop("format", None) != cls.FORMAT:
            raise ArtifactError(
                "; ".join(wrong)
                or f"this is not the card of a veilgp model: its format must be {cls.FORMAT!r}"
            )
        _check_version(plain.pop("version", None), cls.VERSION)
        card: Self = from_plain(cls, plain, "the card")
        return card


def digest(data: bytes) -> str:
    """Return the SHA-256 in hex."""
    return hashlib.sha256(data).hexdigest()


def _check_version(version: object, here: int) -> None:
    if type(version) is not int:
        raise ArtifactError("the card's version must be an integer")
    if version > here:
        raise NewerArtifact(
            f"this model has format version {version}, and this version of veilgp reads {here}: "
            "upgrade veilgp on this machine"
        )
    if version < here:
        raise OlderArtifact(
            f"this model has format version {version}, and this version of veilgp reads {here}: "
            "upgrade veilgp at the coordinator, and fetch the model again"
        )


def _is_time(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False
