"""A site's own gain, shown when a run is over: after the last request, or beside later ones.

How long it takes follows from the number of rows. A hospital that leaves after its run has nothing
more to send, so it computes the gain then. One that stays for further runs computes it in a thread
of its own, so that the time of its next request does not tell how many rows it has
(docs/threats.md, A26). A failure is shown and changes nothing else: the run is over.
"""

from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

from client_sdk.errors import ClientError
from client_sdk.events import EventWatch, OwnGain
from client_sdk.model.model import GlobalModel
from kernels.errors import KernelsError
from kernels.model.model import is_kernel_alone
from kernels.rounds.site.dealing import Dealing
from kernels.rounds.site.site import Site

KERNEL_ALONE = (
    "The hospitals have trained a kernel and no layer: it predicts nothing by itself. Make a model "
    "of this hospital's own rows, which stays here, with model.personal(table), or in the shell "
    "veilgp personal MODEL TABLE --out FOLDER."
)


@dataclass(frozen=True)
class GainShown:
    """Shows the gain of each model that a run has produced."""

    watch: EventWatch
    thread: Executor

    def show(self, model: GlobalModel, site: Site, dealing: Dealing) -> None:
        """Compute the gain in the thread, over the site's rows and nothing else of it.

        What a site keeps between sums is for the thread that takes part in runs.
        """
        self.thread.submit(self._show, model, Site(site.parts, dealing=dealing))

    def _show(self, model: GlobalModel, site: Site) -> None:
        try:
            text = KERNEL_ALONE if is_kernel_alone(model.artifact.model) else str(model.gain(site))
        except (ClientError, KernelsError) as error:
            text = f"What the federation gives this hospital is not known: {error}"
        self.watch(OwnGain(model.id, text))


@contextmanager
def showing_gains(watch: EventWatch) -> Iterator[GainShown]:
    """Yield what shows gains; at the end, wait until all of them are shown."""
    with ThreadPoolExecutor(1, "gain") as thread:
        yield GainShown(watch, thread)
