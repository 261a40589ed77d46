"""Waiting for an exchange of fields or packets in a task of asyncio."""

import asyncio


async def finished(waiting):
    """Returns when the exchange of a ``Waiting`` is over. Cancelling leaves the exchange running."""
    try:
        await _finished(waiting)
    except Exception:
        # On Ctrl-C ``asyncio.run`` cancels its task, which takes effect at the next await: that comes before the error.
        await asyncio.sleep(0)
        raise


async def _finished(waiting):
    if waiting.poll():
        return
    loop = asyncio.get_running_loop()
    descriptor = waiting.fileno()
    awakened = None

    def wake():
        if not awakened.done():
            awakened.set_result(None)

    try:
        while True:
            awakened = loop.create_future()
            # The descriptor stays readable until the next poll, so it is registered only while this task waits.
            if waiting.poll():
                return
            loop.add_reader(descriptor, wake)
            try:
                await awakened
            finally:
                loop.remove_reader(descriptor)
    finally:
        waiting.leave()


async def result(waiting, take):
    """Returns what ``take()`` does once the operation of a ``Waiting`` is over."""
    await finished(waiting)
    return take()


_deliveries = set()


def deliver(waiting):
    """In a thread with a running loop: runs the callback of an operation there, once it is over."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return
    task = loop.create_task(_deliver(waiting))
    # The loop itself refers weakly to its tasks.
    _deliveries.add(task)
    task.add_done_callback(_deliveries.discard)


async def _deliver(waiting):
    try:
        await finished(waiting)
    except Exception:
        # The callback asks for the outcome.
        pass
    # The thread that completes the operation wakes this task shortly before it queues the callback.
    while not waiting.deliver():
        await asyncio.sleep(0)


async def next_round(session):
    """What comes in a round of a session in which this rank sends nothing."""
    round = session._next_round()
    if round is None:
        raise StopAsyncIteration
    return await round


async def finish(session):
    """Ends what this rank sends in a session, and receives until the neighbours have ended."""
    while (round := session._next_round()) is not None:
        await round
    session.finish()


async def entered(session):
    return session


async def left(session, kind):
    """The end of a block of ``async with``."""
    if kind is None:
        await finish(session)
    else:
        session._give_up()
