"""Which variances an answer has: each row's own, the average of all patients, or none.

The variance at a row shows how close the model's training rows are, so it can tell whether this row
was one of them (docs/threats.md A16). Who gets what:

    admins, members, trusted callers    each row's own: they have the model, or may have it
    a model with differential privacy   each row's own, for everyone: the noise covers it
    other callers, of fedbnr            each row's own if the estimated AUC of the attack is at most
                                        the setting `most_membership_auc`, otherwise the average
    other callers, of students and      each row's own from `least_rows_for_variance` rows on,
    of open ensembles                   otherwise none: there is neither an estimate nor an average
    other callers, of networks          the method's, if it is the same for every row, under the
                                        same condition; otherwise none: the networks were trained on
                                        the rows themselves, and no attack on them was measured

An average is of targets that are real numbers. Of an outcome a caller then gets what follows from
its mean (`outcome_parts`): the probability itself is the calibrated prediction. The model's file
is for callers who get each row's own, and only if the estimate is low enough for its held-out rows
as well. The file of a model with networks is not for other callers: the weights were trained on the
rows, and no estimate covers them. The estimate (`kernels.model.exposure`) is no guarantee; only
noise in the training is one.
"""

from dataclasses import dataclass
from enum import StrEnum

from kernels.ensembles.served_networks import Networks
from kernels.model.exposure import exposed_features, membership_auc, rows_shown_alone
from kernels.model.model import Model, training_rows
from service.errors import VarianceWithheld
from service.http.access import ModelAccess
from service.settings import Settings


class VarianceOf(StrEnum):
    """Of what the variances in an answer are."""

    ROW = "row"
    """Each row's own, of the model."""
    AVERAGE = "average"
    """The average over patients: the same for every row."""


@dataclass(frozen=True)
class Allowed:
    """What a requester may have of a model.

    variance_of: None for no variances. refusal: why it may not have more; None if it has all.
    """

    variance_of: VarianceOf | None
    refusal: VarianceWithheld | None


EVERYTHING = Allowed(VarianceOf.ROW, None)
_TRUST = (
    'An admin can let this caller have them: a token made with "trusted": true (POST /callers). '
)


def allowed(access: ModelAccess, settings: Settings, model: Model) -> Allowed:
    """Return what a requester may have of `fedbnr`."""
    refusal = _refusal(access, settings, model, rows=training_rows(model))
    return EVERYTHING if refusal is None else Allowed(VarianceOf.AVERAGE, refusal)


def download_refusal(
    access: ModelAccess, settings: Settings, model: Model
) -> VarianceWithheld | None:
    """Return why a requester may not have the model itself; None if it may.

    Its file may show the sum of few rows alone, those that were held out.
    """
    if model.networks and not _unlimited(access, model):
        names = " and ".join(own.method for own in model.networks)
        return VarianceWithheld(
            f"The model has networks ({names}), whose weights could reveal training rows, and there"
            f" is no estimate of how much: its file is not for this caller. {_TRUST}"
            "Predictions do not need the file."
        )
    return _refusal(access, settings, model, rows=rows_shown_alone(model))


def _refusal(
    access: ModelAccess, settings: Settings, model: Model, *, rows: int
) -> VarianceWithheld | None:
    if _unlimited(access, model):
        return None
    auc, most = membership_auc(model, rows=rows), settings.most_membership_auc
    if auc <= most:
        return None
    return VarianceWithheld(
        f"The variances of single rows, and the model itself, could tell who is among the "
        f"{rows:,} training rows: for {exposed_features(model):,} "
        f"features the estimated AUC of such an attack is {auc:.2f}, and this "
        f"coordinator allows {most:.2f} (most_membership_auc). Variances and intervals of real "
        f"numbers are therefore averages over patients, the same for every row. {_TRUST}"
        "Its operator can raise the setting. Models with differential privacy are not limited."
    )


def allowed_of_method(
    access: ModelAccess, settings: Settings, model: Model, *, rows: int
) -> Allowed:
    """Return what a requester may have of a method that combines sites' predictions.

    rows: the training rows of the smallest hospital whose model can be told apart.
    """
    least = settings.least_rows_for_variance
    if _unlimited(access, model) or rows >= least:
        return EVERYTHING
    return Allowed(
        None,
        VarianceWithheld(
            f"The variances of this method could reveal training rows, of which there are fewer "
            f"than {least:,} (least_rows_for_variance): the answer has means only. The method "
            f"fedbnr, if the model has it, always has variances. {_TRUST}The coordinator's "
            "operator can change the setting."
        ),
    )


def allowed_of_networks(
    access: ModelAccess, settings: Settings, model: Model, networks: Networks
) -> Allowed:
    """Return what a requester may have of a method of networks."""
    if _unlimited(access, model) or not networks.variance_depends_on_the_row:
        return allowed_of_method(access, settings, model, rows=networks.rows)
    return Allowed(
        None,
        VarianceWithheld(
            f"The variances of the method {networks.method} could reveal training rows, and there "
            f"is no estimate of how much: the answer has means only. {_TRUST}"
        ),
    )


def _unlimited(access: ModelAccess, model: Model) -> bool:
    return access.caller_id is None or access.trusted or model.privacy is not None
