"""A value that the library refuses is reported with the name of the argument, and with the index of its entry."""

import re

import numpy as np
import pytest

import halocline as hc

COMM = hc.run_threads(1, lambda comm: comm)[0]
OTHER = hc.run_threads(1, lambda comm: comm)[0]
GRID = hc.RegularGrid((8, 6), periodic=(True, False))
CUT = GRID.decompose(COMM)
PATTERN = CUT.pattern(1)
ELSEWHERE = GRID.decompose(OTHER).pattern(1)
CELLS = hc.Pattern.unstructured(COMM, [hc.UnstructuredDomain(0, [0, 1], [])])
GRAPH = hc.Graph([0, 1, 2], [1, 0])
MESH = hc.Mesh(4, [[0, 1, 2], [1, 2, 3]])
PART = hc.Partition([0, 0], 1)
HALO = hc.HaloExchange(COMM, [(PATTERN, np.zeros(PATTERN.shape))])
MOVE = hc.Redistribute.regular(COMM, (CUT, 0), (CUT, 0))


def domain(*owned, id=0):
    return hc.UnstructuredDomain(id, owned, [])


WRONG = {
    # Partitions and graphs.
    "no rank": (lambda: hc.Partition([0], 0), "ranks: "),
    "an owner that is no rank": (lambda: hc.Partition([0, 3], 2), r"owners\[1\]: "),
    "more ranks than cells": (lambda: hc.Partition.block(2, 3), "ranks: 3 ranks for 2 cells"),
    "no rank for blocks": (lambda: hc.Partition.block(2, 0), "ranks: "),
    "more cells than there is memory for": (lambda: hc.Partition.block(2**62, 1), "cells: "),
    "METIS without ranks": (lambda: hc.Partition.metis(GRAPH, 0), "ranks: "),
    "METIS for more ranks than cells": (lambda: hc.Partition.metis(GRAPH, 3), "ranks: 3 ranks for 2 cells"),
    "METIS for more ranks than 32 bits": (lambda: hc.Partition.metis(GRAPH, 2**40), "ranks: "),
    "offsets that do not begin at 0": (lambda: hc.Graph([1, 2], [0, 0]), "offsets: "),
    "offsets that descend": (lambda: hc.Graph([0, 2, 1, 2], [1, 0]), "offsets: "),
    "no offsets": (lambda: hc.Graph([], []), "offsets: "),
    "a neighbour that is no cell": (lambda: hc.Graph([0, 1, 2], [1, 5]), "neighbours: cell 1 has 5"),
    "an edge in one direction": (lambda: hc.Graph([0, 1, 1], [1]), "neighbours: cell 0 lists cell 1"),
    "a cell that is not in the graph": (lambda: GRAPH.neighbours(2), "cell: "),
    # Meshes.
    "offsets of a mesh": (lambda: hc.Mesh(3, [0, 1, 2], offsets=[0, 2]), "offsets: "),
    "an element without vertices": (lambda: hc.Mesh(3, [0, 1, 2], offsets=[0, 0, 3]), "offsets: "),
    "a vertex beyond the mesh": (lambda: hc.Mesh(3, [[0, 1, 3]]), "connectivity: "),
    "rows of different lengths": (lambda: hc.Mesh(3, [[0, 1, 2], [0, 1]]), "connectivity: "),
    "an element that is no solid": (lambda: hc.Mesh(3, [[0, 1, 2]], solid=True), "connectivity: "),
    "more vertices than 32 bits": (lambda: hc.Mesh(2**33, [[0, 1, 2]]), "vertices: "),
    "a partition of another mesh": (lambda: MESH.halos(hc.Partition([0] * 3, 1), 0, 1), "partition: "),
    "a partition of elements for vertices": (lambda: MESH.domains_by_vertex(PART, 0), "partition: "),
    "a part that there is not": (lambda: MESH.halos(PART, 1, 1), "part: "),
    "a rank of a partition of vertices": (lambda: MESH.domains_by_vertex(hc.Partition([0] * 4, 1), 1), "rank: "),
    "a rank of a partition of elements": (lambda: MESH.domains_by_element(PART, 1), "rank: "),
    "a part to refine": (lambda: MESH.refined_part(PART, 1, 1, 1), "part: "),
    "no segments": (lambda: MESH.refined_part(PART, 0, 0, 1), "segments: "),
    "a halo deeper than any": (lambda: MESH.halos(PART, 0, 2**40), "depth: "),
    "too few vertices": (lambda: hc.MeshPart(MESH, range(3), range(2), PART, 0, 1), "vertices: "),
    "an element twice": (lambda: hc.MeshPart(MESH, range(4), [5, 5], PART, 0, 1), "elements: "),
    "a halo deeper than the part": (lambda: hc.MeshPart(MESH, range(4), range(2), PART, 0, 1).halos(2), "depth: "),
    # Grids.
    "more ranks than cells of a grid": (lambda: GRID.decompose(49), "comm: "),
    "no ranks for a grid": (lambda: GRID.decompose(0), "comm: "),
    "ranks that divide no axis": (lambda: GRID.decompose(11), "comm: "),
    "blocks for too few axes": (lambda: GRID.decompose_into((2,), 2), "blocks: "),
    "more blocks than cells": (lambda: GRID.decompose_into((1, 7), 7), r"blocks\[1\]: "),
    "blocks for other ranks": (lambda: GRID.decompose_into((2, 2), 3), "blocks: "),
    "cuts for too few axes": (lambda: GRID.decompose_at([[4]], 2), "cuts: "),
    "a cut at the edge": (lambda: GRID.decompose_at([[], [6]], 2), r"cuts\[1\]: "),
    "a box of a rank that there is not": (lambda: GRID.decompose_boxes([(1, (0, 0), (8, 6))], 1), r"boxes\[0\]: "),
    "a box beyond the grid": (lambda: GRID.decompose_boxes([(0, (0, 0), (8, 7))], 1), r"boxes\[0\]: "),
    "a box of one axis": (lambda: GRID.decompose_boxes([(0, (0,), (8,))], 1), "boxes: "),
    "boxes that overlap": (lambda: GRID.decompose_boxes([(0, (0, 0), (8, 6)), (0, (0, 0), (1, 1))], 1), "boxes: "),
    "boxes with a gap": (lambda: GRID.decompose_boxes([(0, (0, 0), (8, 5))], 1), "boxes: "),
    "flags for too few axes": (lambda: CUT.staggered((True,)), "axes: "),
    "an axis staggered twice": (lambda: CUT.staggered((True, False)).staggered((True, False)), "axes: "),
    "a rank of a decomposition": (lambda: CUT.domains_of(1), "rank: "),
    "widths for too many axes": (lambda: CUT.pattern((1, 1, 1)), "halo: "),
    "widths of domains": (lambda: CUT.domains_of(0, (1, 1, 1)), "halo: "),
    "a halo of too many cells": (lambda: CUT.pattern(2**62), "halo: "),
    "a pattern without a communicator": (lambda: GRID.decompose(1).pattern(1), "comm: "),
    "a wider halo": (lambda: PATTERN.narrowed(2), "halo: "),
    "a halo of cells without axes": (lambda: CELLS.narrowed((1, 1)), "halo: "),
    "a wider halo of an exchange": (lambda: HALO.narrowed(2), "halo: "),
    # Unstructured domains.
    "an id twice": (lambda: hc.Pattern.unstructured(COMM, [domain(1, 1)]), "domains: "),
    "a domain twice": (lambda: hc.Pattern.unstructured(COMM, [domain(1), domain(2)]), "domains: "),
    "a halo cell without an owner": (
        lambda: hc.Pattern.unstructured(COMM, [hc.UnstructuredDomain(0, [1], [7])]),
        "domains: ",
    ),
    # Exchanges.
    "a pattern of another communicator": (
        lambda: hc.HaloExchange(COMM, [(PATTERN, np.zeros(PATTERN.shape)), (ELSEWHERE, np.zeros(PATTERN.shape))]),
        r"fields\[1\]: the pattern was made with another communicator",
    ),
    "a pattern of another communicator in a set": (
        lambda: hc.HaloExchange.alternatives(COMM, [[(PATTERN, np.zeros(PATTERN.shape))], [(ELSEWHERE, np.zeros(PATTERN.shape))]]),
        r"sets\[1\]\[0\]: the pattern was made with another communicator",
    ),
    "an array that is read-only": (lambda: hc.HaloExchange(COMM, [(PATTERN, bytes(80))]), r"fields\[0\]: the array is read-only"),
    "links for another communicator": (
        lambda: hc.PatternLinks(COMM, [PATTERN, ELSEWHERE]),
        r"patterns\[1\]: the pattern was made with another communicator",
    ),
    "fields of a pattern without links": (
        lambda: hc.PatternLinks(COMM, [PATTERN]).exchange([(CUT.pattern(2), np.zeros((12, 10)))]),
        r"fields\[0\]: ",
    ),
    "a set that there is not": (lambda: HALO.exchange(set=1), "set: "),
    "a set to schedule": (lambda: HALO.schedule_exchange(set=1), "set: "),
    "an alternative that there is not": (lambda: HALO.alternative(1), "set: "),
    "bytes for a rank that is no peer": (lambda: HALO.message_bytes(1, "send"), "peer: "),
    "a message for a rank that is no peer": (lambda: HALO.pack(1, bytearray(8)), "peer: "),
    "a message from a rank that is no peer": (lambda: HALO.unpack(1, bytearray(8)), "peer: "),
    "a redistribution of another communicator": (lambda: MOVE.bind(OTHER, [], []), "comm: "),
    "a redistribution to another grid": (
        lambda: hc.Redistribute.regular(COMM, (CUT, 0), (hc.RegularGrid((4,)).decompose(COMM), 0)),
        "target: ",
    ),
    # Communicators.
    "a root that is no rank": (lambda: COMM.broadcast(1, b""), "root: "),
    "a transport that there is not": (lambda: hc.init("tcp"), "transport: "),
    "a deadline that is no number": (lambda: COMM.with_deadline(float("nan")), "seconds: "),
    "a deadline in the past": (lambda: COMM.with_deadline(-1), "seconds: "),
    "threads without ranks": (lambda: hc.run_threads(0, print), "n: "),
}


@pytest.mark.parametrize("what", WRONG)
def test_the_message_begins_with_the_argument(what):
    call, begins = WRONG[what]
    with pytest.raises(hc.HaloValueError) as caught:
        call()
    assert re.match(begins, str(caught.value)), caught.value
