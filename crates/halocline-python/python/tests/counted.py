"""What ``tools/test-python`` counts, since the outputs of ranks run together."""

import os


def pytest_terminal_summary(terminalreporter):
    """Appends a line to the file that is named: the tests that passed in this process, and those that did not."""
    if path := os.environ.get("HALOCLINE_TEST_COUNTS"):
        count = [sum(len(terminalreporter.stats.get(kind, ())) for kind in kinds) for kinds in (("passed",), ("failed", "error"))]
        with open(path, "a") as file:
            file.write("{} {}\n".format(*count))
