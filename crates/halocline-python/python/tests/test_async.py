"""Tasks of asyncio: many at once, without busy waiting, cancellable, in several loops."""

import asyncio
import gc
import os
import threading
import time

import numpy as np
import pytest
from repeats import repeats

import halocline as hc


def bound(comm, cells=64):
    pattern = hc.RegularGrid((cells,), periodic=(True,)).decompose(comm).pattern(2)
    (domain,) = pattern.domains
    array = np.zeros(pattern.shape)
    array[domain.owned] = np.arange(domain.first[0], domain.first[0] + domain.owned_shape[0])
    want = (np.arange(pattern.shape[0]) + domain.first[0] - 2) % cells
    return hc.HaloExchange(comm, [(pattern, array)]), array, want


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def test_thousands_of_rounds_in_loops_of_several_threads():
    def run(comm):
        halo, array, want = bound(comm)

        async def main():
            for turn in range(repeats(3000, 600)):
                array[[0, 1, -2, -1]] = -1
                if turn % 3 == 0:
                    await halo.exchange_async()
                elif turn % 3 == 1:
                    pending = halo.exchange(wait=False)
                    await asyncio.gather(pending, pending, halo.pending)
                    await pending
                else:
                    await asyncio.wait_for(halo.exchange_async(), 60)
                np.testing.assert_array_equal(array, want)

        asyncio.run(main())

    hc.run_threads(3, run)
    gc.collect()
    before = descriptors()
    hc.run_threads(2, run)
    gc.collect()
    assert descriptors() <= before


def test_many_objects_in_one_loop():
    def run(comm):
        objects = [bound(comm.duplicate()) for _ in range(20)]

        async def one(halo, array, want):
            for _ in range(50):
                array[[0, 1, -2, -1]] = -1
                await halo.exchange_async()
                np.testing.assert_array_equal(array, want)

        async def main():
            await asyncio.gather(*[one(*bound) for bound in objects])

        asyncio.run(main())

    hc.run_threads(2, run)


def test_a_task_that_waits_costs_nothing_and_lets_others_run():
    def run(comm):
        halo, array, want = bound(comm)
        if comm.rank == 1:
            time.sleep(1.0)  # the peer is late
            halo.exchange()
            return None
        ticks = 0

        async def main():
            nonlocal ticks
            task = asyncio.ensure_future(halo.exchange_async())
            while not task.done():
                await asyncio.sleep(0.05)
                ticks += 1
            await task

        before = time.thread_time()
        asyncio.run(main())
        np.testing.assert_array_equal(array, want)
        return ticks, time.thread_time() - before

    (ticks, busy), _ = hc.run_threads(2, run)
    assert ticks >= 5
    assert busy < 0.3, f"{busy} s of a second's wait were spent computing"


def test_cancelling_leaves_the_exchange_running():
    def run(comm):
        halo, array, want = bound(comm)
        for turn in range(200):
            array[[0, 1, -2, -1]] = -1
            if comm.rank == 0:

                async def main():
                    task = asyncio.ensure_future(halo.exchange_async())
                    for _ in range(turn % 4):
                        await asyncio.sleep(0)
                    task.cancel()
                    try:
                        await task
                    except asyncio.CancelledError:
                        pass

                asyncio.run(main())
            comm.barrier()
            if comm.rank == 1:
                halo.exchange()
            halo.wait()
            np.testing.assert_array_equal(array, want)
            comm.barrier()

    hc.run_threads(2, run)


def test_loops_that_are_closed_and_tasks_that_are_forgotten():
    def run(comm):
        halo, array, want = bound(comm)
        for _ in range(200):
            if comm.rank == 0:
                loop = asyncio.new_event_loop()
                task = loop.create_task(asyncio.wait_for(halo.exchange_async(), 60))
                loop.call_soon(loop.stop)
                loop.run_forever()
                loop.run_until_complete(asyncio.sleep(0))
                # The task is never finished; its wake finds no loop.
                task._log_destroy_pending = False
                del task
                loop.close()
                gc.collect(0)
            comm.barrier()
            if comm.rank == 1:
                halo.exchange()
            halo.wait()
            comm.barrier()

    hc.run_threads(2, run)


def test_the_gil_and_wakes():
    """A thread that holds the GIL all the time, one that waits with it released, tasks woken by a thread without Python: no
    lock of the one is wanted by the other."""

    def run(comm):
        halo, array, want = bound(comm)
        stop = threading.Event()

        def hog():
            while not stop.is_set():
                sum(range(2000))

        hogs = [threading.Thread(target=hog) for _ in range(2)]
        for thread in hogs:
            thread.start()

        async def main():
            for _ in range(repeats(60, 20)):
                await halo.exchange_async()

        try:
            asyncio.run(main())
            for _ in range(repeats(20, 5)):
                halo.exchange()
        finally:
            stop.set()
        for thread in hogs:
            thread.join()
        np.testing.assert_array_equal(array, want)

    hc.run_threads(2, run)


def test_errors_are_the_outcome():
    def run(comm):
        halo, _, _ = bound(comm)

        async def main():
            with pytest.raises(hc.HaloValueError, match="no set 3"):
                await halo.exchange_async(set=3)
            pending = halo.exchange_async() if comm.rank == 0 else None
            if pending is not None:
                with pytest.raises(hc.InFlightError):
                    await halo.exchange_async()
            await asyncio.sleep(0)
            return pending

        pending = asyncio.run(main())
        comm.barrier()
        if comm.rank == 1:
            halo.exchange()
        else:
            # Waited for outside any loop.
            pending.wait()

        late = bound(comm)[0] if comm.size == 1 else None
        assert late is None
        failing = hc.HaloExchange(
            comm,
            [(hc.RegularGrid((8,), periodic=(True,)).decompose(comm).pattern(1), np.zeros(8 // comm.size + 2))],
            deadline=0.1,
        )
        if comm.rank == 0:

            async def wait():
                with pytest.raises(hc.ExchangeTimeoutError):
                    await failing.exchange_async()

            asyncio.run(wait())
        comm.barrier()

    hc.run_threads(2, run)
