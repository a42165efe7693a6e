"""dp-accounting, whom we compare ourselves with, brings absl: a log handler that closes its stream.

The stream is what sys.stderr is when absl is imported, which under pytest is the file that output
is captured in; uvicorn's logging closes all handlers, and every later test would fail. The
interpreter's own stderr absl leaves open.
"""

import sys

from absl import logging

logging.get_absl_handler().python_handler.stream = sys.__stderr__
