"""Exchanges that wait for an earlier one of the same pattern: what signal handlers, other threads and forked children do meanwhile."""

import os
import subprocess
import sys
import textwrap

PROLOGUE = """
import os, signal, sys, threading, time
import numpy as np
import halocline as hc
from halocline.compat.ghex import unstructured
from halocline.compat.ghex.context import make_context

def fields(comm):
    domain = unstructured.DomainDescriptor(comm.rank, [comm.rank, 1 - comm.rank], [1])
    context = make_context(comm)
    pattern = unstructured.make_pattern(context, unstructured.HaloGenerator(), [domain])
    arrays = [np.array([10.0 * at + comm.rank, -1.0]) for at in range(6)]
    buffers = [pattern(unstructured.make_field_descriptor(domain, array)) for array in arrays]
    return arrays, buffers, unstructured.make_communication_object(context)

def waits_within(thread, call):
    # Once it is in a call of the library, which begins no other exchange, it waits.
    while thread.is_alive():
        frame = sys._current_frames().get(thread.ident)
        names = []
        while frame is not None:
            names.append(frame.f_code.co_name)
            frame = frame.f_back
        if call in names:
            return
        time.sleep(0.001)
"""


def run(body, launched=True):
    launcher = ["-m", "halocline", "launch", "-n", "2", "--no-prefix", "--", sys.executable] if launched else []
    command = [sys.executable, *launcher, "-c", PROLOGUE + textwrap.dedent(body)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)
    return done.stdout


def test_a_signal_handler_amid_an_exchange_is_refused(tmp_path):
    """What it comes amid was called first, and would never get on."""
    os.mkfifo(tmp_path / "handled")
    said = run(f"""
    handled = {str(tmp_path / "handled")!r}
    comm = hc.init()
    arrays, buffers, communication = fields(comm)
    if comm.rank == 0:
        def handler(*_):
            try:
                communication.exchange(buffers[5])
            except hc.HaloValueError as error:
                print("refused:", error, flush=True)
            open(handled, "w").close()
        signal.signal(signal.SIGALRM, handler)
        pending = [communication.exchange(buffers[at]) for at in range(2)]
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        # Waits for the first, which the other rank begins once the handler has come.
        pending.append(communication.exchange(buffers[2]))
    else:
        open(handled).close()
        pending = [communication.exchange(buffers[at]) for at in range(3)]
    for one in pending:
        one.wait()
    assert [array[1] for array in arrays[:3]] == [10.0 * at + 1 - comm.rank for at in range(3)], arrays
    # Later it may.
    communication.exchange(buffers[5]).wait()
    print("through", flush=True)
    """)
    assert said.count("through") == 2, said
    assert said.count("refused: a signal handler or finaliser called an exchange of a pattern") == 1, said


WAITING = """
    there, came, ready = {}, threading.Event(), threading.Event()

    def rank(comm):
        mine = there[comm.rank] = (*fields(comm), threading.current_thread())
        if comm.rank == 1:
            came.wait()
            for at in range(4):
                mine[2].exchange(mine[1][at])
            return
        for at in range(2):
            mine[2].exchange(mine[1][at])
        ready.set()
        mine[2].exchange(mine[1][2])
        mine[2].exchange(mine[1][3]).wait()

    ranks = threading.Thread(target=hc.run_threads, args=(2, rank))
    ranks.start()
    ready.wait()
    _, buffers, communication, thread = there[0]
    waits_within(thread, "_begin_later")
"""


def test_a_forked_child_is_told_amid_an_exchange_of_its_parent():
    said = run(
        WAITING
        + """
    import warnings
    warnings.simplefilter("ignore")
    child = os.fork()
    if child == 0:
        try:
            communication.exchange(buffers[4])
        except hc.ForkedError:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    came.set()
    ranks.join()
    print("through")
    """,
        launched=False,
    )
    assert said == "through\n", said


def test_ctrl_c_ends_a_wait_for_another_thread_that_exchanges():
    said = run(
        WAITING
        + """
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        communication.exchange(buffers[4])
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    came.set()
    ranks.join()
    print("through")
    """,
        launched=False,
    )
    assert said == "interrupted\nthrough\n", said
