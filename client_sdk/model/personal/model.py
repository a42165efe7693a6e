"""A hospital's own model over the global kernel: it predicts as the global model does, at home."""

from pathlib import Path
from typing import Self

from client_sdk.model import gain as site_gain
from client_sdk.model.personal import files
from client_sdk.model.personal.calibration import calibrated
from client_sdk.model.personal.files import NOTICE, PersonalCard
from client_sdk.model.personal.gain import PersonalGain
from client_sdk.model.personal.layers import HELD_OUT, own_layers, start_of
from client_sdk.model.predicting import PredictsTables
from client_sdk.readable import readable
from kernels.model.model import Model, is_fitted
from kernels.rounds.site.site import Part, Site


class PersonalModel(PredictsTables):
    """The model that `GlobalModel.personal` makes. It must not leave the hospital.

    Single patients can be told from it: its layers are sums over one hospital's rows, and the law
    of its residuals counts them.
    """

    def __init__(self, model: Model, card: PersonalCard) -> None:
        self._model, self.card = model, card

    @classmethod
    def fit(
        cls, model: Model, site: Site, *, of: str, start: str | None = None, took_part: bool = True
    ) -> Self:
        """Fit layers over a global model's kernel to a site's rows (`GlobalModel.personal`).

        of: the global model's id.
        """
        found = own_layers(model, site, start=start_of(model, start), took_part=took_part)
        own = calibrated(found.model, site)
        gain = None
        if is_fitted(model) and any(site.count(part) for part in HELD_OUT):
            gain = PersonalGain.of(site_gain.compared(own.judged, model.judged, site))
        card = PersonalCard(
            global_model=of,
            start=found.start,
            power=found.power,
            rows=site.count(Part.TRAINING),
            gain=gain,
            layers=files.bytes_of(own)[1],
        )
        return cls(own, card)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read a model that `save` wrote; refuse one that other users of the machine can read."""
        return cls(*files.load(Path(folder)))

    def save(self, folder: str | Path) -> None:
        """Write the model to a folder for its owner alone (0700, files 0600).

        It must not leave the hospital: single patients can be told from it.
        """
        files.save(self._model, self.card, Path(folder))

    @property
    def _fitted(self) -> Model:
        return self._model

    @property
    def start(self) -> str:
        """What it started from: "kernel" or "posterior"."""
        return self.card.start

    @property
    def power(self) -> float:
        """How much each row of the others counts, from 0 to 1; one of its own counts 1."""
        return self.card.power

    @property
    def gain(self) -> PersonalGain | None:
        """What it gives this hospital over the global model; None if there is nothing to compare.

        Either the global model has no layer, or no rows were held out.
        """
        return self.card.gain

    def __repr__(self) -> str:
        targets = ", ".join(readable(target.name) for target in self.schema.targets)
        lines = [
            f"Personal model of {targets}, over the kernel of {self.card.global_model}",
            f"  fitted to {self.card.rows:,} training rows of this hospital, {self._helped()}",
            f"  {NOTICE}",
            *([] if self.gain is None else [str(self.gain)]),
        ]
        return "\n".join(lines)

    def _helped(self) -> str:
        if self.start == "kernel":
            return "and to no other rows"
        return f"where each row of the others counts {self.power:.3g}"
