"""A driver of CUDA that has two GPUs and says what is done with them, for machines that have none."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

API = Path(__file__).resolve().parents[4] / "crates/halocline-device/src/cuda/api.rs"
# All other functions do nothing, and say that it went well. Addresses lie on GPU 1, in one allocation.
SOURCE = """
#include <stdint.h>
#include <stdio.h>
static int say(const char *what, int device) { printf("%s %d\\n", what, device); return fflush(stdout); }
int cuInit(unsigned flags) { return say("started", 0); }
int cuDeviceGetCount(int *count) { *count = 2; return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }
int cuDevicePrimaryCtxRetain(uint64_t *context, int device) { *context = 100 + device; return say("context", device); }
int cuDeviceGetAttribute(int *value, int attribute, int device) { *value = 0; return 0; }
int cuDeviceGetName(char *name, int length, int device) { return snprintf(name, length, "GPU") < 0; }
int cuCtxGetCurrent(uint64_t *context) { *context = 0; return 0; }
int cuPointerGetAttributes(unsigned count, const int *attributes, void **values, uint64_t address) {
    for (unsigned at = 0; at < count; ++at) switch (attributes[at]) {
        case 2: *(unsigned *)values[at] = 2; break;
        case 7: *(uint64_t *)values[at] = 5; break;
        case 9: *(int *)values[at] = 1; break;
        case 11: *(uint64_t *)values[at] = 1 << 28; break;
        case 12: *(uint64_t *)values[at] = 1 << 20; break;
        default: return 1;
    }
    return 0;
}
"""


@pytest.fixture
def with_driver(tmp_path):
    """Runs a program of Python with that driver, and returns the lines that it and the driver say."""
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    wanted = set(re.findall(r'b"(cu\w+)\\0"', API.read_text()))
    assert len(wanted) > 50
    rest = (f"int {name}() {{ return 0; }}\n" for name in sorted(wanted) if f" {name}(" not in SOURCE)
    (tmp_path / "driver.c").write_text(SOURCE + "".join(rest))
    command = ["cc", "-w", "-shared", "-fPIC", "-o", tmp_path / "libcuda.so.1", tmp_path / "driver.c"]
    subprocess.run(command, check=True)
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path), "HALOCLINE_CACHE": str(tmp_path)}

    def run(code):
        command = [sys.executable, "-u", "-c", code]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)
        assert (done.returncode, done.stderr) == (0, ""), done
        return done.stdout.splitlines()

    return run
