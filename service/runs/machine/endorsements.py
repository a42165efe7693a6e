"""Members' signatures on a finished model, and when there are enough of them.

Every member that was in the last sum is asked. The model's certificate is made as soon as all of
them have endorsed the same, or a quorum has and the others stay silent for a while. In open runs
the coordinator holds the model itself, and accepts endorsements of that model only.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from privacy.members.endorsement import (
    NO_SALT,
    Endorsement,
    ModelCertificate,
    ModelStatement,
    model_commitment,
    parent_digest,
)
from privacy.securesum.epoch import Epoch
from privacy.securesum.errors import Conflict, NotTheEndorsedModel
from privacy.securesum.messages import Certificate
from service.runs.machine.plan import Plan


@dataclass
class Endorsements:
    """The endorsements so far, by rank."""

    by_rank: dict[int, Endorsement] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.by_rank)

    def add(self, endorsement: Endorsement) -> bool:
        """Add a checked endorsement; return whether it is new."""
        known = self.by_rank.get(endorsement.rank)
        if known is not None and known != endorsement:
            raise Conflict(
                f"Rank {endorsement.rank} has already endorsed another model of this run."
            )
        self.by_rank[endorsement.rank] = endorsement
        return known is None

    def agreed(self) -> tuple[Endorsement, ...]:
        """Return the largest group of endorsements that say the same."""
        groups: dict[object, list[Endorsement]] = {}
        for _, each in sorted(self.by_rank.items()):
            groups.setdefault(each.about, []).append(each)
        sizes = {about: len(group) for about, group in groups.items()}
        return tuple(groups[max(sizes, key=lambda about: sizes[about])]) if groups else ()

    def certificate(self, epoch: Epoch, asked: Iterable[int], *, waited: bool) -> bytes | None:
        """Return the model's certificate once enough of the members that were asked agree."""
        agreed = self.agreed()
        if len(agreed) < epoch.quorum:
            return None
        everyone = {each.rank for each in agreed} >= set(asked)
        if not (everyone or waited):
            return None
        return ModelCertificate.of(agreed, epoch.members).encode()


def check_endorsement(
    endorsement: Endorsement, epoch: Epoch, plan: Plan, last: Certificate, section: bytes | None
) -> None:
    """Refuse an endorsement that is not about this run's model.

    last: of the run's last sum. section: the model's bytes, if the coordinator has them.
    """
    said = endorsement.statement
    expected = ModelStatement(
        session=epoch.terms.session,
        run=epoch.run,
        epoch_id=epoch.epoch_id,
        members=epoch.size,
        max_colluders=epoch.terms.max_colluders,
        program=bytes.fromhex(plan.digest),
        roster=epoch.roster,
        parent=parent_digest(plan.base_model),
        model=said.model,
        state=said.state,
        context=last.context,
    )
    wrong = said != expected
    wrong |= epoch.terms.members_only and endorsement.salt != NO_SALT
    wrong |= section is not None and model_commitment(endorsement.salt, section) != said.model
    if wrong:
        raise NotTheEndorsedModel(
            f"Rank {endorsement.rank} endorses another model than the one of this run."
        )
    endorsement.check_signed_by(epoch.members[endorsement.rank])
