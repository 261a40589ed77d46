"""Dated data files: a line with date, machine, commit and command, then one JSON object a line."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path


def folder(text: str) -> Path:
    """A directory that exists, for argparse."""
    if not Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"{text} is no directory; make it first")
    return Path(text)


def append(directory: Path, name: str, lines: list[dict]) -> None:
    """Appends a run to today's file of this benchmark."""
    date = datetime.now(timezone.utc).date().isoformat()
    head = {"date": date, "machine": _machine(), "commit": _commit(directory), "command": shlex.join(sys.argv)}
    with open(directory / f"{date}-{name}.jsonl", "a", encoding="utf-8") as file:
        file.writelines(f"{json.dumps(line)}\n" for line in [head, *lines])


def _machine() -> str:
    models = [line.split(":", 1)[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    kilobytes = next((int(line.split()[1]) for line in _lines("/proc/meminfo") if line.startswith("MemTotal")), 0)
    cores = len(os.sched_getaffinity(0))
    return f"{models[0] if models else 'unknown processor'}, {cores} cores, {kilobytes / (1 << 20):.1f} GiB"


def _lines(path: str) -> list[str]:
    return Path(path).read_text(encoding="utf-8").splitlines()


def _commit(directory: Path) -> str | None:
    command = ["git", "-C", str(directory), "describe", "--always", "--dirty"]
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
