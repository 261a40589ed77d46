"""Ranks that are threads."""

import _thread
import threading

from ._core import ThreadGroup
from ._errors import HaloTypeError

ASKS_AFTER = 0.05
"""How often a wait checks for signals, in seconds, as in waits of the library."""


def run_threads(n, fn):
    """Calls ``fn(comm)`` in ``n`` threads, each a rank of one group, and returns the results in the order of ranks.

    A rank leaves the group when its function raises or returns; the first error is raised here, and waits of other ranks for
    that rank fail. A rank that returns stays in the group while something keeps its communicator, or a pattern or
    redistribution made with it (its result, for instance). Its exchanges in flight continue.

    Ctrl-C closes the communicators of all ranks: their waits and later calls raise ``KeyboardInterrupt``. It is raised here
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
        # A signal that the kernel delivers to another thread does not interrupt `acquire`; its handler runs when this thread wakes.
        while not is_over:
            over.acquire(timeout=ASKS_AFTER)

    def run(rank, comm):
        # Only this thread holds the communicator. When the function returns and its result does not refer to it, the rank leaves
        # the group. Its exchanges in flight continue.
        try:
            results[rank] = fn(comm)
        except BaseException as error:  # raised again where the threads were started
            errors.append(error)
            # Other ranks no longer wait for this one.
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

    # An exception of a signal handler inside `Thread.start` or `Thread.join` may leave a lock locked, or mark a running thread as
    # ended, depending on the version of Python. Handlers run in the main thread, so another thread makes these calls.
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
        # The first error is the cause of the others.
        raise errors[0]
    return results
