"""`veilgp roster`: from what each hospital's `veilgp identity` prints to the file of all."""

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from client_sdk.errors import FingerprintNotOfKey, IdentityNotRead, TwiceInRoster
from client_sdk.home.identity_text import check_members, identity_lines, read_identities
from client_sdk.home.roster_file import read_roster
from client_sdk.terminal.command import application
from privacy.identity import Identity, Member, fingerprint

KEYS = [Identity.from_bytes(bytes([i]) * 32).key for i in range(4)]


def veilgp(*arguments: object, text: str | None = None) -> Result:
    return CliRunner().invoke(application(), [str(each) for each in arguments], input=text)


def lines(name: str, key: bytes) -> str:
    return "".join(f"{line}\n" for line in identity_lines(key, name))


def test_a_roster_made_from_what_hospitals_print_is_what_join_reads(tmp_path: Path) -> None:
    files = []
    for name in ("North", "St. Mary", "Zürich"):
        shown = veilgp("identity", "--name", name, "--home", tmp_path / name)
        assert shown.exit_code == 0, shown.output
        files.append(tmp_path / f"{name}.txt")
        files[-1].write_text(shown.stdout)
    made = veilgp("roster", *files, "--home", tmp_path / "North")
    assert made.exit_code == 0, made.output
    (tmp_path / "roster.json").write_text(made.stdout)
    roster = read_roster(tmp_path / "roster.json")
    assert [*roster] == ["North", "St. Mary", "Zürich"]
    for name, key in roster.items():
        (told,) = [line for line in made.stderr.splitlines() if line.startswith(f"  {name} ")]
        assert fingerprint(key) in told
        assert ("this hospital" in told) == (name == "North")


def test_several_hospitals_may_be_in_one_text_with_any_ends_of_lines() -> None:
    text = "\ufeff" + "\n".join(lines(n, k) for n, k in zip("ABC", KEYS, strict=False))
    members = read_identities(text.replace("\n", "\r\n"), "mail")
    assert members == [Member(n, k) for n, k in zip("ABC", KEYS, strict=False)]
    made = veilgp("roster", "-", "--home", "/nowhere", text=lines("A", KEYS[0]))
    assert made.exit_code == 0
    assert "at least 3 hospitals; there are 1" in made.stderr


def test_a_hospital_that_is_not_in_its_own_roster_is_told(tmp_path: Path) -> None:
    veilgp("identity", "--home", tmp_path / "own")
    (tmp_path / "a.txt").write_text(lines("A", KEYS[0]))
    made = veilgp("roster", tmp_path / "a.txt", "--home", tmp_path / "own")
    assert "is not among them" in made.stderr
    assert not (tmp_path / "new").exists()
    veilgp("roster", tmp_path / "a.txt", "--home", tmp_path / "new")
    assert not (tmp_path / "new").exists(), "making a roster creates no identity"


def test_a_key_whose_line_was_changed_is_refused() -> None:
    forged = lines("A", KEYS[0]).replace(KEYS[0].hex(), KEYS[1].hex())
    with pytest.raises(FingerprintNotOfKey, match=r"mail, line 3: the fingerprint of 'A'"):
        read_identities(forged, "mail")
    digits = fingerprint(KEYS[0])
    swapped = lines("A", KEYS[0]).replace(digits, digits[::-1])
    with pytest.raises(FingerprintNotOfKey):
        read_identities(swapped, "mail")


def test_no_key_gets_the_name_of_the_next_hospital() -> None:
    nameless = "".join(f"{line}\n" for line in identity_lines(KEYS[0])) + lines("B", KEYS[1])
    with pytest.raises(IdentityNotRead, match=r"line 1 is a key where a name is expected"):
        read_identities(nameless, "mail")


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ("", "ends where a name is expected"),
        ("name  A\n", "ends where a key is expected"),
        ("name  A\nname  B\n", "line 2 is a name where a key is expected"),
        ("Hello,\n" + lines("A", KEYS[0]), "line 1 is neither"),
        (lines("A", KEYS[0]) + "> name  B\n", "line 4 is neither"),
        (lines("A", KEYS[0]).replace(KEYS[0].hex(), "00"), "64 hexadecimal digits"),
        (lines("A", KEYS[0]).replace(KEYS[0].hex(), "00" * 32), "small order"),
        (lines("A", KEYS[0]).replace("fingerprint  ", "fingerprint  x"), "not 40 digits"),
        (lines("A", KEYS[0]).replace("  A", "  A\x1b[2J"), "cannot be a hospital's name"),
        (lines("A", KEYS[0]).replace("  A", "  " + "A" * 201), "cannot be a hospital's name"),
    ],
)
def test_what_is_not_three_lines_of_each_hospital_is_refused_by_name(wrong: str, says: str) -> None:
    with pytest.raises(IdentityNotRead) as refused:
        read_identities(wrong, "mail")
    assert says in str(refused.value)
    assert str(refused.value).isprintable()


def test_a_name_or_a_key_of_two_hospitals_is_refused() -> None:
    with pytest.raises(TwiceInRoster, match="'A' is given twice"):
        check_members([Member("A", KEYS[0]), Member("A", KEYS[0])])
    with pytest.raises(TwiceInRoster, match="have the same key"):
        check_members([Member("A", KEYS[0]), Member("B", KEYS[0])])
    for alike in ("St. Mary", "st.  mary", "ＳＴ. Mary"):
        with pytest.raises(TwiceInRoster, match="occurs twice"):
            check_members([Member("St. Mary", KEYS[0]), Member(alike, KEYS[1])])


def test_a_roster_has_an_end() -> None:
    keys = [Identity.from_bytes(i.to_bytes(32, "big")).key for i in range(201)]
    with pytest.raises(TwiceInRoster, match="at most 200"):
        check_members(Member(str(i), key) for i, key in enumerate(keys))


def test_a_file_that_is_no_text_is_refused_with_a_code_and_prints_nothing(tmp_path: Path) -> None:
    (tmp_path / "utf16.txt").write_text("name  A", encoding="utf-16")
    (tmp_path / "large.txt").write_text("\n" * (1 << 20) + "name")
    for name in ("utf16.txt", "large.txt", "absent.txt"):
        refused = veilgp("roster", tmp_path / name)
        assert (refused.exit_code, refused.stdout) == (1, "")
        assert "[roster.identity]" in refused.stderr
        assert name in refused.stderr


@pytest.mark.parametrize("name", ["", " A", "A\n", "x\x9b", "é" * 101])
def test_a_name_that_cannot_be_read_out_is_refused_before_an_identity_is_made(
    name: str, tmp_path: Path
) -> None:
    refused = veilgp("identity", "--name", name, "--home", tmp_path / "home")
    assert refused.exit_code == 1
    assert "[roster.identity]" in refused.stderr
    assert not (tmp_path / "home").exists()
