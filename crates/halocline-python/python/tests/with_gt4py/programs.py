"""GT4Py programs of the kinds that models have, for the DaCe backend on the host."""

import typing

import gt4py.next as gtx
from gt4py.next import astype, float32, float64, int8, int16, int32, int64, uint8, uint16, uint32, uint64

I = gtx.Dimension("I")
J = gtx.Dimension("J")
K = gtx.Dimension("K", kind=gtx.DimensionKind.VERTICAL)
Vertex = gtx.Dimension("Vertex")
Edge = gtx.Dimension("Edge")
E2VDim = gtx.Dimension("E2V", kind=gtx.DimensionKind.LOCAL)
V2EDim = gtx.Dimension("V2E", kind=gtx.DimensionKind.LOCAL)
E2V = gtx.FieldOffset("E2V", source=Vertex, target=(Edge, E2VDim))
V2E = gtx.FieldOffset("V2E", source=Edge, target=(Vertex, V2EDim))
Ioff = gtx.FieldOffset("Ioff", source=I, target=(I,))

Plane = gtx.Field[[I, J], float64]


@gtx.field_operator
def laplacian(a: Plane) -> Plane:
    return a(I + 1) + a(I - 1) + a(J + 1) + a(J - 1) - 4.0 * a


@gtx.field_operator
def heated(t: Plane, dt: float64) -> Plane:
    return t + dt * laplacian(t)


@gtx.program
def heat(t: Plane, dt: float64, result: Plane):
    heated(t, dt, out=result)


@gtx.program
def heat_between(t: Plane, dt: float64, result: Plane, low: int32, high: int32):
    heated(t, dt, out=result, domain={I: (low, high), J: (1, 5)})


@gtx.field_operator
def diffused(a: Plane, coefficient: Plane) -> Plane:
    lap = laplacian(a)
    flux_i = lap(I + 1) - lap
    flux_i = flux_i * astype(flux_i * (a(I + 1) - a) <= 0.0, float64)
    flux_j = lap(J + 1) - lap
    flux_j = flux_j * astype(flux_j * (a(J + 1) - a) <= 0.0, float64)
    return a - coefficient * (flux_i - flux_i(I - 1) + flux_j - flux_j(J - 1))


@gtx.field_operator
def diffused_pair(pair: tuple[Plane, Plane], coefficient: Plane) -> tuple[Plane, Plane]:
    return diffused(pair[0], coefficient), diffused(pair[1], coefficient)


@gtx.program
def horizontal_diffusion(pair: tuple[Plane, Plane], coefficient: Plane, out: tuple[Plane, Plane]):
    diffused_pair(pair, coefficient, out=out)


@gtx.field_operator
def moved(u: Plane, v: Plane, h: Plane, dt: float64, g: float64) -> tuple[Plane, Plane, Plane]:
    new_u = u - dt * g * 0.5 * (h(I + 1) - h(I - 1))
    new_v = v - dt * g * 0.5 * (h(J + 1) - h(J - 1))
    flow = 0.5 * (u(I + 1) * h(I + 1) - u(I - 1) * h(I - 1)) + 0.5 * (v(J + 1) * h(J + 1) - v(J - 1) * h(J - 1))
    return new_u, new_v, h - dt * flow


@gtx.program
def shallow_water(u: Plane, v: Plane, h: Plane, dt: float64, g: float64, new_u: Plane, new_v: Plane, new_h: Plane):
    moved(u, v, h, dt, g, out=(new_u, new_v, new_h))


@gtx.field_operator
def edge_gradient(
    values: gtx.Field[[Vertex, K], float64], inverse_length: gtx.Field[[Edge], float64]
) -> gtx.Field[[Edge, K], float64]:
    return (values(E2V[1]) - values(E2V[0])) * inverse_length


@gtx.program
def gradient(
    values: gtx.Field[[Vertex, K], float64],
    inverse_length: gtx.Field[[Edge], float64],
    out: gtx.Field[[Edge, K], float64],
):
    edge_gradient(values, inverse_length, out=out)


@gtx.field_operator
def at_first_vertex(values: gtx.Field[[Vertex], float64]) -> gtx.Field[[Edge], float64]:
    return values(E2V[0])


@gtx.program
def first_edges(values: gtx.Field[[Vertex], float64], out: gtx.Field[[Edge], float64], count: int32):
    at_first_vertex(values, out=out, domain={Edge: (0, count)})


@gtx.field_operator
def sum_of_edges(values: gtx.Field[[Edge], float64]) -> gtx.Field[[Vertex], float64]:
    return values(V2E[0]) + values(V2E[1]) - values(V2E[2])


@gtx.program
def divergence(values: gtx.Field[[Edge], float64], out: gtx.Field[[Vertex], float64]):
    sum_of_edges(values, out=out)


@gtx.field_operator
def over_edges(values: gtx.Field[[Vertex], float64]) -> gtx.Field[[Vertex], float64]:
    return values(E2V[0])(V2E[0]) + values(E2V[1])(V2E[1])


@gtx.program
def neighbours_of_vertices(values: gtx.Field[[Vertex], float64], out: gtx.Field[[Vertex], float64]):
    over_edges(values, out=out)


@gtx.field_operator
def shifted(a: gtx.Field[[I], float64]) -> gtx.Field[[I], float64]:
    return a(Ioff[1])


@gtx.program
def shift(a: gtx.Field[[I], float64], out: gtx.Field[[I], float64]):
    shifted(a, out=out)


Line = gtx.Field[[I], float64]


@gtx.field_operator
def summed(
    a: Line, b: bool, i1: int8, i2: int16, i4: int32, i8: int64, u1: uint8, u2: uint16, u4: uint32, u8: uint64, f4: float32, f8: float64
) -> Line:
    whole = astype(i1, float64) + astype(i2, float64) + astype(i4, float64) + astype(i8, float64)
    natural = astype(u1, float64) + astype(u2, float64) + astype(u4, float64) + astype(u8, float64)
    return a + (whole + natural + astype(f4, float64) + f8 if b else f8)


@gtx.program
def scalars(
    a: Line,
    b: bool,
    i1: int8,
    i2: int16,
    i4: int32,
    i8: int64,
    u1: uint8,
    u2: uint16,
    u4: uint32,
    u8: uint64,
    f4: float32,
    f8: float64,
    out: Line,
):
    summed(a, b, i1, i2, i4, i8, u1, u2, u4, u8, f4, f8, out=out)


@gtx.field_operator
def nested_sum(t: tuple[Line, tuple[Line, float64]]) -> tuple[Line, tuple[Line, Line]]:
    return t[0] + t[1][0], (t[1][1] * t[0], t[1][0] - t[0])


@gtx.program
def nested(t: tuple[Line, tuple[Line, float64]], out: tuple[Line, tuple[Line, Line]]):
    nested_sum(t, out=out)


class Wind(typing.NamedTuple):
    u: Line
    v: Line


@gtx.field_operator
def speed_of(wind: Wind) -> Line:
    return wind.u * wind.u + wind.v * wind.v


@gtx.program
def speed(wind: Wind, out: Line):
    speed_of(wind, out=out)


@gtx.field_operator
def scaled(a: Line, factor: gtx.Field[[], float64]) -> Line:
    return a * factor


@gtx.program
def scale(a: Line, factor: gtx.Field[[], float64], out: Line):
    scaled(a, factor, out=out)


@gtx.field_operator
def doubled(a: Line) -> Line:
    return a + a


@gtx.program
def unused(a: Line, ignored: Line, number: int32, out: Line):
    doubled(a, out=out)


@gtx.field_operator
def chosen(a: Line, which: int32) -> Line:
    return a + 1.0 if which == 1 else a(I + 1)


@gtx.program
def choose(a: Line, which: int32, out: Line):
    chosen(a, which, out=out)


@gtx.field_operator
def multiplied(a: Line, stream: float64) -> Line:
    return a * stream


@gtx.program
def named_stream(a: Line, stream: float64, out: Line):
    multiplied(a, stream, out=out)


@gtx.program
def out_first(out: Line, a: Line, stream: float64):
    multiplied(a, stream, out=out)


@gtx.program
def named_provider(a: Line, offset_provider: float64, out: Line):
    multiplied(a, offset_provider, out=out)
