"""Links give a session's address and never show their secret."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_sdk.errors import LinkError
from client_sdk.network.links import SessionLink

ID = "01234567-89ab-4def-8123-456789abcdef"


@pytest.mark.parametrize(
    ("text", "origin", "secret"),
    [
        (f"https://veil.example/join/{ID}#s3cret_-", "https://veil.example", "s3cret_-"),
        (f" https://veil.example:8443/sessions/{ID}\n", "https://veil.example:8443", None),
        (f"http://127.0.0.1:8000/join/{ID}#x", "http://127.0.0.1:8000", "x"),
        (f"http://[::1]:8000/sessions/{ID}/", "http://[::1]:8000", None),
        (f"http://localhost/sessions/{ID}", "http://localhost", None),
        (f"https://VEIL.example:443/sessions/{ID}", "https://veil.example", None),
        (f"http://localhost:80/sessions/{ID}", "http://localhost", None),
    ],
)
def test_a_link_is_read(text: str, origin: str, secret: str | None) -> None:
    link = SessionLink.parse(text)
    assert (link.origin, link.session, link.secret) == (origin, UUID(ID), secret)
    assert SessionLink.parse(link.address) == SessionLink(origin, UUID(ID))
    assert f"#{secret}" not in repr(link)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hospital",
        f"ftp://veil.example/join/{ID}#secretive",
        f"https://veil.example/join/{ID}",
        f"https://veil.example/join/{ID}?token=secretive#a",
        f"https://user:secretive@veil.example/join/{ID}#a",
        f"https://veil.example:port/join/{ID}#secretive",
        f"https://veil.example/join/{ID}/more#secretive",
        f"https://veil.example/join/{ID.upper()}#secretive",
        f"http://veil.example/join/{ID}#secretive",
    ],
)
def test_what_is_no_link_is_refused_without_repeating_it(text: str) -> None:
    with pytest.raises(LinkError) as refused:
        SessionLink.parse(text)
    assert "secretive" not in str(refused.value)


def test_http_to_another_machine_is_a_named_choice() -> None:
    text = f"http://veil.example/join/{ID}#s"
    assert SessionLink.parse(text, allow_http=True).origin == "http://veil.example"


@given(st.text())
def test_any_text_is_a_link_or_a_link_error(text: str) -> None:
    with pytest.raises(LinkError):
        SessionLink.parse(text)
