"""Text that came from elsewhere, safe to show in a terminal."""

LONGEST = 2000
"""Characters of a text that the coordinator sent, at most."""


def readable(text: str) -> str:
    r"""Replace what does not print: escape sequences could rewrite a screen, surrogates crash it.

    >>> readable("stay\x1b[2J")
    'stay�[2J'
    """
    return "".join(
        letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text
    )


def printable(text: object, longest: int = LONGEST) -> str:
    """Make text that the coordinator sent readable, cut to at most `longest` characters."""
    return readable(str(text)[:longest])


def readable_lines(text: str) -> str:
    r"""Do the same with a text of several lines, which stay lines.

    >>> readable_lines("one\x9b2J\ntwo")
    'one�2J\ntwo'
    """
    return "\n".join(map(readable, text.split("\n")))


def quoted(text: str) -> str:
    r"""Write a text between quotes, as TOML reads it back, with escapes for what does not print.

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
