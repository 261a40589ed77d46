"""What came out: medians over rounds, ratios, the table."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from statistics import median

from cases import Case
from contenders import OURS, Block, Contender


MIXED, BUSY = "mixed", "busy"


@dataclass
class Round:
    """One block of every contender, one after the other."""

    blocks: dict[str, Block] = field(default_factory=dict)

    @property
    def cores(self) -> str:
        """How the cores stood (`Block.cores`); "mixed" if that changed on the way."""
        seen = {block.cores for block in self.blocks.values()} - {None}
        if BUSY in seen:
            return BUSY
        return seen.pop() if len(seen) == 1 else MIXED


@dataclass
class Outcome:
    """A case with its rounds. Counted are those in the state of the cores that was seen most often."""

    case: Case
    rounds: list[Round]
    failures: dict[str, str]

    @property
    def cores(self) -> str:
        steady = [one.cores for one in self.rounds if one.cores not in (MIXED, BUSY)]
        # Without a good round, the table has what there is, and says so.
        return Counter(steady or [one.cores for one in self.rounds]).most_common(1)[0][0]

    @property
    def is_steady(self) -> bool:
        return bool(self.rounds) and self.cores not in (MIXED, BUSY)

    @property
    def counted(self) -> list[Round]:
        return [one for one in self.rounds if one.cores == self.cores]

    def us(self, contender: str) -> float | None:
        """Median of the blocks' medians."""
        times = [one.blocks[contender].us for one in self.counted if contender in one.blocks]
        return median(times) if times else None

    def copy_us(self) -> float | None:
        """The copying pass, in the processes of ours."""
        times = [one.blocks[OURS.name].copy_us for one in self.counted if OURS.name in one.blocks]
        return median(times) if times else None

    def way(self, contender: str) -> str:
        """The way that the links took, most often."""
        ways = [one.blocks[contender].way for one in self.counted if contender in one.blocks]
        return Counter(ways).most_common(1)[0][0] if ways else ""

    def summary(self, contenders: list[Contender]) -> dict:
        """For --json."""
        times = {one.name: self.us(one.name) for one in contenders}
        return {
            "row": "case",
            "case": self.case.name,
            "title": self.case.title,
            "cores": self.cores,
            "rounds": len(self.counted),
            "rounds_not_counted": len(self.rounds) - len(self.counted),
            "us": times,
            "way": self.way(OURS.name),
            "copy_us": self.copy_us(),
            "ratios": {f"{a} / {b}": value for (a, b), value in self.ratios(contenders).items()},
            "failures": self.failures,
        }

    def ratios(self, contenders: list[Contender]) -> dict[tuple[str, str], float | None]:
        """Each way of ours over each peer, and ours over the copying pass."""
        pairs = {}
        for ours in (one for one in contenders if one.ours):
            for peer in (one for one in contenders if not one.ours):
                pairs[ours.name, peer.name] = _ratio(self.us(ours.name), self.us(peer.name))
        if OURS in contenders:
            pairs[OURS.name, COPY] = _ratio(self.us(OURS.name), self.copy_us())
        return pairs


COPY = "copying pass"


def _ratio(ours: float | None, theirs: float | None) -> float | None:
    return ours / theirs if ours is not None and theirs else None


def render(outcomes: list[Outcome], contenders: list[Contender]) -> str:
    """Two tables in Markdown: times, ratios."""
    names = [one.name for one in contenders]
    has_ours = OURS in contenders
    header = ["us, exchange + reading the halo", "cores", "rounds", *names] + ([COPY, "way"] if has_ours else [])
    rows = [header]
    for one in outcomes:
        row = [one.case.title, one.cores, str(len(one.counted)), *(_figure(one.us(name)) for name in names)]
        rows.append(row + ([_figure(one.copy_us()), one.way(OURS.name)] if has_ours else []))
    text = _markdown(rows)
    pairs = list(outcomes[0].ratios(contenders)) if outcomes else []
    if pairs:
        rows = [["ratio", *(f"{a} / {b}" for a, b in pairs)]]
        rows += [[one.case.title, *(_figure(one.ratios(contenders)[pair]) for pair in pairs)] for one in outcomes]
        text += "\n" + _markdown(rows)
    return text


def _figure(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def _markdown(rows: list[list[str]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |" for row in rows]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines) + "\n"
