"""Tables of text in a terminal: within its width, aligned, and nothing is lost."""

import pytest

from client_sdk.terminal.plain_table import table_lines

HEADINGS = ("column", "rows", "content", "")
ROWS = [
    ("病棟", "3", "medical 1, surgical 1, other 1", ""),
    ("age", "12", "17 to 98", ""),
    ("weight_at_admission_in_kg", "0", "", ""),
]


@pytest.mark.parametrize("width", [40, 60, 120])
def test_a_table_keeps_to_the_width_and_loses_no_text(width: int) -> None:
    lines = [*table_lines(HEADINGS, ROWS, width=width)]
    assert max(map(len, lines)) <= width
    written = "".join("".join(lines).split())
    for cell in (cell for row in ROWS for cell in row):
        assert all(character in written for character in "".join(cell.split()))
    assert "surgical" in written


def test_columns_are_aligned_by_the_places_that_characters_take() -> None:
    _, _, ward, age, _ = table_lines(HEADINGS, ROWS, width=120, right={"rows"})
    assert ward.index("   3  medical") + len("病棟") == age.index("  12  17 to 98")


def test_a_table_without_rows_has_its_headings() -> None:
    assert [*table_lines(("a", "b"), [], width=3)] == ["a  b", "-  -"]
