"""One build for the ranks of a job: run by every rank, alone, under ``halocline launch`` or an MPI launcher."""

import shutil
import tempfile

import pytest

from halocline import program

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler, cc")


@pytest.fixture
def shared(comm):
    """A folder that all ranks have."""
    name = tempfile.mkdtemp(prefix="halocline-cache-") if comm.rank == 0 else ""
    yield comm.all_gather(name.encode())[0].decode()
    comm.barrier()
    if comm.rank == 0:
        shutil.rmtree(name)


@pytest.mark.parametrize("of_each", [False, True])
def test_one_rank_builds_for_all(comm, shared, of_each):
    built = []

    def builder(folder):
        built.append(comm.rank)
        (folder.path / "value.c").write_text("int value(void) { return 7; }")
        folder.run("cc", "-shared", "-fPIC", "value.c", "-o", "libvalue.so")
        return "libvalue.so"

    folder = f"{shared}/{comm.rank}" if of_each else shared
    for _ in range(2):
        entry = program.build("value", {"of each": str(of_each)}, builder, comm=comm, cache=folder)
        assert str(entry.library).startswith(folder)
    assert comm.all_reduce([len(built)]) == [1]
