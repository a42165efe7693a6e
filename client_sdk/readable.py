"""Text from other parties, made safe to show in a terminal."""

LONGEST = 2000
"""Maximum number of characters shown of a text from the coordinator."""


def readable(text: str) -> str:
    r"""Replace unprintable characters: escapes could rewrite a terminal, surrogates crash it.

    >>> readable("stay\x1b[2J")
    'stay�[2J'
    """
    return "".join(
        letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text
    )


def printable(text: object, longest: int = LONGEST) -> str:
    """Return text from the coordinator, readable and cut to at most `longest` characters."""
    return readable(str(text)[:longest])


def readable_lines(text: str) -> str:
    r"""Return a text of several lines with each line made readable.

    >>> readable_lines("one\x9b2J\ntwo")
    'one�2J\ntwo'
    """
    return "\n".join(map(readable, text.split("\n")))


def quoted(text: str) -> str:
    r"""Return a text as a TOML string in quotes, with escapes for unprintable characters.

    >>> print(quoted("Größe\x9b2J\u202e"))
    "Größe\u009b2J\u202e"
    """
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(letter: str) -> str:
    if letter in '"\\':
        return f"\\{letter}"
    if letter.isprintable():
        return letter
    code = ord(letter)
    return f"\\u{code:04x}" if code < 1 << 16 else f"\\U{code:08x}"
