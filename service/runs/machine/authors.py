"""Blind sums: who writes the next task, and what the others say about it.

The coordinator cannot compute states, so a member writes each task. One is asked first, the author
of the last task; after a while the next rank is asked as well, and the first draft counts. Members
compare a task with their own replay:

    objection, before the author's state is there    the author is asked to seal its state
    objection, after it                              the state differs by more than rounding

All honest members hold the same state, so if more than m reject a task, its author lied: the slot
is abandoned, and another member writes the next one. The same happens if an author that was asked
for its state stays silent. An author can so delay a run, and not change it.
"""

from dataclasses import dataclass, field

from kernels.errors import ProgramError
from kernels.rounds.registry import algorithm_of
from kernels.rounds.task import place_in, statistic_of, task_parameters
from privacy.securesum.errors import DraftRefused
from privacy.securesum.messages import Draft, Objection, SealedState
from service.runs.machine.plan import Plan


@dataclass
class Authoring:
    """What members have said about the current task, and about the next one.

    asked: how many members are asked for the next task, or for the model. drafts: by rank.
    wanted: ranks that asked for the author's state, and since when. rejected: ranks whose own state
    differs from it. sealed: the author's state in its box.
    """

    asked: int = 1
    drafts: dict[int, Draft] = field(default_factory=dict)
    wanted: dict[int, float] = field(default_factory=dict)
    rejected: set[int] = field(default_factory=set)
    sealed: tuple[SealedState, bytes] | None = None

    def object(self, objection: Objection, now: float) -> bool:
        """Note an objection to the current task; return whether it says anything new."""
        rank = objection.rank
        if self.sealed is None or rank not in self.wanted:  # it has not seen the author's state
            new = rank not in self.wanted
            self.wanted.setdefault(rank, now)
            return new
        new = rank not in self.rejected
        self.rejected.add(rank)
        return new

    def told(self, rank: int) -> bool:
        """Whether a member has seen the author's state, and does not hold it."""
        return rank in self.rejected


def ranks_asked(first: int, size: int, asked: int) -> tuple[int, ...]:
    """Return the ranks that are asked, from the first one on, around the epoch.

    >>> ranks_asked(3, 5, 3)
    (3, 4, 0)
    """
    return tuple((first + step) % size for step in range(min(asked, size)))


def place_of(draft: Draft, plan: Plan) -> tuple[int, int]:
    """Return stage and sum index of a draft; refuse one that is not of the run's program.

    Whether it is the right stage and sum, members find out by their replay.
    """
    try:
        stage, sum_index = place_in(draft.parameters)
        algorithm = algorithm_of(plan.program.stages[stage])
    except (ProgramError, IndexError):
        raise DraftRefused("The draft's stage is not one of the run's program.") from None
    expected = task_parameters(
        program=plan.digest,
        run_kind=plan.kind,
        parent=plan.base_model,
        stage=stage,
        sum_index=sum_index,
    )
    if draft.parameters != expected or draft.statistic != statistic_of(algorithm):
        raise DraftRefused("The draft is for another program, run or statistic than this run's.")
    if draft.length > plan.max_vector:
        raise DraftRefused(
            f"The next sum, {draft.statistic}, has {draft.length} numbers, but this coordinator "
            f"accepts at most {plan.max_vector}: raise its setting max_vector, or use a kernel "
            "with fewer features."
        )
    return stage, sum_index
