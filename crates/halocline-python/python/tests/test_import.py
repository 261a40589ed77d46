"""The package imported again, as by a tool that reloads what it tests."""

import subprocess
import sys

AGAIN = """
import sys
import halocline as first

def forget():
    for name in [name for name in sys.modules if name.partition(".")[0] == "halocline"]:
        del sys.modules[name]

for _ in range(2):
    forget()
    import halocline as again
    from halocline.compat.ghex.structured import regular

    assert again is not first and again.HaloError is first.HaloError and again.Field is first.Field
    for call in (
        lambda: again.Field(3),
        lambda: again.RegularGrid((0,)).decompose(1),
        lambda: again.zeros("x"),
        lambda: regular.DomainDescriptor(-1, None),
    ):
        for of in (first, again):
            try:
                call()
            except of.HaloError:
                pass
"""


def test_errors_of_a_package_imported_again_are_caught():
    done = subprocess.run([sys.executable, "-c", AGAIN], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
