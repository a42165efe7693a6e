"""Open ensembles in memory; their members are read from the database for each prediction.

So no later prediction on any replica uses a member that has withdrawn or was suspended, or a
deleted model. The samples are dropped from memory at once on the replica that received the
withdrawal, on other replicas when they are notified, and at the latest at the next prediction of
that model.
"""

from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock

from kernels.errors import KernelsError, NotFitted
from kernels.model.model import Model
from kernels.rounds.ensemble.open_ensemble import OpenEnsemble
from service.database.database import Database
from service.errors import ModelDamaged
from service.runs import open_samples
from service.runs.open_samples import Present


@dataclass(frozen=True)
class ServedEnsemble:
    """The ensemble of the members that share samples, and the size of the run's cohort."""

    session_id: str
    who: Present
    ensemble: OpenEnsemble
    cohort: int


class OpenEnsembles:
    """At most `most` open ensembles by model id."""

    def __init__(self, database: Database, most: int) -> None:
        self._database = database
        self._most = most
        self._lock = Lock()
        self._kept: OrderedDict[str, ServedEnsemble] = OrderedDict()
        self._drops = 0

    def get(self, model_id: str, model: Model) -> ServedEnsemble:
        """Return a model's current ensemble."""
        drops = self._drops
        with self._database.reading() as connection:
            who = open_samples.present(connection, model_id)
            with self._lock:
                kept = self._kept.get(model_id)
                if kept is not None and kept.who != who:
                    kept = None
                    del self._kept[model_id]
            if not who:
                raise NotFitted(
                    "no hospital currently shares samples for this model: leave `ensemble` out to "
                    "use the model's student network"
                )
            if kept is None:
                try:
                    read = open_samples.load(connection, model_id, who)
                    ensemble = OpenEnsemble.of(model, read.program, read.samples)
                    kept = ServedEnsemble(read.session_id, who, ensemble, read.cohort)
                except KernelsError as error:
                    raise ModelDamaged(
                        f"Samples of the model {model_id} are damaged in the coordinator's "
                        "database. Restore the database from a backup, or delete the model."
                    ) from error
        with self._lock:
            if drops != self._drops:  # it may contain samples that were withdrawn meanwhile
                return kept
            self._kept[model_id] = kept
            self._kept.move_to_end(model_id)
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
        return kept

    def forget(self, model_id: str) -> None:
        """Drop the ensemble of a deleted model from memory."""
        with self._lock:
            self._drops += 1
            self._kept.pop(model_id, None)

    def drop(self, session_id: str) -> None:
        """Drop a session's ensembles from memory."""
        with self._lock:
            self._drops += 1
            for model_id, kept in tuple(self._kept.items()):
                if kept.session_id == session_id:
                    del self._kept[model_id]
