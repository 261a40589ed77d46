"""Ranks that are threads."""

import _thread
import threading

from ._core import ThreadGroup
from ._errors import HaloTypeError

ASKS_AFTER = 0.05
"""How long a signal may go unnoticed, in seconds, as in waits of the library."""


def run_threads(n, fn):
    """Calls ``fn(comm)`` in ``n`` threads, each a rank of one group, and returns the results in the order of ranks.

    If one rank raises, the others learn that it has left, and the first error is raised here. A rank that returns has left,
    too, unless something keeps its communicator, or a pattern or redistribution made with it (its result, for instance).
    What it has in flight goes on.

    Ctrl-C closes the communicators of all ranks: their waits, and later calls, raise ``KeyboardInterrupt``. It is raised here
    once all ranks have ended; a second Ctrl-C raises it at once.
    """
    if not callable(fn):
        raise HaloTypeError(f"fn: a function of a communicator is wanted, not {fn!r}")
    group = ThreadGroup(n)
    results = [None] * n
    errors = []
    is_over = False
    over = threading.Lock()
    over.acquire()

    def end():
        nonlocal is_over
        is_over = True
        over.release()

    def wait():
        # A signal that the kernel gives to another thread does not interrupt `acquire`: its handler runs when this thread looks.
        while not is_over:
            over.acquire(timeout=ASKS_AFTER)

    def run(rank, comm):
        # Nobody has the communicator but this thread: the rank has left the group when the function returns, if that gives out
        # nothing of it. What is in flight then goes on.
        try:
            results[rank] = fn(comm)
        except BaseException as error:  # raised again where the threads were started
            errors.append(error)
            # The others find that it has left, and do not wait for it.
            comm.close()

    def start_and_join():
        threads = []
        try:
            # An interrupted group has no ranks.
            threads = [
                threading.Thread(target=run, args=(rank, comm), name=f"rank {rank}") for rank, comm in enumerate(group.ranks)
            ]
            for thread in threads:
                thread.start()
        except BaseException as error:  # the machine has no more threads
            errors.insert(0, error)
            group.interrupt()
        for thread in threads:
            if thread.ident is not None:
                thread.join()
        end()

    # What a signal handler raises amid `Thread.start` or `Thread.join` may leave a lock locked, or a thread that runs marked as
    # ended: which of these depends on the version of Python. Handlers run in the main thread, so another one makes these calls.
    manager = threading.Thread(target=start_and_join, name="ranks")

    def start_manager():
        try:
            manager.start()
        except BaseException as error:  # the machine has no more threads
            errors.append(error)
            end()

    try:
        _thread.start_new_thread(start_manager, ())
        wait()
    except BaseException:  # Ctrl-C, most likely
        if group.interrupt():
            wait()
        raise
    if errors:
        # The first is the one that the others follow from.
        raise errors[0]
    return results
