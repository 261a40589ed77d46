"""Arrays, communicators, threads and processes that end, mix or multiply behind the interface of GHEX."""

import subprocess
import sys
import textwrap
import threading

import pytest
from test_faults import RANKS, Line

import halocline as hc
from halocline.compat.ghex.structured import regular
from halocline.compat.ghex.structured.cartesian_sets import ProductSet, UnitRange

HALOS = regular.HaloGenerator(ProductSet(UnitRange(0, 5)), (1,), (True,))


def test_an_array_that_was_described_is_not_resized():
    def rank(comm):
        line = Line(comm)
        array = line.new()
        buffer = line.buffer(array)
        for check in (True, False):
            with pytest.raises(ValueError, match="resize"):
                array.resize(1000, refcheck=check)
        line.communication.exchange(buffer).wait()
        line.check(array)

    hc.run_threads(RANKS, rank)


def test_contexts_of_several_communicators_mixed():
    """Fields go where their pattern's ranks are, whichever communication object begins it."""

    def rank(comm):
        alone = hc.run_threads(1, lambda one: one)[0]
        lines = [Line(comm), Line(comm.duplicate()), Line(alone)]
        arrays = [line.new(at) for at, line in enumerate(lines)]
        buffers = [line.buffer(array) for line, array in zip(lines, arrays)]
        for communication in (line.communication for line in lines):
            for line, array, at in zip(lines, arrays, range(3)):
                line.fill(array, at)
            communication.exchange(buffers).wait()
            for line, array, at in zip(lines, arrays, range(3)):
                line.check(array, at)

    hc.run_threads(RANKS, rank)


def test_threads_share_a_communication_object():
    def rank(comm):
        lines = [Line(comm) for _ in range(3)]
        shared = regular.make_communication_object(lines[0].context)
        failed = []

        def work(line):
            try:
                for step in range(100):
                    array = line.new(step)
                    shared.exchange(line.buffer(array)).wait()
                    line.check(array, step)
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=work, args=(line,)) for line in lines]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        assert not failed, failed

    hc.run_threads(RANKS, rank)


def test_what_a_closed_communicator_made_is_refused():
    comm = hc.run_threads(1, lambda one: one)[0]
    line = Line(comm)
    buffer = line.buffer(line.new())
    comm.close()
    for use in (
        lambda: line.communication.exchange(buffer),
        lambda: regular.make_pattern(line.context, HALOS, []),
        lambda: Line(comm),
    ):
        with pytest.raises(hc.ClosedError):
            use()


def test_a_forked_child_is_told():
    program = """
        import os, sys, warnings
        warnings.simplefilter("ignore")
        sys.path.insert(0, sys.argv[1])
        from test_faults import Line
        import halocline as hc

        line = Line(hc.init())
        array = line.new()
        buffer = line.buffer(array)
        handle = line.communication.exchange(buffer)
        if os.fork() == 0:
            for use in (
                lambda: line.communication.exchange(buffer), lambda: line.communication.exchange([buffer, buffer]),
                lambda: line.buffer(array) and line.communication.exchange(line.buffer(array)),
                handle.wait, handle.is_ready, lambda: Line(line.context._comm),
            ):
                try:
                    use()
                except hc.ForkedError as error:
                    assert "spawn" in str(error)
                else:
                    raise AssertionError(use)
            # All of the parent's is dropped here, and does not end there.
            del handle, buffer, line
            raise SystemExit(0)
        _, status = os.wait()
        assert status == 0, status
        handle.wait()
        line.check(array)
        print("notified")
    """
    folder = __file__.rpartition("/")[0]
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), folder], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "notified\n", ""), (done.stdout, done.stderr)
