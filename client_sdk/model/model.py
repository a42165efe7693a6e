"""The global model at a hospital: it predicts locally, and no query leaves the hospital."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from client_sdk.errors import HomeDamaged, ModelNotCertified, UnknownTarget
from client_sdk.home.home import Home
from client_sdk.model import files
from client_sdk.model import gain as site_gain
from client_sdk.model.card import ModelCard
from client_sdk.model.effects import Effects, Importance, ModelEffects
from client_sdk.model.known_members import PathLike, known_members
from client_sdk.model.outcomes import Floats, OutcomePredictions, SurvivalCurves
from client_sdk.model.predictions import Intervals, Predictions
from client_sdk.model.vouching import read_certificate, vouched_for
from client_sdk.plots import calibration, reliability, roc, survival
from client_sdk.tables.hospital_table import site_of
from client_sdk.tables.opening import open_table
from client_sdk.tables.schema_stream import SchemaStream
from kernels.errors import KernelsError
from kernels.model.artifact import Artifact
from kernels.model.judged_outcome import JudgedOutcome
from kernels.model.methods import methods_of
from kernels.model.model import known
from kernels.model.prediction import predict
from kernels.rounds.program import Program
from kernels.rounds.site.dealing import Dealing
from kernels.rounds.site.site import Site
from kernels.tables.records import Records, read_in_pieces
from kernels.tables.schema import Schema
from kernels.tables.targets import AnyTarget, Binary, Classes, Count, Target, TimeToEvent
from privacy.errors import PrivacyError
from privacy.members.endorsement import ModelCertificate

_ESTIMATOR_TYPES = {
    Target: "regressor",
    Count: "regressor",
    Binary: "classifier",
    Classes: "classifier",
}
"""The kinds of targets as scikit-learn knows them; it has none for a time to an event."""


class GlobalModel:
    """The model that the hospitals trained; `join` returns it, `load` reads it from a folder."""

    def __init__(
        self,
        artifact: Artifact,
        certificate: ModelCertificate | None = None,
        *,
        names: Mapping[bytes, str] | None = None,
        home: PathLike | None = None,
    ) -> None:
        """Wrap a model that is trusted.

        names: those of known members, by key. home: that of this hospital.
        """
        self.artifact = artifact
        self._home = home
        self.certificate = certificate
        """The signatures of the hospitals that vouch for the model, or None."""
        self._names = names or {}
        self._effects = ModelEffects(artifact.model)

    @classmethod
    def from_artifact(
        cls,
        artifact: bytes,
        card: Mapping[str, object],
        *,
        certificate: bytes | None = None,
        expected_id: str | None = None,
        names: Mapping[bytes, str] | None = None,
        home: PathLike | None = None,
    ) -> Self:
        """Read a model from a coordinator; neither the bytes nor the card is trusted.

        certificate: if given, it must cover the model. Who the signers are is not checked here: as
        `join` does, compare the model with your own, or use `load`. expected_id: the id that was
        requested; a model with another id is refused. names: those of known members, by key. home:
        that of this hospital.
        """
        read = Artifact.from_bytes(artifact, card, expected_id=expected_id)
        signed = None if certificate is None else read_certificate(certificate, read)
        return cls(read, signed, names=names, home=home)

    @classmethod
    def load(
        cls,
        folder: str | Path,
        *,
        roster: PathLike | Mapping[str, bytes] | None = None,
        home: PathLike | None = None,
        uncertified: bool = False,
    ) -> Self:
        """Read a model that `save` wrote; refuse it unless hospitals known here vouch for it.

        roster: the hospitals that you trust, as a file or as keys by name. By default they are
        those whose keys were confirmed in the home (`VEILGP_HOME`, ~/.veilgp); a model that this
        home has computed itself needs no certificate. uncertified: accept any model.
        """
        artifact, data = files.load(Path(folder))
        if uncertified:
            return cls(artifact, _if_valid(data, artifact), home=home)
        members = known_members(roster, home)
        if artifact.id in members.obtained:
            return cls(artifact, _if_valid(data, artifact), names=members.names, home=home)
        if data is None:
            raise ModelNotCertified(
                f"the model in {folder} has no certificate, so no hospital vouches for it. Get it "
                "from a hospital that has its certificate, or load it all the same "
                "(uncertified=True, --uncertified)"
            )
        certificate = read_certificate(data, artifact)
        vouched_for(certificate, members)
        return cls(artifact, certificate, names=members.names, home=home)

    def save(self, folder: str | Path) -> None:
        """Write the model and its certificate to a folder; completely or not at all."""
        signed = None if self.certificate is None else self.certificate.encode()
        files.save(self.artifact, signed, Path(folder))

    @property
    def id(self) -> str:
        """The model's content address, the same everywhere."""
        return self.artifact.id

    @property
    def card(self) -> ModelCard:
        """The description of the model; print it, or show it in a notebook."""
        return ModelCard(self.artifact.card, self.certificate, names=self._names)

    @property
    def schema(self) -> Schema:
        """The columns that the model was trained on."""
        return self.artifact.model.schema

    @property
    def feature_names_in_(self) -> NDArray[np.object_]:
        """The columns that `predict` needs, under scikit-learn's name."""
        return np.array([column.name for column in self.schema.features], dtype=object)

    @property
    def n_features_in_(self) -> int:
        """The number of columns that `predict` needs."""
        return len(self.schema.features)

    @property
    def _estimator_type(self) -> str | None:
        """Return what scikit-learn calls this model; None if its targets are of several kinds."""
        kinds = {_ESTIMATOR_TYPES.get(type(target)) for target in self.schema.targets}
        return kinds.pop() if len(kinds) == 1 else None

    def __sklearn_tags__(self) -> Any:
        """Return scikit-learn's tags, by which `is_regressor` and `is_classifier` decide."""
        from sklearn.utils import ClassifierTags, InputTags, RegressorTags, Tags, TargetTags

        own = self._estimator_type
        return Tags(
            estimator_type=own,
            target_tags=TargetTags(required=False, multi_output=len(self.schema.targets) > 1),
            classifier_tags=ClassifierTags() if own == "classifier" else None,
            regressor_tags=RegressorTags() if own == "regressor" else None,
            input_tags=InputTags(allow_nan=True),
            requires_fit=False,
        )

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods that `predict` accepts, the default first."""
        return methods_of(self.artifact.model)

    def predict(self, data: object, *, method: str | None = None) -> Predictions:
        """Predict every row of a table; columns that the model does not know are ignored.

        method: one of `methods`. The table and the result are held in memory; features are computed
        for a few rows at a time.
        """
        records = Records.concatenate([*self._read(data)])
        return Predictions(predict(self.artifact.model, records, method=method))

    def predict_in_pieces(
        self, data: object, *, method: str | None = None
    ) -> Iterator[Predictions]:
        """Yield predictions for consecutive rows; only one piece of the table is in memory.

        A table that does not match the schema is refused at its end, with all problems: discard the
        predictions that were yielded before.
        """
        for records in self._read(data):
            yield Predictions(predict(self.artifact.model, records, method=method))

    def intervals(
        self,
        data: object,
        level: float = 0.9,
        *,
        kind: str | None = None,
        method: str | None = None,
    ) -> Intervals:
        """Predict a table and return central intervals, as `Predictions.intervals` does."""
        return self.predict(data, method=method).intervals(level, kind=kind)

    def predict_proba(self, data: object, target: str | None = None) -> Floats:
        """Return the probability of each level, (n, K), in the order of the schema's levels.

        target: a yes or no or one of several classes, by default the only one that there is.
        """
        name = self._only((Binary, Classes), "yes or no, or one of several classes", target)
        return self._outcome(data, name).probabilities

    def survival(self, data: object, target: str | None = None) -> SurvivalCurves:
        """Return the edges and, (n, J), the probability that the event comes later than each.

        target: a time to an event, by default the only one that there is.
        """
        name = self._only((TimeToEvent,), "time to an event", target)
        return self._outcome(data, name).survival

    def _only(self, kinds: tuple[type[AnyTarget], ...], words: str, target: str | None) -> str:
        """Return the name of a target of some kinds: the stated one, or the only one."""
        there = [own.name for own in self.schema.outcomes if isinstance(own, kinds)]
        if target in there or (target is None and len(there) == 1):
            return target or there[0]
        listed = ", ".join(there) or "none"
        raise UnknownTarget(f"target must name a {words}; the model has {listed}")

    def _outcome(self, data: object, name: str) -> OutcomePredictions:
        found = self.predict(data)
        return next(own for own in found.outcomes if own.target.name == name)

    def _judged(self, name: str) -> JudgedOutcome:
        evaluation = known(self.artifact.card.evaluation, "evaluation")
        return next(own for own in evaluation.outcomes if own.name == name)

    def effects(
        self, columns: Sequence[str] | None = None, *, target: str | None = None
    ) -> Effects:
        """Return what columns do to the predictions of a target, from the model alone.

        For every column, the mean prediction over public reference rows along the column's range,
        and how uncertain the model is about this mean (`kernels.model.effects`). No row of any
        table is read. columns: by default the nine most important ones. target: by default the
        first. Only `fedbnr` has effects.
        """
        return self._effects.effects(columns, target=target)

    def importance(self, target: str | None = None) -> Importance:
        """Return how much every column matters to the predictions of a target, sorted.

        It is the share of the variance of predictions over public reference rows, whose columns are
        independent, that is due to the column. target: by default the first.
        """
        return self._effects.importance(target=target)

    def gain(self, data: object, *, home: PathLike | None = None) -> site_gain.Gain:
        """Return how this model compares with one of this hospital's own rows; print it.

        It is computed here and sent nowhere. data: the table that this hospital takes part with,
        of any kind, or a `Site`. Both models are judged by the rows that were held out, which the
        secret of the hospital's home tells: by default the home of `join`, VEILGP_HOME or
        ~/.veilgp. A table that was not trained on can be compared with any home.
        """
        if isinstance(data, Site):
            return site_gain.gain(self.artifact.model, data)
        program = Program.from_json(self.artifact.card.program)
        return site_gain.gain(
            self.artifact.model, site_of(program, data, self._dealing_of(home)).site
        )

    def _dealing_of(self, home: PathLike | None) -> Dealing:
        """Return what dealt this hospital's rows; refuse a home in which none were dealt."""
        own = Home(home or self._home)
        if not own.exists():
            raise HomeDamaged(
                f"{own.path} is not a home in which a session was joined, so which rows were held "
                "out is not known: pass home=, the folder of this hospital's identity"
            )
        return own.dealing()

    def plot_calibration(
        self, target: str | None = None, *, method: str | None = None, ax: Any = None
    ) -> Any:
        """Draw how often held-out rows were inside their intervals, and return the Axes.

        target: a real number, by default the first. method: by default the first. ax: the
        matplotlib Axes to draw on, by default those of a new figure.
        """
        return calibration.draw(self.artifact.card, target, method=method, ax=ax)

    def plot_reliability(self, target: str | None = None, *, ax: Any = None) -> Any:
        """Draw how often what was predicted has happened in held-out rows; return the Axes.

        target: a yes or no, one of several classes, of which the likeliest is shown, or a time to
        an event, whose risk by the horizon is compared with Kaplan–Meier's estimate; by default the
        only one that there is.
        """
        kinds = (Binary, Classes, TimeToEvent)
        name = self._only(kinds, "yes or no, one of several classes or a time to an event", target)
        judged = self._judged(name)
        curve = judged.quality.curve
        return reliability.draw(
            curve.predicted,
            curve.observed,
            curve.rows,
            title=f"the likeliest {name}" if judged.classes is not None else name,
            bars=judged.time_to_event is None,
            ax=ax,
        )

    def plot_roc(self, target: str | None = None, *, ax: Any = None) -> Any:
        """Draw true against false positives in held-out rows, and return the Axes.

        target: a yes or no, by default the only one that there is.
        """
        name = self._only((Binary,), "yes or no", target)
        judged = known(self._judged(name).binary, "evaluation")
        return roc.draw(*judged.roc, title=name, ax=ax)

    def plot_survival(
        self,
        data: object,
        target: str | None = None,
        *,
        labels: Sequence[str] | None = None,
        ax: Any = None,
    ) -> Any:
        """Draw the survival curves of a table's rows with their uncertainty; return the Axes.

        target: a time to an event, by default the only one. labels: one for each row.
        """
        name = self._only((TimeToEvent,), "time to an event", target)
        own = self._outcome(data, name)
        curves, unit = own.survival, own.target.unit
        return survival.draw(
            curves.edges.tolist(),
            curves.mean,
            variances=curves.variance,
            title=name,
            unit=unit,
            labels=labels,
            ax=ax,
        )

    def _read(self, data: object) -> Iterator[Records]:
        stream = SchemaStream(open_table(data), self.schema)
        return read_in_pieces(self.schema, stream, training=False)

    def __repr__(self) -> str:
        targets = ", ".join(target.name for target in self.schema.targets)
        return f"GlobalModel({self.id}, predicts {targets})"


def _if_valid(data: bytes | None, artifact: Artifact) -> ModelCertificate | None:
    """Return a certificate that covers a model which is accepted without one, or None."""
    try:
        return None if data is None else read_certificate(data, artifact)
    except (ModelNotCertified, KernelsError, PrivacyError):
        return None
