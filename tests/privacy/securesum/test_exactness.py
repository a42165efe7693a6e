"""Σ decoded = Σ encoded, bit for bit; and the sum of real numbers to the declared rounding."""

import math
import random
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privacy.encoding import Encoding
from privacy.framing import Label, derive
from privacy.identity import Identity
from privacy.layout import Block, Layout
from privacy.securesum.certificates import certify_parts
from privacy.securesum.epoch import Epoch, PairSecrets
from privacy.securesum.masking import make_upload
from privacy.securesum.messages import UNNAMED, Certification, Reveal, Task
from privacy.securesum.simulator import Simulation
from privacy.securesum.summation import Summation
from privacy.securesum.terms import default_terms


@pytest.fixture(scope="module")
def sessions():
    """Return epochs that stay open over many examples: a sum needs no new keys."""
    made: dict[int, Simulation] = {}

    def session(n: int) -> Simulation:
        if n not in made:
            made[n] = Simulation(n, random=random.Random(n).randbytes)
            made[n].open_epoch()
        return made[n]

    return session


@given(st.integers(3, 9), st.integers(0, 300), st.integers(0, 2**32), st.booleans())
@settings(max_examples=40)
def test_any_integers_add_up_bit_for_bit(sessions, n, length, seed, extreme):
    """Signed integers whose sums stay below 2^60, at their ends or anywhere between."""
    rng = np.random.default_rng(seed)
    most = (2**60 - 1) // n
    if extreme:
        signs = rng.choice([-1, 1], size=length)
        vectors = [np.asarray(signs * most, dtype="<i8").view("<u8") for _ in range(n)]
    else:
        vectors = [rng.integers(-most, most, length, "<i8").view("<u8") for _ in range(n)]
    outcome = sessions(n).sum(vectors)
    expected = np.zeros(length, dtype=np.uint64)
    for vector in vectors:
        expected += vector
    np.testing.assert_array_equal(outcome.total, expected)
    assert outcome.survivors == tuple(range(n))


def test_every_site_is_counted_once(sessions, markers):
    for n in (3, 4, 7):
        vectors = markers.vectors(n)
        markers.check(sessions(n).sum(vectors), vectors)


def test_the_callers_vector_is_left_alone(sessions):
    vectors = [np.full(4, i, dtype=np.uint64) for i in range(3)]
    sessions(3).sum(vectors)
    assert [vector.tolist() for vector in vectors] == [[i] * 4 for i in range(3)]


@given(st.integers(3, 8), st.integers(0, 2**32), st.floats(1e-3, 1e6))
@settings(max_examples=25)
def test_real_numbers_add_up_to_the_declared_rounding(sessions, n, seed, bound):
    layout = Layout((Block("b", (5,), bound=bound, resolution=bound * 1e-9),))
    encoding = Encoding.finest(layout, max_clients=200)
    rng = np.random.default_rng(seed)
    values = [rng.uniform(-bound, bound, size=5) for _ in range(n)]
    total = sessions(n).total(encoding, [{"b": v} for v in values])
    assert total.contributors == n
    for k in range(5):
        exact = math.fsum(v[k] for v in values)
        rounding = n * 2.0 ** -(encoding.fractional_bits[0] + 1)
        assert abs(total["b"][k] - exact) <= rounding + 1e-15 * abs(exact)


@pytest.mark.full
def test_two_hundred_add_up_with_their_pair_secrets_given(markers):
    """Test only the sum, at client and coordinator, without the n² boxes of an epoch."""
    n = 200
    identities = sorted(
        (Identity.from_bytes(random.Random(i).randbytes(32)) for i in range(n)),
        key=lambda identity: identity.key,
    )
    terms = default_terms(bytes(16), n)
    epoch = Epoch(terms, bytes(16), 0, bytes(32), tuple(i.key for i in identities), bytes(32))
    pairs: list[dict[int, PairSecrets]] = [{} for _ in range(n)]
    for i, j in combinations(range(n), 2):
        seed = derive(bytes(32), Label.PAIR_SEED, bytes((i, j)))
        pairs[i][j] = pairs[j][i] = PairSecrets(seed, derive(seed, Label.CHANNEL))
    task = Task(bytes(32), 0, "markers", b"", UNNAMED, UNNAMED, n + 1, epoch.everyone, b"")
    summation = Summation(epoch, task, bytes(32))
    vectors = markers.vectors(n)
    keys = []
    for rank, identity in enumerate(identities):
        made = make_upload(
            epoch,
            identity,
            task,
            summation.context,
            vectors[rank],
            pairs[rank],
            bytes(32),
            random.Random(rank).randbytes,
        )
        summation.add_upload(made.header, made.body)
        keys.append(made.self_key)
    parts = certify_parts(epoch, summation.propose())
    for rank, identity in enumerate(identities):
        signature = identity.sign(Label.CERTIFY, *parts)
        summation.add_certification(Certification(bytes(32), 0, rank, signature))
        if summation.certificate is not None:
            break
    for rank in range(n):
        summation.add_reveal(
            Reveal(
                epoch_id=bytes(32), slot=0, context=summation.context, rank=rank,
                self_key=keys[rank], dropped=(), pair_keys=(),
            )
        )  # fmt: skip
    np.testing.assert_array_equal(summation.ring_total(), sum(vectors))
