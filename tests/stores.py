"""The databases that a coordinator may be given, as settings that name one."""

from typing import Any

import pytest

Store = dict[str, Any]
EVERY_STORE = pytest.mark.parametrize("store", ["sqlite", "postgresql"], indirect=True)
"""Of a test, or as a module's `pytestmark`: run it on each."""
