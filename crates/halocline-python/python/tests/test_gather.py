"""A distributed field as one array, or as a file of NumPy or Zarr."""

import numpy as np
import pytest

import halocline as hc

SHAPE = (7, 6)


def expected(dtype="f8", levels=()):
    return np.arange(np.prod(SHAPE + levels)).reshape(SHAPE + levels).astype(dtype)


def part(domain, whole):
    array = np.zeros(domain.shape + whole.shape[2:], whole.dtype)
    inside = tuple(slice(first, first + cells) for first, cells in zip(domain.first, domain.owned_shape))
    array[domain.owned] = whole[inside]
    return array


@pytest.mark.parametrize("dtype, levels", [("f8", ()), ("i4", (3,)), ("c16", ()), ("M8[s]", ()), ([("a", "f4"), ("b", "i2")], ())])
def test_one_rank_gets_the_owned_cells_of_all(ranks, dtype, levels):
    whole = expected("i8", levels).astype(dtype)

    def main(comm):
        pattern = hc.RegularGrid(SHAPE).decompose(comm).pattern(1)
        return pattern.gather_to(comm.size - 1, part(pattern.domains[0], whole))

    *others, last = hc.run_threads(ranks, main)
    assert others == [None] * (ranks - 1)
    assert last.dtype == whole.dtype and (last == whole).all() and last.flags.c_contiguous


def test_several_domains_of_a_rank():
    whole = expected()

    def main(comm):
        pattern = hc.RegularGrid(SHAPE, domains_per_rank=2).decompose(comm).pattern(1)
        return pattern.gather_to(0, [hc.Field(part(domain, whole), domain=domain.id) for domain in pattern.domains])

    assert (hc.run_threads(2, main)[0] == whole).all()


@pytest.mark.parametrize("name", ["gather_to", "save"])
def test_a_wrong_field_is_named_by_its_place_in_the_list(name, tmp_path):
    def main(comm):
        pattern = hc.RegularGrid(SHAPE, domains_per_rank=2).decompose(comm).pattern(1)
        first, second = (hc.Field(np.zeros(domain.shape), domain=domain.id) for domain in pattern.domains)
        for wrong, text in (
            (hc.Field(np.zeros(3), domain=second.domain), "the array's shape is (3)"),
            (hc.Field(np.zeros(3), domain=99), "domain 99 is not on this rank, which has [0, 1]; give fields of this rank's own domains"),
            (np.zeros(3), "this rank has the domains [0, 1]; say which one a field belongs to with Field(domain=...)"),
        ):
            with pytest.raises(hc.HaloValueError) as caught:
                getattr(pattern, name)(0 if name == "gather_to" else tmp_path / "t.npy", [first, wrong])
            assert str(caught.value).startswith(f"fields[1]: {text}")

    hc.run_threads(1, main)


def test_unstructured_cells_come_by_their_global_ids():
    def main(comm):
        mine = np.arange(comm.rank, 9, comm.size)[::-1]
        pattern = hc.Pattern.unstructured(comm, [hc.UnstructuredDomain(comm.rank, mine, [])])
        return pattern.gather_to(0, 10.0 * mine)

    assert (hc.run_threads(2, main)[0] == 10.0 * np.arange(9)).all()


def test_a_saved_field_is_read_by_numpy(tmp_path):
    whole = expected("f4", (2,))

    def main(comm):
        pattern = hc.RegularGrid(SHAPE).decompose(comm).pattern(1)
        pattern.save(tmp_path / "t.npy", part(pattern.domains[0], whole))

    hc.run_threads(3, main)
    saved = np.load(tmp_path / "t.npy")
    assert saved.dtype == whole.dtype and (saved == whole).all()


@pytest.mark.parametrize("dtype", ["?", "i1", "u2", "f4", "f8", "c16"])
def test_a_saved_field_is_read_by_zarr(dtype, tmp_path):
    zarr = pytest.importorskip("zarr", minversion="3", reason="zarr-python 3 is not installed: it wants Python 3.11")
    whole = expected(dtype, (2,))

    def main(comm):
        pattern = hc.RegularGrid(SHAPE).decompose(comm).pattern(1)
        pattern.save(tmp_path / "t.zarr", part(pattern.domains[0], whole))

    hc.run_threads(3, main)
    saved = zarr.open_array(tmp_path / "t.zarr", mode="r")[:]
    assert saved.dtype == whole.dtype and (saved == whole).all()


def test_what_one_rank_refuses_is_an_error_on_all(tmp_path):
    def main(comm):
        pattern = hc.RegularGrid(SHAPE).decompose(comm).pattern(1)
        errors = []
        for call in (
            lambda: pattern.gather_to(0, np.zeros(3) if comm.rank else np.zeros(pattern.shape)),
            lambda: pattern.gather_to(0, [] if comm.rank else "text"),
            lambda: pattern.gather_to(2, np.zeros(pattern.shape)),
            lambda: pattern.save(tmp_path / "no" / "folder.npy", np.zeros(pattern.shape)),
        ):
            with pytest.raises(hc.HaloError) as caught:
                call()
            errors.append(caught.value)
        return errors

    shapes, texts, roots, paths = zip(*hc.run_threads(2, main), strict=True)
    assert str(shapes[1]).startswith("fields[0]: the array's shape is (3), the domain's with its halo (")
    assert isinstance(shapes[0], hc.RefusedElsewhereError) and "side" not in str(shapes[0])
    assert str(texts[0]).startswith("fields: ") and isinstance(texts[1], hc.RefusedElsewhereError)
    assert all(str(error).startswith("root: ") for error in roots)
    assert str(paths[0]).startswith("path: cannot write") and isinstance(paths[1], hc.RefusedElsewhereError)
