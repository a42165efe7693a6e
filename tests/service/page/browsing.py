"""A browser without JavaScript, as far as the page needs one: a cookie, pages, and their forms."""

import re
from dataclasses import dataclass
from html import unescape
from html.parser import HTMLParser

from httpx import Response

from tests.service.coordinator import Coordinator


def attempt(coordinator: Coordinator, token: str) -> Response:
    return coordinator.request("POST", "/sign-in", data={"token": token})


def signed_in(coordinator: Coordinator) -> str:
    """Sign in as a browser does, and return the cookie."""
    answer = attempt(coordinator, coordinator.token)
    assert (answer.status_code, answer.headers["Location"]) == (303, "/")
    cookie: str = answer.headers["Set-Cookie"].partition(";")[0]
    return cookie


def page(coordinator: Coordinator, path: str, cookie: str | None) -> Response:
    # Read manually: the client's cookie jar would send the cookie in other tests of this file.
    headers = {} if cookie is None else {"Cookie": cookie}
    coordinator.forget_cookies()
    return coordinator.request("GET", path, headers=headers)


class _Forms(HTMLParser):
    """Finds the forms of a page: their actions, and the fields that they begin with."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str]]] = []
        self._select = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        name = given.get("name", "")
        if tag == "form":
            assert given.get("method") == "post"
            self.found.append((given["action"], {}))
        elif tag == "select":
            self._select = name
        elif tag == "option" and ("selected" in given or self._select not in self.found[-1][1]):
            self.found[-1][1][self._select] = given["value"]
        elif tag in ("input", "textarea") and name and self.found:
            unset = given.get("type") in ("radio", "checkbox") and "checked" not in given
            if not unset:
                self.found[-1][1][name] = given.get("value", "")


@dataclass
class Browser:
    """A signed-in browser, and the page that it shows."""

    coordinator: Coordinator
    cookie: str
    text: str = ""

    @classmethod
    def of(cls, coordinator: Coordinator) -> "Browser":
        return cls(coordinator, signed_in(coordinator))

    def open(self, path: str) -> str:
        answer = page(self.coordinator, path, self.cookie)
        assert answer.status_code == 200, answer.text
        self.text = answer.text
        return self.text

    def forms(self, action: str) -> list[dict[str, str]]:
        """Return the fields of all forms with this action, as they are sent unchanged."""
        parser = _Forms()
        parser.feed(self.text)
        return [fields for where, fields in parser.found if where == action]

    def send(self, action: str, number: int = 0, **entered: str) -> Response:
        """Fill in a form of the page and send it, and follow where it leads."""
        answer = self.post(action, {**self.forms(action)[number], **entered})
        if answer.status_code == 303:
            return page(self.coordinator, answer.headers["Location"], self.cookie)
        self.text = answer.text
        return answer

    def post(self, action: str, fields: dict[str, str], **headers: str) -> Response:
        self.coordinator.forget_cookies()
        return self.coordinator.request(
            "POST", action, data=fields, headers={"Cookie": self.cookie, **headers}
        )


def said(text: str) -> str:
    """Return what a refused form says, as text; nothing if there is none."""
    found = re.search(r'id="refused"[^>]*>(.*?)</div>', text, re.DOTALL)
    return unescape(re.sub(r"<[^>]*>", " ", found[1])) if found else ""
