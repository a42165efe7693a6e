"""docs/first-session-private.md runs as it is printed: what was forecast comes.

Its tables are made up, so it is known that their columns explain about 40 % of the variation behind
the outcome.
"""

import re
from pathlib import Path

import pytest

from kernels.rounds.expected.forecast import EXPLAINABLE
from tests.e2e.walk import NEEDS_CURL, ROOT, walked

PAGE = ROOT / "docs" / "first-session-private.md"
HOSPITALS = ("north", "south", "east", "west", "coast", "hills", "lake", "plain")
FORECAST = re.compile(r"area under the ROC curve ([\d.]+) \(([\d.]+) to ([\d.]+)\)(, NO BETTER)?")
SCORE = re.compile(r"AUC ([\d.]+) ± ([\d.]+)")
LATER = re.compile(r"patients of a later year: ([\d.]+)")


@pytest.mark.slow
@NEEDS_CURL
def test_a_private_session_comes_out_as_forecast(tmp_path: Path) -> None:
    words = walked(PAGE, tmp_path, HOSPITALS)
    assert "program.no_prospect" in words["admin"], "refused until it is told to"
    hopeless, hopeful = FORECAST.findall(words["admin"])
    assert (bool(hopeless[3]), bool(hopeful[3])) == (True, False)
    assert f"Expected with {1500:,} training rows" in words["north"], "before it is spent"
    assert FORECAST.findall(words["north"])[0] == hopeful
    assert "the run is done" in words["admin"]
    middle, low, high = map(float, hopeful[:3])
    assert EXPLAINABLE[:2] == (0.2, 0.5)
    true = float(LATER.findall(words["north"])[0])
    assert low < true < middle + 0.02, "about 40 %, between the first and the second"
    score, error = map(float, SCORE.findall(" ".join(words["north"].split()))[0])
    assert error < 0.15, "a score that says something"
    assert abs(score - true) < 3 * error
    assert low - 3 * error < score < high
    for name in HOSPITALS:
        assert " of 4 left" in words[name], "what was spent, and what is left"
        assert words[name].count("What would leave the hospital\n") == 1, "approve says it in full"
        assert "What would leave the hospital, as it was approved" in words[name], "and join short"
    assert PAGE.read_text().count(" ".join(_first_forecast(hopeful))) == 1, "as the page prints it"


def _first_forecast(found: tuple[str, ...]) -> list[str]:
    return ["area under the ROC curve", found[0], f"({found[1]} to {found[2]})."]
