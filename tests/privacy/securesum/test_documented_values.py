"""The test values of docs/protocol.md are what this code computes."""

from pathlib import Path

import numpy as np
import pytest

from privacy.encoding import Encoding
from privacy.framing import Label, derive, digest, mix
from privacy.identity import Identity, fingerprint
from privacy.layout import Block, Layout
from privacy.masks import keystream
from privacy.securesum.group import commitments_hash, group_commitment, group_of
from privacy.securesum.messages import Task
from privacy.securesum.terms import Terms
from privacy.tags import data_tags, failed_tags, residue_masks

PAGE = (Path(__file__).parents[3] / "docs" / "protocol.md").read_text("utf-8")
ZERO = bytes(32)
PAIR = mix(bytes(64), Label.PAIR_SEED, ZERO, b"\0\0", b"\0\1")
SUM = derive(PAIR, Label.PAIR_SUM, ZERO)
IDENTITY = Identity.from_bytes(bytes(range(32)))
PARTS = [bytes([rank]) * 32 for rank in range(3)]
COMMITTED = [group_commitment(ZERO, rank, part) for rank, part in enumerate(PARTS)]
TASK = Task(ZERO, 0, "moments/1", b"{}", ZERO, ZERO, 3, (0, 1, 2, 3, 4), b"")
ROWS = Layout((Block("rows", (), 1e6, 1.0),))


def numbers(residues) -> str:
    return " ".join(str(int(residue)) for residue in residues)


VALUES = {
    "digest": digest(Label.ADVERT, b"ab", b"c").hex(),
    "pair seed": PAIR.hex(),
    "channel": derive(PAIR, Label.CHANNEL, ZERO, b"\0\0", b"\0\1").hex(),
    "pair key": SUM.hex(),
    "mask key": derive(SUM, Label.PAIR_MASK).hex(),
    "self key commitment": digest(Label.COMMITMENT, ZERO, b"\0\3", ZERO).hex(),
    "keystream": keystream(ZERO).update(bytes(24)).hex(),
    "identity": IDENTITY.key.hex(),
    "fingerprint": fingerprint(IDENTITY.key),
    "signature": IDENTITY.sign(Label.ABANDON, bytes(16), bytes(16), ZERO, bytes(4)).hex(),
    "terms": Terms(bytes(16), 1, 5, False).encode().hex(),
    "group commitment": COMMITTED[1].hex(),
    "commitments": commitments_hash(COMMITTED).hex(),
    "group key": group_of(ZERO, PARTS, COMMITTED).key.hex(),
    "context": TASK.context(ZERO).hex(),
    "data tags": numbers(data_tags(ZERO, np.array([1, -1, 2**60 - 1], "<i8"), 1)),
    "failed tags": numbers(failed_tags(ZERO, 7, 1)),
    "residue masks": numbers(residue_masks(derive(SUM, Label.TAG_MASK))[:3]),
    "encoding": Encoding.finest(ROWS, max_clients=5).to_bytes().hex(),
}


@pytest.mark.parametrize("name", VALUES)
def test_a_second_implementation_can_compare_its_values(name):
    assert VALUES[name] in PAGE, f"{name}: {VALUES[name]}"
