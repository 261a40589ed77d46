"""Results of real programs: those of GT4Py itself, bit by bit."""

import threading

import numpy as np
import pytest
from conftest import OFFSETS, copied, field, line, plane, same
from programs import Edge, K, Vertex, Wind

SCALARS = (
    True,
    np.int8(-3),
    np.int16(300),
    np.int32(-70000),
    np.int64(1 << 40),
    np.uint8(200),
    np.uint16(60000),
    np.uint32(4 << 29),
    np.uint64(1 << 50),
    np.float32(0.1),
    0.7,
)

CALLS = {
    "heat": lambda: (plane(), 0.1, plane(1, (6, 5))),
    "heat_between": lambda: (plane(), np.float64(0.1), plane(), 2, 6),
    "horizontal_diffusion": lambda: ((plane(-2), plane(-2, (9, 9))), plane(), (plane(0, (4, 3)), plane(0, (5, 5)))),
    "shallow_water": lambda: (plane(), plane(), plane(), 0.1, 9.81, *(plane(1, (6, 5)) for _ in range(3))),
    "gradient": lambda: (field(Vertex, K, extents=(4, 3)), field(Edge, extents=(5,)), field(Edge, K, extents=(5, 3))),
    "divergence": lambda: (field(Edge, extents=(5,)), field(Vertex, extents=(4,))),
    "shift": lambda: (line(7), line(6)),
    "scalars": lambda: (line(), *SCALARS, line()),
    "nested": lambda: ((line(), (line(), 2.5)), (line(), (line(), line()))),
    "speed": lambda: (Wind(line(), line()), line()),
    "scale": lambda: (line(), field(value=3.0, extents=()), line()),
    "unused": lambda: (line(), line(), 3, line()),
    "choose": lambda: (line(), 1, line()),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.filterwarnings("ignore")
def test_the_results_are_those_of_gt4py(name, compiled, of_gt4py):
    ours, theirs = compiled(name), of_gt4py(name)
    for _ in range(2):
        given = CALLS[name]()
        other = tuple(map(copied, given))
        for _ in range(4):
            # The last ones are known.
            ours(*given, offset_provider=OFFSETS)
            theirs(*other, offset_provider=OFFSETS)
            assert same(given, other)
        prepared = ours.prepare(*given)
        prepared()
        theirs(*other, offset_provider=OFFSETS)
        assert same(given, other)
    assert ours.states == 1


def test_arguments_by_name_and_by_position_are_the_same(compiled):
    heat = compiled("heat")
    assert heat.arguments == ("t", "dt", "result")
    assert repr(heat) == "<halocline.program.FieldProgram heat(t, dt, result)>"
    t, wanted = plane(), plane(1, (6, 5))
    heat(t, 0.1, wanted)
    for args, names in [((t, 0.1), ["out"]), ((t,), ["result", "dt"]), ((), ["dt", "result", "t"])]:
        got = plane(1, (6, 5))
        every = {"t": t, "dt": 0.1, "result": got, "out": got}
        heat(*args, **{name: every[name] for name in names})
        assert same(got, wanted)


def test_known_calls_take_other_scalars_and_swapped_fields(compiled, of_gt4py):
    ours, theirs = compiled("heat"), of_gt4py("heat")
    a, b = plane(), plane()
    c, d = copied(a), copied(b)
    inner = (slice(1, 7), slice(1, 6))
    views = {id(one): one[inner] for one in (a, b, c, d)}
    for step in range(12):
        dt = 0.01 * step
        ours(a, dt, views[id(b)])
        theirs(c, dt, views[id(d)], offset_provider={})
        assert same((a, b), (c, d))
        a, b, c, d = b, a, d, c


def test_a_field_without_dimensions_is_read_in_each_call(compiled):
    scale, a, out = compiled("scale"), line(value=1.0), line()
    factor = field(value=2.0, extents=())
    for value in (2.0, 3.0, 4.0, 5.0, 6.0):
        factor.ndarray[()] = value
        scale(a, factor, out)
        assert (out.ndarray == value).all()


def test_fields_with_other_strides_and_starts_are_taken(compiled, of_gt4py):
    ours, theirs = compiled("heat"), of_gt4py("heat")
    for t, new in [(plane(order="F"), plane(1, (6, 5))), (plane(-3), plane(-2, (6, 5), order="F")), (plane(5, (20, 20)), plane(8, (3, 4)))]:
        other = copied(new)
        ours(t, 0.3, new)
        theirs(t, 0.3, other, offset_provider={})
        assert same(new, other)


def test_a_fields_memory_is_not_kept(compiled):
    import gc
    import weakref

    heat = compiled("heat")
    t, new = plane(), plane(1, (6, 5))
    for _ in range(4):
        heat(t, 0.1, new)
    watched = [weakref.ref(one) for one in (t, new, t.ndarray, new.ndarray)]
    del t, new
    gc.collect()
    assert [one() for one in watched] == [None] * 4


def test_eight_threads_call_at_once(compiled, of_gt4py):
    heat, wrong = compiled("heat"), []
    given = [(plane(), 0.1 * number, plane(1, (6, 5))) for number in range(8)]
    wanted = [copied(call) for call in given]
    for t, dt, new in wanted:
        of_gt4py("heat")(t, dt, new, offset_provider={})

    def calls(number):
        t, dt, new = given[number]
        for turn in range(300):
            new.ndarray[:] = -1
            heat(t, dt, new)
            if not same(new, wanted[number][2]):
                wrong.append((number, turn))

    threads = [threading.Thread(target=calls, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_parameters_have_the_names_of_options_of_a_call(compiled):
    a, out = line(6), line(6)
    named = compiled("named_stream")
    calls = [
        lambda: named(a, 2.0, out),
        lambda: named(a, stream=2.0, out=out),
        lambda: named.prepare(a, stream=2.0, out=out)(),
        lambda: named.prepare(a, 3.0, out)(stream=2.0),
        lambda: compiled("out_first")(out, a, 2.0),
        lambda: compiled("out_first")(a=a, stream=2.0, out=out),
    ]
    for call in calls:
        out.ndarray[:] = 0
        call()
        assert np.array_equal(out.ndarray, 2 * a.ndarray)
