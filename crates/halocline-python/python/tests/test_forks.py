"""Forked children of a process that uses the package."""

import subprocess
import sys

import pytest
from child import ends_well, script
from repeats import repeats


def test_a_forked_child_is_told_and_harms_nobody():
    ends_well(
        """
        import os, warnings
        warnings.simplefilter("ignore")
        from halocline._core import ThreadGroup
        ranks = ThreadGroup(2).ranks
        import threading
        made = [None, None]
        def make(rank):
            made[rank] = bound(ranks[rank])
        threads = [threading.Thread(target=make, args=(rank,)) for rank in range(2)]
        [t.start() for t in threads]; [t.join() for t in threads]
        pending = made[0].exchange(wait=False)
        if os.fork() == 0:
            for use in (
                made[0].exchange, pending.wait, ranks[0].barrier, ranks[0].duplicate, lambda: bound(ranks[1]),
                made[0].explain, lambda: hc.zeros(3, comm=ranks[0]),
            ):
                try:
                    use()
                except hc.ForkedError as error:
                    assert "spawn" in str(error)
                else:
                    raise AssertionError(use)
            # All of the parent's is dropped here, and the parent's ranks do not notice.
            del pending
            made.clear()
            ranks.clear()
            # What is made here works here.
            hc.run_threads(2, lambda comm: bound(comm).exchange())
            print("notified", flush=True)
            raise SystemExit(0)
        _, status = os.wait()
        assert status == 0, status
        made[1].exchange()
        pending.wait()
        """,
        says="notified",
    )


@pytest.mark.parametrize("launched", [True, False])
def test_a_forked_child_shares_the_arrays_that_ranks_share(launched):
    """As with any memory that processes share: what the child writes, the parent has. A copy is the child's own."""
    program = f"""
        import os, warnings
        warnings.simplefilter("ignore")
        comm = hc.init()
        array = hc.zeros(4, comm=comm)
        copy = array.copy()
        if os.fork() == 0:
            array[:] = copy[:] = 7
            os._exit(0)
        _, status = os.wait()
        assert status == 0 and (copy == 0).all()
        assert (array == (7 if {launched} else 0)).all(), array
    """
    launch = [sys.executable, "-m", "halocline", "launch", "-n", "2", "--no-prefix", "--"]
    command = [*(launch if launched else []), *script(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, (done.stdout, done.stderr)


@pytest.mark.parametrize("before", ["", "hc.init().close()", "threading.Thread(target=hc.init, daemon=True).start()"])
def test_init_in_a_forked_child(before):
    ends_well(
        f"""
        import os, threading, warnings
        warnings.simplefilter("ignore")
        parents = hc.init()
        {before}
        if os.fork() == 0:
            comm = hc.init()
            assert comm.size == 1 and comm is hc.init() and comm is not parents
            bound(comm).exchange()
            for transport in "shm", "mpi":
                try:
                    hc.init(transport)
                except hc.HaloError:
                    continue
                raise AssertionError(transport)
            if os.fork() == 0:
                hc.init("thread").barrier()
                raise SystemExit(0)
            _, status = os.wait()
            assert status == 0, status
            print("made", flush=True)
            raise SystemExit(0)
        _, status = os.wait()
        assert status == 0, status
        hc.init().barrier()
        """,
        says="made",
    )


def test_a_forked_child_of_a_rank_is_alone():
    program = """
        import os
        comm = hc.init()
        if os.fork() == 0:
            hc.init().barrier()
            print("alone", hc.init().size, flush=True)
            os._exit(0)
        _, status = os.wait()
        assert status == 0, status
        comm.barrier()
    """
    launch = [sys.executable, "-m", "halocline", "launch", "-n", "2", "--no-prefix", "--"]
    done = subprocess.run([*launch, *script(program)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout == "alone 1\n" * 2, (done.stdout, done.stderr)


def test_children_forked_while_another_thread_drops_what_it_has():
    """Which puts array objects aside: a lock that it holds for that would stay locked in the child."""
    ends_well(f"""
        import os, threading, warnings
        warnings.simplefilter("ignore")
        comm, stop = hc.init(), threading.Event()
        # What PyO3 makes at the first call of a kind it makes under a lock, which a fork would take along.
        hc.Field(np.zeros(3))

        def work():
            while not stop.is_set():
                hc.Field(np.zeros(3))

        thread = threading.Thread(target=work)
        thread.start()
        for _ in range({repeats(1000, 100)}):
            child = os.fork()
            if child == 0:
                hc.Field(np.zeros(3))
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
        stop.set()
        thread.join()
    """)
