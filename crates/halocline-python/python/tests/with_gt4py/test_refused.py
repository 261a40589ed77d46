"""Wrong arguments: each is a typed error that names the program, the argument and what is right, before the program is entered."""

import gt4py.next as gtx
import numpy as np
import pytest
from conftest import E2V, OFFSETS, V2E, connectivity, copied, field, gt4py_program, line, plane, same
from gt4py.next.program_processors.runners import dace as backends
from programs import E2VDim, Edge, I, J, K, Vertex

import halocline as hc
from halocline import _gt4py, program

TYPE, VALUE = hc.HaloTypeError, hc.HaloValueError


def transposed(extents=(7, 8)):
    return field(J, I, extents=extents)



HEAT = [
    ((), TYPE, "program heat lacks argument t; it takes t, dt, result"),
    ((plane(), 0.1), TYPE, "program heat lacks argument result"),
    ((plane(), 0.1, plane(1, (6, 5)), 3), TYPE, "program heat takes 3 arguments, 4 are given"),
    ((plane(dtype="f4"), 0.1, plane(1, (6, 5))), TYPE, "argument t of program heat has elements of type float32, the program takes float64"),
    ((plane(), 0.1, plane(1, (6, 5), dtype="i8")), TYPE, "argument result of program heat has elements of type int64"),
    ((transposed(), 0.1, plane(1, (6, 5))), VALUE, "argument t of program heat has dimensions J, I, the program takes I, J; transpose"),
    ((line(8), 0.1, plane(1, (6, 5))), VALUE, "argument t of program heat has dimensions I, the program takes I, J"),
    ((field(extents=()), 0.1, plane(1, (6, 5))), VALUE, "argument t of program heat has dimensions none"),
    ((np.ones((8, 7)), 0.1, plane(1, (6, 5))), TYPE, "argument t of program heat is .*ndarray.*; give a field of GT4Py with dimensions I, J"),
    ((3.0, 0.1, plane(1, (6, 5))), TYPE, "argument t of program heat is 3.0; give a field of GT4Py"),
    ((None, 0.1, plane(1, (6, 5))), TYPE, "argument t of program heat is None"),
    ((plane(), "x", plane(1, (6, 5))), TYPE, "argument dt of program heat: a number is wanted, not 'x'"),
    ((plane(), plane(), plane(1, (6, 5))), TYPE, "argument dt of program heat: a number is wanted"),
    ((plane(), np.ones(2), plane(1, (6, 5))), TYPE, "argument dt of program heat is an array of 1 dimensions"),
    (
        (plane(), 0.1, plane(0, (6, 5))),
        VALUE,
        r"argument t of program heat has indices 0 to 8 .* in dimension 0 \(I\), the program accesses -1 .* to 7 .*give a larger array",
    ),
    ((plane(), 0.1, plane(1, (6, 6))), VALUE, r"has indices 0 to 7 .* in dimension 1 \(J\), the program accesses 0 .* to 8 "),
    ((plane(2), 0.1, plane(1, (6, 5))), VALUE, "has indices 2 to 10 .* accesses 0 .* to 8"),
]


@pytest.mark.parametrize("given, error, text", HEAT)
def test_wrong_arguments_are_refused(compiled, given, error, text):
    heat, before = compiled("heat"), copied(given)
    for call in (heat, heat.prepare):
        with pytest.raises(error, match=text):
            call(*given)
    assert all(same(now, then) for now, then in zip(given, before) if hasattr(now, "domain"))


def test_a_wrong_call_is_refused_after_a_known_one(compiled):
    heat, t, new = compiled("heat"), plane(), plane(1, (6, 5))
    for _ in range(4):
        heat(t, 0.1, new)
    for given, error, text in HEAT:
        with pytest.raises(error, match=text):
            heat(*given)
    with pytest.raises(TYPE, match="argument dt of program heat: a number is wanted"):
        heat(t, "x", new)
    heat(t, 0.1, new)


def test_wrong_names_are_refused(compiled):
    heat, t, new = compiled("heat"), plane(), plane(1, (6, 5))
    with pytest.raises(TYPE, match="program heat has no argument u; it takes t, dt, result"):
        heat(t, 0.1, new, u=3)
    with pytest.raises(TYPE, match="argument t of program heat is given twice"):
        heat(t, 0.1, new, t=t)
    with pytest.raises(TYPE, match="argument result of program heat is given twice"):
        heat(t, 0.1, new, out=new)
    for call in (heat, heat.prepare):
        with pytest.raises(TYPE, match="argument result of program heat is given twice"):
            call(t, 0.1, result=new, out=plane(1, (6, 5)))
    with pytest.raises(TYPE, match="program heat lacks argument dt"):
        heat(t, result=new)


@pytest.mark.parametrize(
    "low, high, error, text",
    [
        (3.7, 6, TYPE, "argument low of program heat_between is 3.7; give an integer of type int32"),
        (float("nan"), 6, TYPE, "argument low of program heat_between is NaN"),
        (1 << 31, 6, VALUE, "argument low of program heat_between is 2147483648, which int32 cannot hold; give -2147483648 to 2147483647"),
        (-(1 << 80), 6, VALUE, "argument low of program heat_between: .* is out of the range of 64-bit integers"),
        (0, 6, VALUE, r"argument t of program heat_between has indices 0 to 8 .*accesses -1 "),
        (1, 8, VALUE, "argument t of program heat_between has indices 0 to 8 .*to 9"),
    ],
)
def test_wrong_integers_are_refused(compiled, low, high, error, text):
    between, t, new = compiled("heat_between"), plane(), plane()
    for _ in range(3):
        between(t, 0.1, new, 1, 7)
    before = copied(new)
    with pytest.raises(error, match=text):
        between(t, 0.1, new, low, high)
    assert same(new, before)


def line_of_planes():
    """A field without the index -1 in its first dimension, which a Laplacian of index 0 would access."""
    return plane(0, (2, 8))


def test_an_empty_domain_accesses_nothing(compiled):
    between, t, new = compiled("heat_between"), plane(), plane()
    before = copied(new)
    between(t, 0.1, new, 20, 20)
    assert same(new, before)
    heat = compiled("heat")
    nothing = type(t)(gtx.domain({I: (0, 0), J: (1, 6)}), np.zeros((0, 5)))
    heat(line_of_planes(), 0.1, nothing)


def test_the_range_of_every_scalar_type_is_checked(compiled):
    call, names = compiled("scalars"), ["b", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"]
    right = dict.fromkeys(names, 1) | {"f4": 1, "f8": 1, "a": line(), "out": line()}
    call(**right)
    wrong = {"b": 2, "i1": 128, "i2": -32769, "i4": 1 << 31, "i8": 1 << 63, "u1": 256, "u2": -1, "u4": 1 << 32, "u8": -1, "f4": 1e39}
    for name, value in wrong.items():
        with pytest.raises((TYPE, VALUE), match=f"argument {name} of program scalars is "):
            call(**{**right, name: value})
        if name[0] in "iu":
            with pytest.raises(TYPE, match=f"argument {name} of program scalars is 3.7; give an integer"):
                call(**{**right, name: 3.7})


@pytest.mark.parametrize(
    "given, text",
    [
        (((line(), (line(), 1)), (line(), line())), "argument out of program nested is .*; give a tuple of 2"),
        (((line(), [line(), 1]), (line(), (line(), line()))), "argument t of program nested is .*; give a tuple of 2"),
        ((line(), (line(), (line(), line()))), "argument t of program nested is .*; give a tuple of 2"),
        (((line(), (line(dtype="f4"), 1)), (line(), (line(), line()))), "argument t_1_0 of program nested has elements of type float32"),
        (((line(), (line(), 1)), (line(), (line(), line(dtype="f4")))), "argument out_1_1 of program nested has elements of type float32"),
    ],
)
def test_wrong_tuples_are_refused(compiled, given, text):
    with pytest.raises(TYPE, match=text):
        compiled("nested")(*given)


def test_parts_with_names_are_needed(compiled):
    with pytest.raises(TYPE, match="argument wind of program speed is .*, which has no part u"):
        compiled("speed")(line(), line())


def test_arguments_that_the_program_does_not_use_are_checked(compiled):
    with pytest.raises(TYPE, match="argument ignored of program unused has elements of type float32"):
        compiled("unused")(line(), line(dtype="f4"), 3, line())
    with pytest.raises(TYPE, match="argument number of program unused is 3.5"):
        compiled("unused")(line(), line(), 3.5, line())


def test_memory_that_does_not_fit_the_domain_is_refused(compiled):
    one = type(plane())(gtx.domain({I: (0, 8), J: (0, 7)}), np.ones((1, 7)))
    with pytest.raises(VALUE, match="argument t of program heat has memory for 1 indices in dimension I, but its domain has 0 to 8"):
        compiled("heat")(one, 0.1, plane(1, (6, 5)))


class OfGpu:
    """A field in memory of a GPU."""

    class ndarray:
        shape = (8, 7)
        __cuda_array_interface__ = {"shape": shape, "strides": None, "typestr": "<f8", "data": (1 << 40, False), "version": 3}

    domain = plane().domain


def test_memory_of_another_device_is_refused(compiled):
    # Where there is no GPU, its driver is missed first.
    with pytest.raises(hc.HaloError, match="^argument t of program heat: |argument t of program heat is in memory of GPU"):
        compiled("heat")(OfGpu, 0.1, plane(1, (6, 5)))


def test_a_read_only_result_is_refused_and_read_only_input_is_not(compiled):
    heat, t, new = compiled("heat"), plane(), plane(1, (6, 5))
    t.ndarray.flags.writeable = False
    for _ in range(4):
        heat(t, 0.1, new)
    new.ndarray.flags.writeable = False
    with pytest.raises(VALUE, match="argument result of program heat is read-only"):
        heat(t, 0.1, new)


def test_only_what_is_in_a_branch_that_runs_is_demanded(compiled):
    choose = compiled("choose")
    a, out = line(6, value=2.0), line(6)
    choose(a, 1, out)
    assert (out.ndarray == 3).all()


# Offset providers.


def gradient_call():
    return field(Vertex, K, extents=(4, 3)), field(Edge, extents=(5,)), field(Edge, K, extents=(5, 3))


def test_another_connectivity_is_refused(compiled):
    gradient, given = compiled("gradient"), gradient_call()
    other = connectivity(Edge, E2VDim, Vertex, E2V.ndarray)
    for _ in range(2):
        with pytest.raises(VALUE, match="offset E2V of program gradient is another object than the one the program was compiled with"):
            gradient(*given, offset_provider={**OFFSETS, "E2V": other})
        with pytest.raises(VALUE, match="the offset provider of program gradient lacks E2V"):
            gradient(*given, offset_provider={})
        for _ in range(4):
            gradient(*given, offset_provider=dict(OFFSETS))
    # One that the program does not use may be another.
    gradient(*given, offset_provider={"E2V": E2V, "V2E": other, "Ioff": I})
    shift = compiled("shift")
    with pytest.raises(VALUE, match="offset Ioff of program shift is another object"):
        shift(line(7), line(6), offset_provider={**OFFSETS, "Ioff": J})
    shift(line(7), line(6), offset_provider={**OFFSETS, "Ioff": gtx.Dimension("I")})


def test_a_changed_connectivity_is_used_as_it_is(of_gt4py):
    table = connectivity(Edge, E2VDim, Vertex, E2V.ndarray.copy())
    ours = program.from_gt4py(of_gt4py("gradient"), offset_provider={"E2V": table})
    given = gradient_call()
    for _ in range(4):
        ours(*given)
    table.ndarray[0] = (3, 1)
    ours(*given)
    values, inverse, out = (one.ndarray for one in given)
    assert np.array_equal(out[0], (values[1] - values[3]) * inverse[0])


def test_a_field_beyond_its_connectivity_is_refused(compiled):
    values, inverse, _ = gradient_call()
    with pytest.raises(VALUE, match="argument inverse_length of program gradient has indices 0 to 5 .*Edge|argument gt_conn_E2V of program gradient"):
        compiled("gradient")(values, inverse, field(Edge, K, extents=(6, 3)))
    with pytest.raises(VALUE, match="argument values of program gradient has indices 0 to 2 .*K.*accesses 0 .*to 3"):
        compiled("gradient")(field(Vertex, K, extents=(4, 2)), inverse, field(Edge, K, extents=(5, 3)))


@pytest.fixture(scope="module")
def through(of_gt4py):
    """The gradient with vertex 9 in its last row."""
    table = connectivity(Edge, E2VDim, Vertex, [[0, 1], [1, 2], [2, 3], [3, 0], [0, 9]])
    return program.from_gt4py(of_gt4py("gradient"), offset_provider={"E2V": table})


def gradient_of(vertices, edges, start=0):
    return field(Vertex, K, start=start, extents=(vertices, 3)), field(Edge, extents=(5,)), field(Edge, K, extents=(edges, 3))


@pytest.mark.parametrize("vertices, edges, needs", [(3, 5, "0 to 10"), (9, 5, "0 to 10"), (3, 4, "0 to 4"), (1, 1, "1 to 2")])
def test_a_field_without_an_index_of_the_connectivity_is_refused(through, vertices, edges, needs):
    given = gradient_of(vertices, edges)
    text = rf"argument values of program gradient has indices 0 to {vertices} .* in dimension 0 \(Vertex\), .* accesses {needs} through offset E2V"
    for call in (through, through.prepare):
        with pytest.raises(VALUE, match=text):
            call(*given)


@pytest.mark.parametrize("vertices, edges", [(10, 5), (4, 4), (2, 1), (1, 0)])
def test_a_field_has_the_indices_of_the_rows_that_are_used(through, vertices, edges):
    table = np.array([[0, 1], [1, 2], [2, 3], [3, 0], [0, 9]])[:edges]
    values, inverse, out = gradient_of(vertices, edges)
    for _ in range(4):
        through(values, inverse, out)
    pairs = values.ndarray[table]
    assert np.array_equal(out.ndarray, (pairs[:, 1] - pairs[:, 0]) * inverse.ndarray[:edges, None])


def test_an_index_before_the_first_one_is_refused_and_skipped_ones_are_not(through, of_gt4py):
    with pytest.raises(VALUE, match="argument values of program gradient has indices 1 to 11 .* accesses 0 to 4 through offset E2V"):
        through(*gradient_of(10, 4, start=1))
    table = gtx.as_connectivity([Edge, E2VDim], Vertex, np.array([[0, 1], [1, -1]], np.int32), skip_value=-1)
    skipping = program.from_gt4py(of_gt4py("gradient"), offset_provider={"E2V": table})
    skipping.prepare(*gradient_of(2, 2))


def test_a_connectivity_of_skipped_elements_alone_is_taken(of_gt4py):
    table = gtx.as_connectivity([Edge, E2VDim], Vertex, np.full((2, 2), -1, np.int32), skip_value=-1)
    skipping = program.from_gt4py(of_gt4py("gradient"), offset_provider={"E2V": table})
    skipping.prepare(*gradient_of(2, 2))


def test_a_field_read_through_two_connectivities_is_checked(compiled):
    twice, values, out = compiled("neighbours_of_vertices"), field(Vertex, extents=(4,)), field(Vertex, extents=(4,))
    twice(values, out)
    edges, vertices = E2V.ndarray, V2E.ndarray
    assert np.array_equal(out.ndarray, values.ndarray[edges[vertices[:, 0], 0]] + values.ndarray[edges[vertices[:, 1], 1]])
    with pytest.raises(VALUE, match="argument values of program neighbours_of_vertices has indices 0 to 3 .* accesses 0 to 4 through offset E2V"):
        twice(field(Vertex, extents=(3,)), out)


def test_a_number_that_decides_rows_is_checked_in_known_and_prepared_calls(of_gt4py):
    table = connectivity(Edge, E2VDim, Vertex, [[0, 1], [1, 2], [2, 3], [3, 0], [9, 0]])
    first = program.from_gt4py(of_gt4py("first_edges"), offset_provider={"E2V": table})
    turned = program.from_gt4py(of_gt4py("first_edges"), offset_provider={"E2V": connectivity(Edge, E2VDim, Vertex, [[9, 1], *[[0, 1]] * 4])})
    values, out = field(Vertex, extents=(4,)), field(Edge, extents=(5,))
    text = r"argument values of program first_edges has indices 0 to 4 .* accesses 0 to 10 through offset E2V"
    for _ in range(4):
        first(values, out, 4)
    with pytest.raises(VALUE, match=text):
        first(values, out, 5)
    for one in (True, np.True_, Disturbing(5, lambda: None)):
        # Row 0 alone has vertex 9 here.
        with pytest.raises(VALUE, match="accesses .* to 10 through offset E2V"):
            turned(values, out, one)
    call = first.prepare(values, out, 4)
    call()
    assert np.array_equal(out.ndarray[:4], values.ndarray)
    for _ in range(2):
        with pytest.raises(VALUE, match=text):
            call(count=5)
        out.ndarray[:] = -1
        call(count=3)
        assert np.array_equal(out.ndarray, [*values.ndarray[:3], -1, -1])
        call(count=4)


def test_a_number_that_decides_rows_is_converted_once(of_gt4py):
    table = connectivity(Edge, E2VDim, Vertex, [[0, 1], [1, 2], [2, 3], [3, 0], [9, 0]])
    first = program.from_gt4py(of_gt4py("first_edges"), offset_provider={"E2V": table})
    values, out, numbers = field(Vertex, extents=(4,)), field(Edge, extents=(5,)), iter([4, 5])

    class Growing:
        def __index__(self):
            return next(numbers)

    first(values, out, Growing())
    assert np.array_equal(out.ndarray[:4], values.ndarray) and next(numbers) == 5


# Code that runs while the arguments are converted.


class Disturbing:
    """A number that does something when it is converted."""

    def __init__(self, value, act):
        self.value, self.act = value, act

    def __index__(self):
        if not isinstance(self.value, int):
            raise TypeError
        self.act()
        return self.value

    def __float__(self):
        self.act()
        return self.value


def test_a_call_within_a_call_does_not_disturb_it(compiled):
    between, t, new, wanted = compiled("heat_between"), plane(), plane(value=0.0), plane(value=0.0)
    other, into = plane(), plane(value=0.0)
    between(t, 0.1, wanted, 1, 6)
    between(t, Disturbing(0.1, lambda: between(other, 0.3, into, 2, 4)), new, Disturbing(1, lambda: between(other, 0.2, into, 1, 7)), 6)
    assert same(new, wanted)
    heat, new, wanted = compiled("heat"), plane(1, (6, 5)), plane(1, (6, 5))
    heat(t, 0.1, wanted)
    for _ in range(4):
        heat(t, Disturbing(0.1, lambda: heat(other, 0.3, plane(1, (6, 5)))), new)
        assert same(new, wanted)


def resized(one):
    # Large arrays, whose memory goes back to the system.
    return lambda: one.ndarray.resize((2, 2), refcheck=False)


def test_an_array_that_a_conversion_resizes_is_refused(compiled):
    heat, extents = compiled("heat"), (1000, 700)
    for call in (heat, heat.prepare):
        t, new = plane(extents=extents), plane(1, (998, 698))
        with pytest.raises(VALUE, match="argument t of program heat has"):
            call(t, Disturbing(0.1, resized(t)), new)


class Subclass(np.ndarray):
    pass


def test_an_array_of_a_subclass_that_a_conversion_resizes_is_refused(compiled):
    heat, extents = compiled("heat"), (1000, 700)
    for call in (heat, heat.prepare):
        t, new = plane(extents=extents), plane(1, (998, 698))
        memory = Subclass(extents)
        given = Elsewhere(t, lambda: None)
        given.ndarray, given.domain = memory, t.domain
        with pytest.raises(VALUE, match="argument t of program heat has"):
            call(given, Disturbing(0.1, lambda: memory.resize((2, 2), refcheck=False)), new)


def test_an_array_that_a_conversion_reshapes_in_a_known_call_is_refused(compiled):
    heat, t, new = compiled("heat"), plane(), plane(1, (6, 5))
    for _ in range(4):
        heat(t, 0.1, new)

    def reshape():
        t.ndarray.shape = (7, 8)

    with pytest.raises(VALUE, match="argument t of program heat has memory for 7 indices in dimension I"):
        heat(t, Disturbing(0.1, reshape), new)


class Elsewhere:
    """A field whose array does something when it is described."""

    def __init__(self, of, act):
        self.of, self.act, self.domain, self.ndarray = of, act, of.domain, self

    @property
    def shape(self):
        return self.of.ndarray.shape

    @property
    def __array_interface__(self):
        self.act()
        return self.of.ndarray.__array_interface__


def test_an_array_that_a_description_resizes_is_refused(compiled):
    heat, t, new = compiled("heat"), plane(extents=(1000, 700)), plane(1, (998, 698))
    with pytest.raises(VALUE, match="argument t of program heat has"):
        heat(t, 0.1, Elsewhere(new, resized(t)))


def test_a_domain_with_fewer_ranges_than_dimensions_is_refused(compiled):
    class Domain:
        dims, ranges = (I, J), plane().domain.ranges[:1]

    class Field:
        ndarray, domain = plane().ndarray, Domain

    with pytest.raises(VALUE, match="argument t of program heat has dimensions"):
        compiled("heat")(Field, 0.1, plane(1, (6, 5)))


# Programs.


def test_a_parameter_with_the_name_of_the_offset_provider_is_refused():
    with pytest.raises(TYPE, match="program: named_provider has a parameter offset_provider, .*; rename the parameter"):
        program.from_gt4py(gt4py_program("named_provider"))


def test_only_programs_with_a_dace_backend_are_taken():
    with pytest.raises(TYPE, match="program: a program or field operator of GT4Py is wanted, not int"):
        program.from_gt4py(3)
    with pytest.raises(TYPE, match=r"program: heat has no backend; choose one with with_backend\(run_dace_cpu\)"):
        program.from_gt4py(gt4py_program("heat").with_backend(None))
    with pytest.raises(TYPE, match="program: heat has bound arguments"):
        program.from_gt4py(gt4py_program("heat").with_bound_args(dt=0.1))


def test_another_version_of_gt4py_is_refused(monkeypatch):
    monkeypatch.setattr(_gt4py.importlib.metadata, "version", lambda name: "9.9")
    with pytest.raises(hc.ProgramError, match="GT4Py 9.9 is installed, whose inner interfaces are not known here; install one of 1.1.9"):
        program.from_gt4py(gt4py_program("heat"))


def test_static_arguments_have_programs_of_their_own():
    choose = gt4py_program("choose").with_backend(backends.run_dace_cpu_noopt)
    for which in (1, 2):
        ours = program.from_gt4py(choose, which=which)
        a, out = line(7), line(6)
        ours(a, which, out)
        assert np.array_equal(out.ndarray, a.ndarray[:6] + 1 if which == 1 else a.ndarray[1:])
        refused = f"argument which of program choose is 3, but the program was compiled for {which}"
        with pytest.raises(VALUE, match=refused):
            ours(a, 3, out)
        for _ in range(4):
            ours(a, which, out)
        with pytest.raises(VALUE, match=refused):
            ours(a, 3, out)
        for wrong in (np.array([1, 2]), a, "x"):
            with pytest.raises(TYPE, match="argument which of program choose"):
                ours(a, wrong, out)
        call = ours.prepare(a, which, out)
        call(which=which)
        with pytest.raises(TYPE, match="argument which of program choose"):
            call(which=np.array([1, 2]))
        with pytest.raises(VALUE, match=refused):
            call(which=3)
    text = "static: program choose is compiled for values of which, values of no parameter are given; give those of which"
    with pytest.raises(VALUE, match=text):
        program.from_gt4py(choose)


def test_the_strides_that_a_program_was_compiled_for_are_checked():
    backend = backends.make_dace_backend(gpu=False, cached=False, unstructured_horizontal_has_unit_stride=True)
    ours = program.from_gt4py(gt4py_program("gradient").with_backend(backend), offset_provider={"E2V": E2V_F})
    ours(field(Vertex, K, extents=(4, 3), order="F"), field(Edge, extents=(5,)), field(Edge, K, extents=(5, 3), order="F"))
    with pytest.raises(VALUE, match=r"argument values of program gradient has element stride 3 in dimension 0 \(Vertex\), the program takes 1"):
        ours(field(Vertex, K, extents=(4, 3)), field(Edge, extents=(5,)), field(Edge, K, extents=(5, 3), order="F"))


E2V_F = gtx.as_connectivity([Edge, E2VDim], Vertex, np.asfortranarray(E2V.ndarray))
