"""A finished model as a file: bytes that a coordinator stores and serves, and their card.

The bytes are a safetensors file, `storage.encode` of the model, without what the coordinator keeps
to itself: the sums from which students were distilled. Reading builds only known plain data and
checks it: the SHA-256 in the card detects a changed byte, the parts of a model must be consistent,
and the card must describe its model. One id, a hash of the card, identifies all of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Protocol, Self

from kernels import storage
from kernels.errors import ArtifactError, DamagedArtifact, KernelsError, StateError
from kernels.features.spec import KernelSpec
from kernels.model.card import NO_SALT, Card, digest
from kernels.model.card_sections import (
    Evaluation,
    Law,
    Layer,
    OutcomeLayer,
    Privacy,
    SecondKernel,
    Served,
)
from kernels.model.methods import methods_of
from kernels.model.model import (
    Model,
    check_predicts,
    is_fitted,
    is_kernel_alone,
    known,
    training_rows,
)
from kernels.model.stored import MODEL_KINDS
from kernels.tables.schema import Schema


class Program(Protocol):
    """The part of a program that a card needs (`kernels.rounds.program`)."""

    @property
    def schema(self) -> Schema:
        """The schema of its tables."""

    @property
    def kernels(self) -> Sequence[KernelSpec]:
        """The kernels that its model can have."""

    def to_json(self) -> str:
        """Return its canonical text."""


@dataclass(frozen=True, eq=False, repr=False)
class Artifact:
    """A model that can predict, its stored bytes, and its card."""

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
        salt: str = NO_SALT,
        score_noise: Mapping[str, float] | None = None,
    ) -> Self:
        """Return the artifact of a model that a program has finished.

        members: number of hospitals that took part. sums: number of secure sums of the run.
        created: with a time zone. parent: the id of the model that the run started from.
        salt: of the certificate that members have signed, in hex. score_noise: with differential
        privacy, the deviation of the noise in the blocks of the sum that the scores came from.
        """
        kernels = {own.kernel for own, _ in model.members}
        if program.schema != model.schema or not kernels <= set(program.kernels):
            raise ArtifactError(
                "program and model must have the same schema and kernel: pass the program that "
                "made this model"
            )
        if created.tzinfo is None:
            raise ArtifactError(
                "created must have a time zone; use for example datetime.now(timezone.utc)"
            )
        rows = training_rows(model)
        methods = Served.of(model)
        model = published(model)
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
            rows=rows,
            rows_error=rows_error(model),
            layer=Layer.of(model),
            second=SecondKernel.of(model),
            outcomes=OutcomeLayer.of(model),
            recalibration=Law.of(model),
            evaluation=Evaluation.of(model, score_noise),
            privacy=privacy,
            methods=methods,
            salt=salt,
        )
        # Read the card back, so that only a card that others can read is ever written.
        return cls(model, data, Card.from_plain(card.to_plain()))

    @property
    def id(self) -> str:
        """The model's id, 64 hexadecimal digits that identify the bytes and the card."""
        return self.card.id

    def to_bytes(self) -> bytes:
        """Return the safetensors file."""
        return self.data

    @classmethod
    def from_bytes(
        cls, data: bytes, card: Card | Mapping[str, object], *, expected_id: str | None = None
    ) -> Self:
        """Read a model and its card, neither of which is trusted.

        expected_id: the id of the requested model.
        """
        if not isinstance(card, Card):
            card = Card.from_plain(card)
        if expected_id is not None and card.id != expected_id:
            raise DamagedArtifact(
                f"the model {expected_id:.64} was requested, but this is the model {card.id}: "
                "fetch it again"
            )
        if digest(data) != card.artifact:
            raise DamagedArtifact(
                "the model's bytes do not match its card: they are damaged, or belong to another "
                "model; fetch both again"
            )
        model = _finished(storage.decode(data, storage.kinds_of(*MODEL_KINDS)))
        _check_described(model, card)
        return cls(model, data, card)

    def __repr__(self) -> str:
        return f"Artifact({self.id}, {len(self.data)} bytes)"


def published(model: Model) -> Model:
    """Return a model without what an artifact does not contain."""
    if model.distilled is None:
        return model
    return replace(model, distilled=model.distilled.published())


def _finished(model: object) -> Model:
    """Return a model with its posterior, computed here so that no prediction fails later."""
    if not isinstance(model, Model):
        raise StateError(f"these bytes contain a {type(model).__name__}, not a model")
    known(model.standardiser, "moments")
    if is_kernel_alone(model):
        return model
    check_predicts(model)
    try:
        if model.schema.real and is_fitted(model):
            for own, _ in model.members:
                known(own.posterior, "linear")
        for fitted in model.outcomes or ():
            for layer in fitted.layers:
                known(layer.posterior, "outcomes")
    except KernelsError:
        raise
    except RuntimeError as problem:  # LAPACK's, for numbers that no table can produce
        raise ArtifactError(
            "the eigenvalues of the model's statistics cannot be computed: the model is wrong, "
            "train it again"
        ) from problem
    return model


def _check_described(model: Model, card: Card) -> None:
    """Refuse the card of another model; recomputed numbers are not compared, for their rounding."""
    second = None if card.second is None else (card.second.kernel, card.second.share)
    is_so = None if model.second is None else (model.second.kernel, model.second.share)
    layers = [card.layer, *([] if card.second is None else [card.second.layer])]
    said = [[(own.noise_variance, own.prior_variance) for own in each] for each in layers]
    methods = tuple(served.method for served in card.methods)
    described = (card.schema, card.kernel, second, card.standardiser, card.rows, said)
    rows, outcomes = training_rows(model), OutcomeLayer.of(model)
    scales = [_scales(own) for own, _ in model.members]
    found = (model.schema, model.kernel, is_so, model.standardiser, rows, scales)
    if (*described, card.outcomes, methods) != (*found, outcomes, methods_of(model)):
        raise ArtifactError(
            "the card does not describe the model in the bytes: request both from the coordinator "
            "again"
        )


def rows_error(model: Model) -> float | None:
    """Return the deviation of the noise in a model's number of training rows, if there is any."""
    if model.statistics is not None:
        noise = model.statistics.noise
    elif model.outcomes is None:
        return None
    else:
        noise = known(model.outcomes, "outcomes")[0].layers[0].sums.noise
    return None if noise is None else noise.count


def _scales(model: Model) -> list[tuple[float, float]]:
    """Return σ² and λ² of each target that is a real number."""
    if not model.schema.real or not is_fitted(model):
        return []
    scales = known(model.hyperparameters, "linear")
    pairs = scales.noise_variance.tolist(), scales.prior_variance.tolist()
    return list(zip(*pairs, strict=True))
