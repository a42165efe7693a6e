"""The model of a session that states a schema and nothing else, on the same splits as ours.

Nothing here is chosen for a set. Digits are left out: a picture is no table of columns.
"""

from benchmarks.dealing import dealing_of
from benchmarks.outcomes.dataset import Split
from benchmarks.outcomes.ours import predicted, schema_of
from benchmarks.outcomes.scores import Scores, scores_of
from client_sdk.simulation import simulate
from kernels.rounds.automatic import automatic_program
from kernels.rounds.site.site import Site


def automatic(split: Split) -> Scores:
    """Score the members' model."""
    program = automatic_program(schema_of(split.dataset))
    sites = [
        Site.of_table(
            program.schema, member, held_out=program.held_out, dealing=dealing_of(split.seed)
        )
        for member in split.members
    ]
    model = simulate(program, sites, secure=False).model
    return scores_of(split.dataset.outcome, split.test, predicted(split, model))
