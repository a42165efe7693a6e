"""The attacker can unmask what the protocol releases, so its failures elsewhere are meaningful."""

import numpy as np
import pytest

from .coordinator import Attacker, is_noise, marker


def test_a_certified_sum_is_unmasked_exactly():
    np.testing.assert_array_equal(Attacker().open().sum(), sum(marker(i) for i in range(5)))


def test_an_upload_alone_is_noise_and_its_keys_are_all_that_is_missing():
    lair = Attacker().open()
    task = lair.task()
    lair.uploads(task)
    assert is_noise(lair.unmask(task, [2]))
    assert is_noise(lair.unmask(task, lair.everyone))
    for rank in lair.everyone:
        lair.self_keys[lair.context(task), rank] = lair.stolen_self_key(rank)
    total = lair.unmask(task, lair.everyone)
    np.testing.assert_array_equal(total, sum(marker(i) for i in range(5)))
    for rank in (0, 1, 3, 4):
        lair.corrupt(rank)
    np.testing.assert_array_equal(lair.unmask(task, [2]), marker(2))


def test_a_silent_survivors_key_is_put_together_from_shares():
    lair = Attacker(private=True).open()
    task = lair.task()
    lair.uploads(task)
    certificate = lair.certificate(lair.proposal(task))
    for rank in (1, 2, 3, 4):
        lair.reveal(certificate, rank)
        lair.repair(task, rank, 0)
    total = lair.unmask(task, lair.everyone)
    np.testing.assert_array_equal(total, sum(marker(i) for i in range(5)))


@pytest.mark.parametrize("number", range(7))
def test_a_marker_is_not_mistaken_for_noise(number):
    assert not is_noise(marker(number))
