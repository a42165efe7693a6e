"""A16: what a caller learns of members from the variances that it is served.

The attacker knows the kernel and other patients of the population. With the variances of rows it
tells members from strangers about as well as the coordinator's estimate says; where the estimate is
above the limit, the coordinator serves an average, which is the same for everyone.
"""

import pytest

from kernels.model.average_variance import with_average_variance
from kernels.model.exposure import membership_auc
from kernels.model.prediction import Predictions
from service.settings import Settings

from .variance_oracle import Attacked, Floats, latent

LIMIT: float = Settings.model_fields["most_membership_auc"].default
CHANCE = 0.02
"""Of an AUC over 2,000 strangers and 300 members or more."""


@pytest.mark.parametrize(("columns", "rows"), [(5, 500), (30, 300)])
def test_the_estimate_is_what_an_informed_attack_achieves(columns: int, rows: int) -> None:
    attacked = Attacked.of("linear", columns=columns, rows=rows)
    found, estimate = attacked.informed(latent), membership_auc(attacked.model)
    assert estimate - 0.08 < found < estimate + CHANCE
    assert (estimate > LIMIT) == (found > LIMIT) == (columns == 30)


def test_an_average_variance_says_nothing_where_those_of_rows_say_much() -> None:
    attacked = Attacked.of("linear", columns=30, rows=300)
    model = attacked.model

    def served(predictions: Predictions) -> Floats:
        return latent(with_average_variance(model, predictions))

    assert attacked.plain(latent) > 0.55
    assert attacked.plain(served) == 0.5
