"""A member's check of a total: it is what the certified survivors' vectors add up to, or an error.

The coordinator is not trusted to report a total. It sends T with the residues of `failed` and of
the tags, and the certificate of the slot; a member compares them with the tags that it computes
from T under the group key (privacy/tags.py). All checks are always made, and any failure is the
same error at the same time: an error that named the check would answer questions about totals that
the coordinator may not know.

With blind sums a member first removes the pad that only members know (privacy/blinding.py).

Only then is a verified total decoded, which checks the blocks' bounds.
"""

import hmac
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privacy.blinding import unblind, unblinded_residues
from privacy.encoding import Encoding
from privacy.layout import SecureTotal
from privacy.securesum.errors import SiteFailed, TotalNotVerified
from privacy.securesum.masking import failed_tag_key, tag_key
from privacy.securesum.messages import Certificate, Total
from privacy.tags import BOUND, FAILED_PRIMES, RESIDUE_PRIMES, ROWS, data_tags, failed_tags


@dataclass(frozen=True)
class VerifiedTotal:
    """The sum of the survivors' vectors, as signed integers: every member can verify the same."""

    values: NDArray[np.int64]
    contributors: int

    def decoded(self, encoding: Encoding) -> SecureTotal:
        """Return the total as named blocks of float64; refuse one beyond the blocks' bounds."""
        return encoding.decode(self.values.view("<u8"), contributors=self.contributors)


def verified(
    total: Total,
    body: bytes | memoryview,
    certificate: Certificate,
    group_key: bytes,
    *,
    blinded: bool,
) -> VerifiedTotal:
    """Return a total that passes all checks; `certificate` has been checked by the caller."""
    right = is_about(total, certificate)
    values, whole = _read(body)
    right &= whole
    contributors, context = len(certificate.survivors), certificate.context
    right &= total.failed < FAILED_PRIMES[0]
    said, *tags = (total.failed, *total.residues)
    right &= all(tag < prime for tag, prime in zip(total.residues, RESIDUE_PRIMES[1:], strict=True))
    if blinded:
        unblind(values.view("<u8"), group_key, context)
        said, *tags = unblinded_residues((said, *tags), group_key, context)
    failed = failed_tags(failed_tag_key(group_key, context), said, contributors)
    right &= _same(failed, tags[ROWS:])
    within = is_within_bound(values)
    data = data_tags(tag_key(group_key, context), values, contributors)
    data_right = _same(data, tags[:ROWS])
    if right and said:
        raise SiteFailed(
            "One site could not compute its vector, so the total is noise; each site's log says "
            "whether it was it."
        )
    if not (right and within and data_right):
        raise TotalNotVerified(
            "The total is not what the members' vectors add up to: the coordinator has changed it, "
            "or a member has sent wrong tags. The run ends here."
        )
    return VerifiedTotal(values, contributors)


def is_about(total: Total, certificate: Certificate) -> bool:
    """Return whether a total is for the certified slot, task and survivors."""
    return (total.epoch_id, total.slot, total.context, total.survivors) == (
        certificate.epoch_id,
        certificate.slot,
        certificate.context,
        certificate.survivors,
    )


def is_within_bound(values: NDArray[np.int64]) -> bool:
    """Return whether all integers are below 2⁶⁰ in absolute value."""
    return bool(np.all(values < BOUND)) & bool(np.all(values > -BOUND))


def _read(body: bytes | memoryview) -> tuple[NDArray[np.int64], bool]:
    """Return the integers of a body, and whether it has no bytes left over."""
    whole = memoryview(body).nbytes // 8 * 8
    values = np.frombuffer(bytearray(memoryview(body).cast("B")[:whole]), dtype="<i8")
    return values, whole == memoryview(body).nbytes


def _same(own: Sequence[int], theirs: Sequence[int]) -> bool:
    return hmac.compare_digest(_bytes(own), _bytes(theirs))


def _bytes(residues: Sequence[int]) -> bytes:
    return b"".join(residue.to_bytes(4, "big") for residue in residues)
