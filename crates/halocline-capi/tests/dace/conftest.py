"""Reports what was tested as the tests of the Python package do."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[3] / "halocline-python/python/tests"))
from counted import pytest_terminal_summary  # noqa: E402, F401
