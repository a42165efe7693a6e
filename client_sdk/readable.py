"""Text that came from elsewhere, safe to show in a terminal."""


def readable(text: str) -> str:
    r"""Replace what does not print: escape sequences could rewrite a screen, surrogates crash it.

    >>> readable("stay\x1b[2J")
    'stay�[2J'
    """
    return "".join(
        letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text
    )
