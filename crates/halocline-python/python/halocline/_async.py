"""Waiting for an exchange in a task of asyncio."""

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
