"""Collective arguments: a refused one is an error that shows it and says what is wanted."""

from __future__ import annotations

import json
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ._errors import HaloTypeError, RefusedElsewhereError

if TYPE_CHECKING:
    from . import Communicator


def whole(value: Any, what: str) -> int:
    """A whole number."""
    try:
        return operator.index(value)
    except TypeError:
        raise HaloTypeError(f"{what} is a whole number, not {value!r}") from None


def listed(values: Any, what: str) -> list[Any]:
    """A list of the values; ``what`` is plural."""
    try:
        return list(values)
    except TypeError:
        raise HaloTypeError(f"{what} are a list, not {values!r}") from None


def gather(comm: Communicator, say: Callable[[], Any]) -> list[Any]:
    """Gathers a JSON value of each rank. If ``say`` raises on one rank, this is an error on all ranks. Collective."""
    said, refusal = None, None
    try:
        said = say()
    except Exception as error:
        refusal = error
    line = json.dumps([said, None if refusal is None else str(refusal)])
    all_ranks = [json.loads(line) for line in comm.all_gather(line.encode())]
    if refusal is not None:
        raise refusal
    for rank, (_, refused) in enumerate(all_ranks):
        if refused is not None:
            raise RefusedElsewhereError(f"rank {rank} refused its arguments: {refused}")
    return [said for said, _ in all_ranks]
