"""A workaround for absl, which dp-accounting (used for comparison) imports.

absl's log handler writes to the stream that is sys.stderr when absl is imported, which under pytest
is the file in which output is captured, and closes it when the handler is closed. uvicorn's logging
closes all handlers, and every later test would fail. absl does not close the interpreter's own
stderr, so the handler gets that.
"""

import sys

from absl import logging

logging.get_absl_handler().python_handler.stream = sys.__stderr__
