"""What the documentation shows is what runs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[4]


def programs():
    for name, folder in [("README", ROOT), ("PyPI", ROOT / "crates/halocline-python")]:
        readme = (folder / "README.md").read_text()
        for number, program in enumerate(re.findall(r"```python\n(.*?)```", readme, re.DOTALL)):
            yield f"{name} {number}", program
    page = (ROOT / "docs/python.md").read_text()
    indented = re.search(r"\n((?:    .*\n|\n)+)", page).group(1)
    yield "docs/python.md", re.sub(r"^    ", "", indented, flags=re.MULTILINE)


@pytest.mark.parametrize("name, program", list(programs()), ids=lambda x: x if len(x) < 20 else "")
def test_programs(name, program):
    for command in ([], ["-m", "halocline", "launch", "-n", "2", "--", sys.executable]):
        done = subprocess.run([sys.executable, *command, "-c", program], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, (name, command, done.stderr)
