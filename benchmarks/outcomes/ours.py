"""Our own models: a place for each set's, filled when the product learns these outcomes.

OURS: by set, a function of a split that returns `benchmarks.outcomes.scores.Scores` of its test
rows, as every other method does (`scores_of` makes them of predictions), and beside them
`prediction_gap`: the largest difference between what its members' model and that of one client with
all rows predict. PRIVATE: the same with a budget ε, of the sets in `plan.PRIVATE_SETS`. As long as
a set is not listed, its peers are measured and the figures that compare us with them are left out.
"""

from collections.abc import Callable, Mapping

from benchmarks.outcomes.dataset import Split
from benchmarks.outcomes.scores import Scores

OURS: Mapping[str, Callable[[Split], Scores]] = {}
PRIVATE: Mapping[str, Callable[[Split, float], Scores]] = {}
