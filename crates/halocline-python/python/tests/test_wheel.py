"""What comes with the package where there is nothing else: licences, and what its page says."""

import re
import shlex
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2]
ROOT = PACKAGE.parents[1]
LICENCES = {
    "LICENSE-APACHE": ROOT / "LICENSE-APACHE",
    "LICENSE-MIT": ROOT / "LICENSE-MIT",
    "licenses/DejaVuSans.txt": ROOT / "crates/halocline-cli/assets/DejaVuSans-LICENSE.txt",
    "licenses/pyfesom2.txt": ROOT / "data/fesom-pi/LICENSE",
}
COMMANDS = [
    line
    for block in re.findall(r"```sh\n(.*?)```", (PACKAGE / "README.md").read_text(), re.DOTALL)
    for line in block.splitlines()
    if line.startswith("python ")
]


def test_licences_are_in_the_wheel():
    named = metadata.metadata("halocline").get_all("License-File")
    assert named is not None and sorted(named) == sorted(LICENCES)
    carried = {str(file).partition("/licenses/")[2]: file for file in metadata.files("halocline") if "/licenses/" in str(file)}
    assert sorted(carried) == sorted(LICENCES)
    for name, file in carried.items():
        assert file.read_text() == LICENCES[name].read_text(), name
    assert any("/sboms/" in str(file) for file in metadata.files("halocline"))


def test_the_page_is_the_readme():
    about = metadata.metadata("halocline")
    assert about["Description-Content-Type"].startswith("text/markdown")
    assert about.get_payload().strip() == (PACKAGE / "README.md").read_text().strip()
    assert about["License-Expression"] == "Apache-2.0 OR MIT"


def test_the_page_links_to_nothing_that_only_the_repository_has():
    links = re.findall(r"\]\(([^)]*)\)", (PACKAGE / "README.md").read_text())
    assert [link for link in links if not link.startswith(("https://", "#"))] == []


@pytest.mark.parametrize("command", COMMANDS, ids=str)
def test_commands_of_the_page(tmp_path, command):
    program, *arguments = shlex.split(command)
    assert program == "python"
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.returncode == 0 and done.stdout, done.stdout + done.stderr
    assert not list(tmp_path.iterdir())
