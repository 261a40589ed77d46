"""Results: medians over rounds, ratios, the table."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from statistics import median

from cases import Case
from contenders import OURS, Block, Contender


BUSY, UNKNOWN = "busy", "unknown"
STATES = ["near", "far", UNKNOWN, BUSY]


@dataclass
class Outcome:
    """A case: all blocks of all contenders, in the order in which they were measured."""

    case: Case
    blocks: list[tuple[str, Block]] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)

    def counted(self, contender: str, state: str) -> list[Block]:
        """The contender's blocks in this state of the cores."""
        states = self._states()
        return [b for (name, b), at in zip(self.blocks, states) if name == contender and at == state]

    def rounds(self, state: str) -> int:
        """The number of rounds in this state that every contender has, failed contenders aside."""
        names = {name for name, _ in self.blocks} - self.failures.keys()
        return min((len(self.counted(name, state)) for name in names), default=0)

    @property
    def cores(self) -> str:
        """The state with the most rounds, which the figures are taken from; "busy" if there is no other."""
        return max(STATES, key=self.rounds)

    def _states(self) -> list[str | None]:
        """`Block.cores` of each block. A block without a stamp has the state of its neighbours if both agree."""
        own = [block.cores for _, block in self.blocks]
        known = [at for at in own if at is not None]
        states, before = [], known[0] if known else UNKNOWN
        for index, at in enumerate(own):
            after = next((later for later in own[index:] if later is not None), before)
            states.append(at or (before if before == after else None))
            before = at or before
        return states

    def us(self, contender: str) -> float | None:
        """Median of the blocks' medians."""
        times = [block.us for block in self.counted(contender, self.cores)]
        return median(times) if times else None

    def copy_us(self) -> float | None:
        """The copying pass, measured in the processes of `halocline`."""
        times = [block.copy_us for block in self.counted(OURS.name, self.cores)]
        return median(times) if times else None

    def path(self, contender: str) -> str:
        """The path that the links took, most often."""
        paths = [block.path for block in self.counted(contender, self.cores)]
        return Counter(paths).most_common(1)[0][0] if paths else ""

    def summary(self, contenders: list[Contender]) -> dict:
        """For --json."""
        times = {one.name: self.us(one.name) for one in contenders}
        return {
            "row": "case",
            "case": self.case.name,
            "title": self.case.title,
            "cores": self.cores,
            "rounds": self.rounds(self.cores),
            "us": times,
            "path": self.path(OURS.name),
            "copy_us": self.copy_us(),
            "ratios": {f"{a} / {b}": value for (a, b), value in self.ratios(contenders).items()},
            "failures": self.failures,
        }

    def ratios(self, contenders: list[Contender]) -> dict[tuple[str, str], float | None]:
        """Each form of Halocline over each peer, and `halocline` over the copying pass."""
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
    header = ["us, exchange + reading the halo", "cores", "rounds", *names] + ([COPY, "path"] if has_ours else [])
    rows = [header]
    for one in outcomes:
        row = [one.case.title, one.cores, str(one.rounds(one.cores)), *(_figure(one.us(name)) for name in names)]
        rows.append(row + ([_figure(one.copy_us()), one.path(OURS.name)] if has_ours else []))
    text = markdown(rows)
    pairs = list(outcomes[0].ratios(contenders)) if outcomes else []
    if pairs:
        rows = [["ratio", *(f"{a} / {b}" for a, b in pairs)]]
        rows += [[one.case.title, *(_figure(one.ratios(contenders)[pair]) for pair in pairs)] for one in outcomes]
        text += "\n" + markdown(rows)
    return text


def _figure(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def markdown(rows: list[list[str]]) -> str:
    """A table; the first row is its header."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |" for row in rows]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines) + "\n"
