"""Scheduled exchanges with each kind of stream, where they exist (GHEX has them where it is built for GPUs)."""

from __future__ import annotations

from typing import Any

import numpy as np
from common import Findings, main
from ghex import unstructured
from ghex.context import make_context


class OfCuda:
    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, 0)


class OfCupy:
    ptr = 0


def run(comm: Any) -> Findings:
    context, findings = make_context(comm, False), Findings(comm)
    here, there = comm.rank, (comm.rank + 1) % comm.size
    ids = [2 * here, 2 * here + 1] + ([2 * there] if comm.size > 1 else [])
    domain = unstructured.DomainDescriptor(comm.rank, ids, list(range(2, len(ids))))
    pattern = unstructured.make_pattern(context, unstructured.HaloGenerator(), [domain])
    communication = unstructured.make_communication_object(context)
    expected = np.array(ids, float)
    for name, stream in [("none", None), ("__cuda_stream__", OfCuda()), ("ptr", OfCupy())]:
        for form in (1, 2, 3, "list"):
            number = form if isinstance(form, int) else 2
            arrays = [expected + 100 * field for field in range(number)]
            for array in arrays:
                array[2:] = -1
            buffers = [pattern(unstructured.make_field_descriptor(domain, array)) for array in arrays]
            if hasattr(communication, "schedule_exchange"):
                names = {1: ["b"], 2: ["b0", "b1"], 3: ["b0", "b1", "b2"], "list": ["patterns"]}[form]
                given = [buffers] if form == "list" else buffers
                communication.schedule_exchange(stream, *given).schedule_wait(stream)
                for array in arrays:
                    array[2:] = -1
                handle = communication.schedule_exchange(stream=stream, **dict(zip(names, given)))
                handle.schedule_wait(stream=stream)
                assert isinstance(communication.has_scheduled_exchange(), bool)
            else:
                handle = communication.exchange(buffers)
            handle.wait()
            for field, array in enumerate(arrays):
                findings.add(f"{name}, {form}, field {field}", array, expected + 100 * field)
    return findings


if __name__ == "__main__":
    main(run)
