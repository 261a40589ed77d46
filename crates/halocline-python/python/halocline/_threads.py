"""Ranks that are threads."""

import threading

from ._core import ThreadGroup
from ._errors import HaloTypeError


def run_threads(n, fn):
    """Calls ``fn(comm)`` in ``n`` threads, each a rank of one group, and returns the results in the order of ranks.

    If one rank raises, the others learn that it has left, and the first error is raised here. A rank that returns has left,
    too, unless something keeps its communicator, or a pattern or redistribution made with it (its result, for instance).
    What it has in flight goes on.
    """
    if not callable(fn):
        raise HaloTypeError(f"fn: a function of a communicator is wanted, not {fn!r}")
    group = ThreadGroup(n)
    ranks = group.ranks
    results = [None] * n
    errors = []

    def run(rank):
        # Nobody has it but the function: it has left the group when it returns, if it gives out nothing of it. What is in
        # flight then goes on.
        comm, ranks[rank] = ranks[rank], None
        try:
            results[rank] = fn(comm)
        except BaseException as error:  # raised again where the threads were started
            errors.append(error)
            # The others find that it has left, and do not wait for it.
            comm.close()

    threads = [threading.Thread(target=run, args=(rank,), name=f"rank {rank}") for rank in range(n)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    except BaseException:
        # Ctrl-C, most likely: no rank waits any longer.
        group.interrupt()
        for thread in threads:
            if thread.ident is not None:
                thread.join()
        raise
    finally:
        ranks.clear()
    if errors:
        # The first is the one that the others follow from.
        raise errors[0]
    return results
