"""Where fields of GPUs may lie, who owns their memory, and what is refused."""

import importlib.util

import numpy as np
import pytest
from libraries import SHARE_MEMORY, device_of, gpus
from test_scheduled import SHAPE, Case

import halocline as hc


def exchange_and_check(case, halo):
    engine = case.engine
    engine.add(case.field, case.grow)
    halo.exchange()
    np.testing.assert_array_equal(engine.host(case.field), case.expected(case.count))
    case.count += 1


def test_arrays_of_the_library_are_reached_directly(together, cupy_engine):
    def rank(comm):
        mine = cupy_engine(comm.rank)
        with mine.here():
            case = Case(comm, mine)
            field = hc.empty(case.pattern.shape, "float64", comm, mine.device)
            assert isinstance(field, mine.cupy.ndarray) and field.device.id == mine.device
            assert field.__cuda_array_interface__["data"][0] == field.data.ptr
            zeros = hc.zeros((3, 4), "int16", comm, mine.device, order="F")
            assert zeros.flags.f_contiguous and not zeros.any() and zeros.dtype == "int16"
            field[...] = case.field
            case.field, case.count = field, 1
            halo = case.bind()
            for _ in range(5):
                exchange_and_check(case, halo)
            assert not SHARE_MEMORY or halo.links and all(path != "message" for _, _, path in halo.links), halo.explain()
            view = field[:, :, :]
            del field, case.field
            case.field = view
            exchange_and_check(case, halo)
            return f"the library's arrays: {halo.links}"

    together(rank)


def test_a_rank_without_cells_binds_an_empty_array(together, engine):
    """Whose CUDA array interface has no address."""

    def rank(comm):
        mine = engine(comm.rank)
        with mine.here():
            last = comm.size - 1
            # Rank 0 owns two cells, which all have copies of but the last rank, which has nothing.
            owned = [0, 1] if comm.rank == 0 else []
            halo = [0, 1] if 0 < comm.rank < last else []
            pattern = hc.Pattern.unstructured(comm, [hc.UnstructuredDomain(comm.rank, owned, halo)])
            values = np.full((len(owned) + len(halo), 5), 7.0 if owned else -1.0)
            field = mine.array(values)
            assert comm.rank != last or last == 0 or hc.Field(field).shape == (0, 5)
            bound = hc.HaloExchange(comm, [(pattern, field)])
            for _ in range(3):
                bound.exchange()
            assert (mine.host(field) == 7).all()

    together(rank)


def allocators():
    import cupy

    yield "the driver's", None
    yield "a pool", cupy.cuda.MemoryPool().malloc
    yield "a pool of managed memory", cupy.cuda.MemoryPool(cupy.cuda.malloc_managed).malloc
    yield "the stream-ordered pool", cupy.cuda.MemoryAsyncPool().malloc


@pytest.mark.parametrize("number", range(4))
def test_memory_of_every_allocator_of_cupy(together, cupy_engine, number):
    def rank(comm):
        mine = cupy_engine(comm.rank)
        with mine.here():
            name, allocate = list(allocators())[number]
            with mine.cupy.cuda.using_allocator(allocate):
                # Not at the beginning of what was allocated.
                before = mine.cupy.zeros(1001)
                case = Case(comm, mine)
            case.count = 1
            halo = case.bind()
            for _ in range(3):
                exchange_and_check(case, halo)
            del before
            return f"{name}: {halo.links}"

    together(rank)


@pytest.mark.parametrize("is_of_the_driver", [True, False])
def test_memory_that_is_freed_and_given_again(together, cupy_engine, is_of_the_driver):
    """An address may come again, and mean other memory: peers identify what they have mapped by more than that."""

    def rank(comm):
        mine = cupy_engine(comm.rank)
        with mine.here():
            pool = mine.cupy.cuda.MemoryPool()
            allocate = None if is_of_the_driver else pool.malloc
            addresses = []
            for number in range(12):
                with mine.cupy.cuda.using_allocator(allocate):
                    case = Case(comm, mine, number)
                addresses.append(case.field.data.ptr)
                case.count = 1
                halo = case.bind()
                exchange_and_check(case, halo)
                exchange_and_check(case, halo)
                comm.barrier()
                del halo
                case.field = case.grow = case.seen = None
                if number % 4 == 3:
                    pool.free_all_blocks()
            return f"given again: {len(set(addresses))} addresses of {len(addresses)}"

    together(rank)


@pytest.mark.parametrize("is_large", [False, True])
def test_the_caching_allocator_of_torch(together, main_engine, is_large):
    if main_engine.name != "torch":
        pytest.skip("of PyTorch alone")

    def rank(comm):
        mine = main_engine(comm.rank)
        with mine.here():
            torch = mine.torch
            links = set()
            for number in range(6):
                # Blocks of one segment, which come again.
                ballast = [torch.empty(1 << 21 if is_large else 1 << 9, device=mine.place) for _ in range(3)]
                case = Case(comm, mine, number)
                case.count = 1
                del ballast
                halo = case.bind()
                links.add(str(halo.links))
                exchange_and_check(case, halo)
                exchange_and_check(case, halo)
                comm.barrier()
                del halo
                case.field = case.grow = case.seen = None
                if number == 3:
                    comm.barrier()
                    torch.cuda.empty_cache()
            return f"PyTorch's caching allocator: {links}"

    together(rank)


def test_jax_arrays_are_refused_and_read_what_was_exchanged(together, cupy_engine):
    if importlib.util.find_spec("jax") is None:
        pytest.skip("JAX is not installed")
    import jax

    jax.config.update("jax_enable_x64", True)

    def rank(comm):
        mine = cupy_engine(comm.rank)
        with mine.here():
            case = Case(comm, mine)
            on_gpu = jax.device_put(np.zeros(case.domain.shape), jax.devices()[mine.device % len(jax.devices())])
            with pytest.raises(hc.HaloTypeError, match="jax.dlpack"):
                hc.Field(on_gpu)
            with pytest.raises(hc.HaloError):
                hc.HaloExchange(comm, [(case.pattern, on_gpu)])
        # JAX leaves another device current.
        with mine.here():
            halo = case.bind()
            mine.add(case.field, case.grow)
            halo.exchange()
            # Without a copy: the memory is CuPy's.
            seen = jax.dlpack.from_dlpack(case.field)
            assert seen.unsafe_buffer_pointer() == case.field.data.ptr
            np.testing.assert_array_equal(np.asarray(seen + 0), case.expected(1))
            # What JAX has computed is exchanged from where CuPy puts it.
            result = jax.numpy.asarray(seen) * 2
            jax.block_until_ready(result)
        with mine.here():
            case.field[...] = mine.cupy.from_dlpack(result)
            halo.exchange()
            truth = case.expected(1)
            np.testing.assert_array_equal(mine.host(case.field), np.where(truth == -1, -2, truth * 2))

    together(rank)


def test_what_is_refused(together, cupy_engine):
    def rank(comm):
        mine = cupy_engine(comm.rank)
        cupy = mine.cupy
        other = (mine.device + 1) % gpus()
        with mine.here():
            case = Case(comm, mine)
            halo = case.bind()
            with cupy.cuda.Device(other):
                strange = cupy.cuda.Stream()
            if other != mine.device:
                for call in (halo.schedule_exchange, lambda stream: halo.exchange(streams=[stream])):
                    with pytest.raises(hc.HaloError, match="stream"):
                        call(strange)
            for bad in (7, "stream", object()):
                with pytest.raises(hc.HaloTypeError, match="__cuda_stream__"):
                    halo.schedule_exchange(bad)
            # A refused argument took no epoch.
            assert halo.schedule_exchange(None).epoch == 1
            halo.wait()

            on_host = np.zeros(case.domain.shape)
            liar = type("Liar", (), {"__cuda_array_interface__": {**interface_of(on_host)}})()
            with pytest.raises(hc.HaloError):
                hc.Field(liar)
            read_only = type(
                "ReadOnly",
                (),
                {"__cuda_array_interface__": {**case.field.__cuda_array_interface__, "data": (case.field.data.ptr, True)}},
            )()
            with pytest.raises(hc.HaloError, match="read-only"):
                hc.Field(read_only)
            with pytest.raises(hc.HaloError):
                hc.empty((3,), "float64", comm, 99)
            # One rank's mistake is an error on all.
            small = cupy.zeros((2, 2, 2)) if comm.rank == comm.size - 1 else case.field
            with pytest.raises(hc.HaloError):
                hc.HaloExchange(comm, [(case.pattern, small)])
            # More than was allocated.
            long = {**case.field.__cuda_array_interface__, "shape": (1 << 20, *SHAPE[1:]), "strides": None}
            with pytest.raises(hc.HaloError):
                hc.HaloExchange(comm, [(case.pattern, type("Long", (), {"__cuda_array_interface__": long})())])
            with pytest.raises(hc.HaloError):
                hc.PatternLinks(comm, [case.pattern]).exchange([(case.pattern, case.field)])
            peer = case.pattern.peers[0][0]
            with pytest.raises(hc.HaloError):
                halo.pack(peer, cupy.zeros(8, "uint8"))
            comm.barrier()

    together(rank)


def interface_of(array):
    interface = dict(array.__array_interface__)
    interface["version"] = 3
    return interface


def test_fields_on_the_other_device_and_on_several(together, cupy_engine):
    """A rank may have fields anywhere: where it computes is its own affair."""
    if gpus() < 2:
        pytest.skip("there is one GPU")

    def rank(comm):
        mine = cupy_engine(comm.rank)
        with mine.here():
            case = Case(comm, mine)
            here = case.field
            with mine.cupy.cuda.Device(device_of(comm.rank + 1)):
                there = mine.cupy.array(case.begin)
                on_there = mine.cupy.cuda.Stream()
            halo = hc.HaloExchange(comm, [(case.pattern, here), (case.pattern, there)], deadline=20)
            on_here = mine.cupy.cuda.Stream()
            for _ in range(3):
                halo.schedule_exchange([on_here, on_there])
                halo.schedule_wait(on_here)
                halo.schedule_wait(on_there)
            on_here.synchronize()
            on_there.synchronize()
            for field in (here, there):
                np.testing.assert_array_equal(mine.host(field), case.expected(0), err_msg=halo.explain())
            return f"fields on two devices: {halo.links}"

    together(rank)


def test_checked_mode_says_what_it_does_with_fields_of_gpus(together, cupy_engine):
    def rank(comm):
        mine = cupy_engine(comm.rank)
        with mine.here():
            case = Case(comm, mine)
            try:
                halo = case.bind(checked=True)
            except hc.HaloError as error:
                return f"checked mode is refused: {error}"
            case.count = 1
            exchange_and_check(case, halo)
            return "checked mode works"

    together(rank)


def test_one_thread_uses_the_device_that_another_one_has_bound(together, cupy_engine):
    import threading

    def rank(comm):
        mine = cupy_engine(comm.rank)
        with mine.here():
            case = Case(comm, mine)
            halo = case.bind()
            stream = mine.cupy.cuda.Stream()
            errors = []

            def other():
                # Its current device is the first one.
                try:
                    halo.schedule_exchange(stream)
                    halo.schedule_wait(stream)
                except Exception as error:
                    errors.append(error)

            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
            assert not errors, errors
            stream.synchronize()
            np.testing.assert_array_equal(mine.host(case.field), case.expected(0))

    together(rank)
