"""Models in memory: each is read and factorised once; the least recently used are dropped.

A model's id is looked up in the database before this cache is used, so a deletion or a changed
alias takes effect at once on every replica. A deleted model may occupy memory until others need it.
"""

from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from threading import Lock

from kernels.model.model import Model


class LoadedModels:
    """At most `most` models by id. Threads that need a model that is being read wait for it."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = Lock()
        self._models: OrderedDict[str, Future[Model]] = OrderedDict()

    def get(self, model_id: str, load: Callable[[], Model]) -> Model:
        """Return the model, calling `load` if it is not in memory; a failure is not cached."""
        with self._lock:
            found = self._models.get(model_id)
            model = found or self._models.setdefault(model_id, Future())
            self._models.move_to_end(model_id)
            while len(self._models) > self._most:
                self._models.popitem(last=False)
        if found is None:
            try:
                model.set_result(load())
            except BaseException as error:
                self.drop(model_id)
                model.set_exception(error)
                raise
        return model.result()

    def drop(self, model_id: str) -> None:
        """Drop a model from memory."""
        with self._lock:
            self._models.pop(model_id, None)

    def __len__(self) -> int:
        return len(self._models)
