"""What the modules of the interface share."""

from __future__ import annotations

from enum import Enum

__all__ = ["Architecture"]


class Architecture(Enum):
    """Where a field lies."""

    CPU = "cpu"
    GPU = "gpu"
