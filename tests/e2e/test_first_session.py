"""docs/first-session.md runs as it is printed: five terminals on one machine, real processes."""

import csv
import re
from pathlib import Path

import pytest

from tests.e2e.walk import NEEDS_CURL, ROOT, walked

HOSPITALS = ("north", "south", "east", "west")


@pytest.mark.slow
@NEEDS_CURL
def test_the_first_session_ends_with_a_prediction_and_its_interval(tmp_path: Path) -> None:
    words = walked(ROOT / "docs" / "first-session.md", tmp_path, HOSPITALS)
    assert "the run is done" in words["admin"]
    for name in HOSPITALS:
        assert re.search(rf"\d+ rows of {name}\.csv have no target, .* left out", words[name])
    predicted = words["north"][words["north"].index('"stay.mean"') :].splitlines()[:4]
    rows = [*csv.DictReader(predicted)]
    assert len(rows) == 3
    for row in rows:
        expected, lower, upper = (float(row[f"stay.{name}"]) for name in ("mean", "lower", "upper"))
        assert 0 < expected < 20
        assert expected - 8 < lower < expected < upper < expected + 8
