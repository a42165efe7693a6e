"""The card of a model: what a person or a program should know of it without loading it.

Pure data, JSON, versioned. It names the bytes that it belongs to by their SHA-256, and the model's
id is a hash of its own canonical text: one id fixes both, to the last bit (floats keep theirs in
JSON). A card that is read is not trusted: it has exactly the fields of `Card` and of its sections,
each of its type, or it is refused. What it says of quality and privacy is the coordinator's word.
"""

import hashlib
import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Self

from kernels.errors import ArtifactError, DamagedArtifact, NewerArtifact, OlderArtifact
from kernels.features.spec import KernelSpec
from kernels.model.card_sections import Evaluation, Law, Layer, Privacy, Served
from kernels.model.typed_json import from_plain, to_plain
from kernels.strict_json import encode_json, parse_json
from kernels.tables.schema import Schema
from kernels.tables.standardiser import Standardiser

ID_DIGITS = 32
"""Hexadecimal digits of a model's id: no second model with a given id is found in 2¹²⁸ tries."""

_DIGEST = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, kw_only=True)
class Card:
    """All that is said of a model.

    created: when, ISO 8601 with its offset. veilgp: the version that wrote it.
    artifact: SHA-256 of the model's bytes, in hex. parent: the id of the model it started from.
    program: the text of the program that made it, and its SHA-256.
    members: hospitals. sums: how many secure sums. rows: training rows in all.
    methods: those that it predicts by, its default first.
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
    layer: tuple[Layer, ...]
    recalibration: tuple[Law, ...] | None
    evaluation: Evaluation | None
    privacy: Privacy
    methods: tuple[Served, ...]

    FORMAT: ClassVar[str] = "veilgp model"
    VERSION: ClassVar[int] = 2

    def __post_init__(self) -> None:
        if not _DIGEST.fullmatch(self.artifact):
            raise ArtifactError("a card names its model's bytes by a SHA-256 of 64 hex digits")
        if not _is_time(self.created):
            raise ArtifactError("a card was created at a time in ISO 8601, with its offset")
        if digest(self.program.encode(errors="replace")) != self.program_digest:
            raise DamagedArtifact("the card's program is not the one that its digest is of")
        if not self.methods:
            raise ArtifactError("a card names at least one method that its model predicts by")
        names = [target.name for target in self.schema.targets]
        evaluation = self.evaluation
        lists: list[Any] = [self.layer, self.recalibration]
        if evaluation:
            lists += [evaluation.gaussian, evaluation.recalibrated]
            lists += [each.quality for each in evaluation.students]
            judged = [each.method for each in evaluation.students]
            if [each.method for each in self.methods if each.ensemble] != judged and judged:
                raise ArtifactError("a card judges every student of its model once, in order")
        if any(each is not None and [own.name for own in each] != names for each in lists):
            raise ArtifactError("a card describes each target of its schema once, in order")
        if evaluation and evaluation.conformal and len(evaluation.conformal) != len(names):
            raise ArtifactError("a card has one conformal curve for each target of its schema")

    @property
    def id(self) -> str:
        """The model's id: a hash of the card, and by the card's `artifact` of the bytes."""
        return digest(self.to_json().encode())[:ID_DIGITS]

    def to_plain(self) -> dict[str, Any]:
        """Return the card as a JSON object."""
        plain: dict[str, Any] = to_plain(self)
        return {"format": self.FORMAT, "version": self.VERSION, **plain}

    def to_json(self) -> str:
        """Return the one canonical JSON form."""
        return encode_json(self.to_plain())

    @classmethod
    def from_plain(cls, plain: object) -> Self:
        """Read a card that came as a JSON object; it is not trusted."""
        try:
            text = encode_json(plain)
        except (TypeError, ValueError, RecursionError) as problem:
            raise ArtifactError("the card is not an object of JSON's own types") from problem
        return cls.from_json(text)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read a card; `text` is not trusted."""
        wrong: list[str] = []
        plain = parse_json(text, "the card", wrong)
        if wrong or not isinstance(plain, dict) or plain.pop("format", None) != cls.FORMAT:
            raise ArtifactError("; ".join(wrong) or "this is not the card of a veilgp model")
        _check_version(plain.pop("version", None), cls.VERSION)
        card: Self = from_plain(cls, plain, "the card")
        return card


def digest(data: bytes) -> str:
    """Return the SHA-256 in hex."""
    return hashlib.sha256(data).hexdigest()


def _check_version(version: object, here: int) -> None:
    if type(version) is not int:
        raise ArtifactError("the card does not say which version of the format it has")
    if version > here:
        raise NewerArtifact(
            f"this model has format {version}, and the last that this veilgp reads is {here}: "
            "upgrade veilgp on this machine"
        )
    if version < here:
        raise OlderArtifact(
            f"this model has format {version}, and this veilgp reads {here}: upgrade veilgp at "
            "the coordinator, and fetch the model again"
        )


def _is_time(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False
