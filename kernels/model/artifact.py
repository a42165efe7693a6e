"""A finished model as a file: bytes that a coordinator stores and serves, and a card beside them.

The bytes are a safetensors file, `storage.encode` of the model, without what the coordinator keeps
to itself: of students, the sums that they were distilled from. Reading them builds known plain
data and nothing else, and checks it: a wrong byte changes the SHA-256 that the card has, a wrong
model does not fit together, a wrong card does not describe its model. One id, a hash of the card,
stands for all of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Protocol, Self

from kernels import storage
from kernels.errors import ArtifactError, DamagedArtifact, KernelsError, StateError
from kernels.features.spec import KernelSpec
from kernels.model.card import Card, digest
from kernels.model.card_sections import Evaluation, Law, Layer, Privacy, Served
from kernels.model.methods import methods_of
from kernels.model.model import Model, known
from kernels.model.stored import MODEL_KINDS
from kernels.tables.schema import Schema


class Program(Protocol):
    """What a card says of the program that made a model (`kernels.rounds.program`)."""

    @property
    def schema(self) -> Schema:
        """Of its tables."""

    @property
    def kernel(self) -> KernelSpec:
        """Of its model."""

    def to_json(self) -> str:
        """Return its one canonical text."""


@dataclass(frozen=True, eq=False, repr=False)
class Artifact:
    """A model that can predict, the bytes that it is stored as, and its card."""

    model: Model
    data: bytes
    card: Card

    @classmethod
    def of(
        cls,
        model: Model,
        *,
        program: Program,
        members: int,
        sums: int,
        privacy: Privacy,
        created: datetime,
        parent: str | None = None,
    ) -> Self:
        """Describe a model that a program has finished.

        members: hospitals that took part. sums: secure sums of the run. created: with its zone.
        parent: the id of the model that the run started from.
        """
        if (program.schema, program.kernel) != (model.schema, model.kernel):
            raise ArtifactError("the program is not that of the model: another schema or kernel")
        if created.tzinfo is None:
            raise ArtifactError("created needs a time zone, so that it is one moment everywhere")
        statistics = known(model.statistics, "linear")
        methods = Served.of(model)
        if model.distilled is not None:
            model = replace(model, distilled=model.distilled.published())
        data, text = storage.encode(model), program.to_json()
        card = Card(
            created=created.astimezone(UTC).isoformat(),
            veilgp=version("veilgp"),
            artifact=digest(data),
            parent=parent,
            schema=model.schema,
            kernel=model.kernel,
            standardiser=known(model.standardiser, "moments"),
            program=text,
            program_digest=digest(text.encode()),
            members=members,
            sums=sums,
            rows=statistics.count,
            layer=Layer.of(model),
            recalibration=Law.of(model),
            evaluation=Evaluation.of(model),
            privacy=privacy,
            methods=methods,
        )
        # Whatever is written here can be read elsewhere.
        return cls(model, data, Card.from_plain(card.to_plain()))

    @property
    def id(self) -> str:
        """32 hexadecimal digits that stand for the bytes and the card."""
        return self.card.id

    def to_bytes(self) -> bytes:
        """Return the safetensors file."""
        return self.data

    @classmethod
    def from_bytes(
        cls, data: bytes, card: Card | Mapping[str, object], *, expected_id: str | None = None
    ) -> Self:
        """Read a model and its card, neither of them trusted.

        expected_id: the id that was asked for.
        """
        if not isinstance(card, Card):
            card = Card.from_plain(card)
        if expected_id is not None and card.id != expected_id:
            raise DamagedArtifact(
                f"this is the model {card.id} and not {expected_id:.40}, which was asked for: "
                "fetch it again"
            )
        if digest(data) != card.artifact:
            raise DamagedArtifact(
                "the model's bytes are not those that its card was made for: they are damaged, or "
                "of another model; fetch both again"
            )
        model = _finished(storage.decode(data, storage.kinds_of(*MODEL_KINDS)))
        _check_described(model, card)
        return cls(model, data, card)

    def __repr__(self) -> str:
        return f"Artifact({self.id}, {len(self.data)} bytes)"


def _finished(model: object) -> Model:
    """Return a model whose posterior exists, computed here so that no prediction fails later."""
    if not isinstance(model, Model):
        raise StateError("these bytes are a part of a model, not a model")
    known(model.standardiser, "moments")
    try:
        known(model.posterior, "linear")
    except KernelsError:
        raise
    except RuntimeError as problem:  # LAPACK's, of numbers that no table gives
        raise ArtifactError("the model's statistics have no eigenvalues") from problem
    return model


def _check_described(model: Model, card: Card) -> None:
    """Refuse a card that was made for another model; what is recomputed may differ by rounding."""
    statistics = known(model.statistics, "linear")
    hyperparameters = known(model.hyperparameters, "linear")
    said = [[own.noise_variance for own in card.layer], [own.prior_variance for own in card.layer]]
    is_so = [
        hyperparameters.noise_variance.tolist(),
        hyperparameters.prior_variance.tolist(),
    ]
    methods = tuple(served.method for served in card.methods)
    described = (card.schema, card.kernel, card.standardiser, card.rows, said, methods)
    found = (model.schema, model.kernel, model.standardiser, statistics.count, is_so)
    if described != (*found, methods_of(model)):
        raise ArtifactError(
            "the card describes another model than the bytes hold: ask the coordinator for both"
        )
