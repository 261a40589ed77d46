"""Arguments: what cannot be taken is an error that says what was given, and what would be right."""

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
    """A list of whatever there is several of."""
    try:
        return list(values)
    except TypeError:
        raise HaloTypeError(f"{what} are a list, not {values!r}") from None


def gather(comm: Communicator, say: Callable[[], Any]) -> list[Any]:
    """What every rank says, as JSON has it. If that is an error on one, it is an error on all. Collective."""
    said, refusal = None, None
    try:
        said = say()
    except Exception as error:
        refusal = error
    line = json.dumps([said, None if refusal is None else str(refusal)])
    everybody = [json.loads(line) for line in comm.all_gather(line.encode())]
    if refusal is not None:
        raise refusal
    for rank, (_, refused) in enumerate(everybody):
        if refused is not None:
            raise RefusedElsewhereError(f"rank {rank} was given something impossible: {refused}")
    return [said for said, _ in everybody]
