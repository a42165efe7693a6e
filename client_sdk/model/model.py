"""The global model at a hospital: it predicts locally, and no query leaves the hospital."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from client_sdk.errors import HomeDamaged, ModelNotCertified, ModelNotFound
from client_sdk.home.home import Home
from client_sdk.model import files
from client_sdk.model import gain as site_gain
from client_sdk.model.card import ModelCard
from client_sdk.model.known_members import PathLike, known_members
from client_sdk.model.personal.files import is_personal
from client_sdk.model.personal.model import PersonalModel
from client_sdk.model.predicting import PredictsTables
from client_sdk.model.vouching import read_certificate, vouched_for
from client_sdk.plots import calibration, reliability, roc
from client_sdk.tables.hospital_table import site_of
from kernels.errors import KernelsError
from kernels.model.artifact import Artifact
from kernels.model.judged_outcome import JudgedOutcome
from kernels.model.model import Model, known
from kernels.rounds.program import Program
from kernels.rounds.site.dealing import Dealing
from kernels.rounds.site.site import Site
from kernels.tables.targets import Binary, Classes, TimeToEvent
from privacy.errors import PrivacyError
from privacy.members.endorsement import ModelCertificate


class GlobalModel(PredictsTables):
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
        if is_personal(Path(folder)):
            raise ModelNotFound(
                f"{folder} has a personal model, not a global one: use PersonalModel.load or "
                "`veilgp predict`"
            )
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
    def _fitted(self) -> Model:
        return self.artifact.model

    @property
    def id(self) -> str:
        """The model's content address, the same everywhere."""
        return self.artifact.id

    @property
    def card(self) -> ModelCard:
        """The description of the model; print it, or show it in a notebook."""
        return ModelCard(self.artifact.card, self.certificate, names=self._names)

    def _judged(self, name: str) -> JudgedOutcome:
        evaluation = known(self.artifact.card.evaluation, "evaluation")
        return next(own for own in evaluation.outcomes if own.name == name)

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

    def personal(
        self,
        data: object,
        *,
        start: str | None = None,
        took_part: bool | None = None,
        home: PathLike | None = None,
    ) -> PersonalModel:
        """Return this hospital's own model over the global kernel, made here and sent nowhere.

        Its layers are fitted to the hospital's own training rows, and its intervals to its own
        rows; `gain` says what it is worth to the hospital, on held-out rows (print it).

        start: "kernel": the layers of the own rows alone. "posterior": with the others' rows as
        prior knowledge, at a power a from 0 to 1 that makes the hospital's training rows, each
        predicted without its patient's, the densest (`personal.power`). The global posterior itself
        would be the wrong prior: the hospital's rows are in it, and would count twice. So the
        layer's sums are the hospital's plus a times those of all others, in which a = 1 gives the
        global layer and a = 0 the one of "kernel". By default "posterior" where it is possible: not
        for targets that are not real numbers, nor with differential privacy, nor where the global
        model has no layer.
        data: the table that this hospital takes part with, of any kind, or a `Site`. took_part:
        whether its rows are among those that the model was trained on; by default what the home
        knows, and True for a `Site`. home: as for `gain`.
        """
        if isinstance(data, Site):
            site = data
        else:
            program = Program.from_json(self.artifact.card.program)
            site = site_of(program, data, self._dealing_of(home)).site
        if took_part is None:
            took_part = isinstance(data, Site) or self._took_part(home)
        return PersonalModel.fit(
            self.artifact.model, site, of=self.id, start=start, took_part=took_part
        )

    def _took_part(self, home: PathLike | None) -> bool:
        """Return whether this hospital has computed the model itself, in a run."""
        return self.id in known_members(None, home or self._home).obtained

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

    def __repr__(self) -> str:
        targets = ", ".join(target.name for target in self.schema.targets)
        return f"GlobalModel({self.id}, predicts {targets})"


def _if_valid(data: bytes | None, artifact: Artifact) -> ModelCertificate | None:
    """Return a certificate that covers a model which is accepted without one, or None."""
    try:
        return None if data is None else read_certificate(data, artifact)
    except (ModelNotCertified, KernelsError, PrivacyError):
        return None
