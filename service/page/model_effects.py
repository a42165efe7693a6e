"""What columns do to a served model's predictions, computed once for each model, in the background.

A page waits for a moment and is then shown without them; the next one has them. Only models that
the coordinator predicts with have effects, and only the page for admins shows them: their bands
follow from variances, which some callers must not have (docs/threats.md, A16).
"""

from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from threading import Lock

from kernels.errors import KernelsError
from kernels.model.effects import ColumnEffect, column_effects, most_important
from kernels.model.model import Model
from service.errors import ServiceError
from service.http.access import ModelAccess
from service.prediction.prediction import Predictor

MOST = 20
"""The number of columns that are shown."""
WAIT_S = 1.0
_KEPT = 32

Found = tuple[ColumnEffect, ...]


class ModelEffects:
    """The effects of the most important columns, by the model's id; the oldest are dropped."""

    def __init__(
        self, predictor: Predictor, compute: Callable[[Model], Found] | None = None
    ) -> None:
        self._predictor = predictor
        self._compute = compute or _computed
        self._lock = Lock()
        self._found: OrderedDict[str, Future[Found]] = OrderedDict()
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="effects")

    def get(self, model_id: str, *, wait_s: float = WAIT_S) -> Found | None:
        """Return a model's effects: empty if it has none, None if they are still being computed."""
        with self._lock:
            found = self._found.get(model_id)
            if found is None:
                found = self._worker.submit(self._of, model_id)
                self._found[model_id] = found
            self._found.move_to_end(model_id)
            while len(self._found) > _KEPT:
                self._found.popitem(last=False)
        try:
            return found.result(wait_s)
        except TimeoutError:
            return None
        except (ServiceError, KernelsError, CancelledError):
            # Not served, or not fitted: it may be later.
            with self._lock:
                self._found.pop(model_id, None)
            return ()

    def stop(self) -> None:
        """Start no further computation."""
        self._worker.shutdown(wait=False, cancel_futures=True)

    def _of(self, model_id: str) -> Found:
        _, model = self._predictor.find(ModelAccess(everything=True), model_id)
        return self._compute(model)


def _computed(model: Model) -> Found:
    return column_effects(model, most_important(model, MOST))
