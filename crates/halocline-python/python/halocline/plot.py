"""Plots of patterns and partitions as matplotlib figures (``pip install 'halocline[plot]'``).

figure = halocline.plot.pattern(pattern, comm)
if comm.rank == 0:
    figure.savefig("pattern.png")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import Communicator, HaloTypeError, HaloValueError, Partition, Pattern
from ._arguments import gather, listed, whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["domains", "partition", "pattern"]

# The most ranks for which a heat map shows its numbers.
_FEW = 16


def pattern(pattern: Pattern, comm: Communicator) -> Figure:
    """A heat map of the cells that each rank sends to each other. Collective; every rank gets the figure."""
    import numpy as np

    all_ranks = gather(_checked(comm), lambda: [(peer, sent) for peer, sent, _ in _of_ranks(pattern, comm).peers])
    sent = np.full((comm.size, comm.size), np.nan)
    for rank, those in enumerate(all_ranks):
        for peer, cells in those:
            if cells:
                sent[rank, peer] = cells
    figure, axes = _figure(f"Cells that {comm.size} ranks send to each other")
    image = axes.imshow(sent, cmap="viridis_r", vmin=0, aspect="equal", interpolation="nearest")
    axes.set_xlabel("to rank")
    axes.set_ylabel("from rank")
    _whole_numbers(axes)
    figure.colorbar(image, ax=axes, label="cells")
    if comm.size <= _FEW:
        middle = np.nanmax(sent, initial=0) / 2
        for rank, peer in np.argwhere(~np.isnan(sent)):
            dark = sent[rank, peer] > middle
            axes.text(
                peer, rank, f"{sent[rank, peer]:,.0f}", ha="center", va="center", color="white" if dark else "black"
            )
    return figure


def domains(pattern: Pattern, comm: Communicator, *, axes: tuple[int, int] | None = None) -> Figure:
    """The domains of a regular grid, each in the colour of its rank. Collective; every rank gets the figure.

    ``axes``: the two that are drawn, (across, up), by default the last two; of the others, the first layer of cells. A grid of
    one axis is drawn as a row.
    """

    def places() -> Any:
        wanted = None if axes is None else [whole(axis, "an axis") for axis in listed(axes, "axes")]
        return wanted, [(domain.id, domain.first, domain.owned_shape) for domain in _of_ranks(pattern, comm).domains]

    all_ranks = gather(_checked(comm), places)
    wanted = all_ranks[comm.rank][0]
    boxes = [(rank, *box) for rank, (_, those) in enumerate(all_ranks) for box in those]
    if not boxes or any(first is None for _, _, first, _ in boxes):
        raise HaloValueError("only domains of a regular grid have places; draw others with partition()")
    ndim = len(boxes[0][2])
    if wanted is None:
        wanted = [ndim - 1, max(ndim - 2, 0)]
    if len(wanted) != 2 or not set(wanted) <= set(range(ndim)) or len(set(wanted)) < min(ndim, 2):
        raise HaloValueError(f"axes {wanted} of a grid of {ndim} axes; give two different ones, from 0")
    across, up = wanted
    figure, drawn = _figure(f"{len(boxes)} domains of {comm.size} ranks")
    from matplotlib.patches import Rectangle

    for rank, number, first, owned in boxes:
        if any(first[axis] for axis in range(ndim) if axis not in (across, up)):
            continue
        height = (first[up], owned[up]) if ndim > 1 else (0, 1)
        corner, width = (first[across], height[0]), owned[across]
        drawn.add_patch(Rectangle(corner, width, height[1], facecolor=_colour(rank), edgecolor="white"))
        label = f"rank {rank}" if len(boxes) == comm.size else f"{number}\nrank {rank}"
        drawn.text(corner[0] + width / 2, height[0] + height[1] / 2, label, ha="center", va="center", fontsize="small")
    drawn.autoscale_view()
    drawn.set_aspect("equal" if ndim > 1 else "auto")
    drawn.set_xlabel(f"axis {across}")
    if ndim > 1:
        drawn.set_ylabel(f"axis {up}")
        drawn.invert_yaxis()
    else:
        drawn.set_yticks([])
    return figure


def partition(points: Any, owners: Partition | Any, *, connectivity: Any = None) -> Figure:
    """A mesh in the colours of the ranks that own its cells.

    ``points``: their places, shape (n, 2). ``owners``: the rank of each. With ``connectivity`` (a row of vertices for each
    polygon), points are the vertices, and owners those of the polygons.
    """
    import numpy as np

    places = _array(points, "places", "iuf")
    ranks = _array(owners.owners if isinstance(owners, Partition) else owners, "owners", "iu")
    if places.ndim != 2 or places.shape[1] != 2:
        raise HaloValueError(f"places of shape {places.shape}; (n, 2) is wanted, two coordinates for each point")
    polygons = None if connectivity is None else _array(connectivity, "the connectivity", "iu")
    if polygons is not None and polygons.ndim != 2:
        raise HaloValueError(f"a connectivity of shape {polygons.shape}; give a row of vertices for each polygon")
    coloured = len(places) if polygons is None else len(polygons)
    if ranks.shape != (coloured,):
        what = "points" if polygons is None else "polygons"
        raise HaloValueError(f"owners of shape {ranks.shape} for {coloured} {what}; give one for each")
    if polygons is not None and polygons.size and not 0 <= polygons.min() <= polygons.max() < len(places):
        raise HaloValueError(
            f"vertices {polygons.min()} to {polygons.max()} in the connectivity, but {len(places)} points; give positions in the list of points, from 0"
        )
    figure, axes = _figure(f"{coloured:,} cells of {len(np.unique(ranks))} ranks")
    colours = {int(rank): _colour(int(rank)) for rank in np.unique(ranks)}
    if polygons is None:
        size = min(40.0, 60_000 / max(1, coloured))
        axes.scatter(places[:, 0], places[:, 1], c=[colours[int(rank)] for rank in ranks], s=size, linewidths=0)
    else:
        from matplotlib.collections import PolyCollection

        facecolors = [colours[int(rank)] for rank in ranks]
        axes.add_collection(PolyCollection(places[polygons], facecolors=facecolors, edgecolors="white", linewidths=0.2))
        axes.autoscale_view()
    axes.set_aspect("equal")
    if len(colours) <= _FEW:
        from matplotlib.patches import Patch

        handles = [Patch(color=colour, label=f"rank {rank}") for rank, colour in colours.items()]
        axes.legend(handles=handles, loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    return figure


def _figure(title: str) -> tuple[Figure, Axes]:
    try:
        from matplotlib.figure import Figure
    except ImportError as missing:
        raise ImportError(
            f"halocline.plot draws with matplotlib, which cannot be imported ({missing}): pip install 'halocline[plot]'"
        ) from missing
    figure = Figure(figsize=(8, 6), dpi=120, layout="constrained")
    axes = figure.subplots()
    axes.set_title(title)
    return figure, axes


def _colour(rank: int) -> Any:
    """The same for a rank in every picture: ten light ones, ten dark ones, then again."""
    from matplotlib import colormaps

    return colormaps["tab20"](2 * (rank % 10) + (rank // 10 + 1) % 2)


def _whole_numbers(axes: Axes) -> None:
    from matplotlib.ticker import MaxNLocator

    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True))


def _checked(comm: Communicator) -> Communicator:
    if not isinstance(comm, Communicator):
        raise HaloTypeError(f"a halocline.Communicator is wanted, not {comm!r}")
    return comm


def _of_ranks(pattern: Pattern, comm: Communicator) -> Pattern:
    """The pattern, if it is one of so many ranks."""
    if not isinstance(pattern, Pattern):
        raise HaloTypeError(f"a halocline.Pattern is wanted, not {pattern!r}")
    if beyond := [peer for peer, _, _ in pattern.peers if peer >= comm.size]:
        raise HaloValueError(f"the pattern has a rank {beyond[0]}, the communicator {comm.size}; give the pattern's own")
    return pattern


def _array(given: Any, what: str, kinds: str) -> Any:
    """An array of numbers."""
    import numpy as np

    try:
        array = np.asarray(given)
    except (TypeError, ValueError) as error:
        raise HaloTypeError(f"{what} are no array: {error}; give what numpy.asarray() takes") from None
    if array.size and array.dtype.kind not in kinds:
        wanted = "numbers" if "f" in kinds else "whole numbers"
        raise HaloTypeError(f"{what} are {wanted}, not of dtype {array.dtype} and shape {array.shape}")
    return array
