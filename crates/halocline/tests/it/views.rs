//! Arrays seen as those of the crate `ndarray`, and arrays of that crate as fields.

use crate::on_ranks;
use halocline::{
    Array, ArrayError, Communicator, Decomposed, ElementType, Error, Halo, HaloExchange, Layout, LayoutError,
    Pattern, Redistribute, RegularGrid, UnstructuredDomain,
};
use ndarray::{Array2, Array6, Axis, Dim, Ix1, Ix2, Ix3, IxDyn, arr2};

fn plane(comm: &Communicator) -> Result<Pattern, Error> {
    RegularGrid::new((4, 3)).decompose(comm.size())?.pattern(comm, Halo::per_axis([(1, 0), (2, 1)]))
}

/// Layouts of the plane's 5 x 6 cells: C and Fortran order, negative strides, gaps, levels first, padding with an origin.
fn layouts() -> Result<Vec<Layout>, Error> {
    let of = ElementType::I32;
    Ok(vec![
        Layout::c_order(of, &[5, 6])?,
        Layout::fortran_order(of, &[5, 6])?,
        Layout::strided(of, &[5, 6], &[-24, 4])?,
        Layout::strided(of, &[5, 6], &[8, -40])?,
        Layout::c_order(of, &[2, 5, 6])?.with_axes(&[1, 2])?,
        Layout::c_order(of, &[8, 9])?.with_origin(&[3, 4]),
    ])
}

#[test]
fn views_have_the_elements_of_their_cells_in_any_layout() -> Result<(), Error> {
    let comm = Communicator::single();
    let pattern = plane(&comm)?;
    let domain = pattern.domain()?;
    for layout in layouts()? {
        let array = Array::<i32>::with_layout(&comm, layout.clone())?;
        let mut guard = array.write()?;
        guard.fill(-1);
        guard.view_mut::<IxDyn>()?.fill(0);
        guard.owned_mut::<IxDyn>(&domain)?.fill(1);
        for (number, mut side) in guard.halo_mut::<IxDyn>(&domain)?.into_iter().enumerate() {
            assert!(side.iter().all(|&element| element == 0), "boxes overlap: {layout:?}");
            side.fill(10 + number as i32);
        }
        // 12 owned cells, 18 halo cells; a level more has as many again.
        let count = |wanted: fn(i32) -> bool| guard.iter().filter(|&&element| wanted(element)).count();
        let levels = layout.extents().len() - 1;
        assert_eq!((count(|e| e == 1), count(|e| e >= 10)), (12 * levels, 18 * levels), "{layout:?}");
        // Each element by its address.
        let first = -layout.span().start / 4;
        for (index, element) in guard.view::<IxDyn>()?.indexed_iter() {
            let steps =
                layout.strides().iter().enumerate().map(|(dim, stride)| index[dim] as isize * stride / 4);
            let at = first + steps.sum::<isize>();
            assert!(std::ptr::eq(element, &guard[at as usize]), "{layout:?} at {index:?}");
        }
        drop(guard);
        let guard = array.read()?;
        assert_eq!(guard.owned::<IxDyn>(&domain)?.sum(), 12 * levels as i32, "{layout:?}");
        let halo: usize = guard.halo::<IxDyn>(&domain)?.iter().map(|side| side.len()).sum();
        assert_eq!(halo, 18 * levels, "{layout:?}");
    }
    Ok(())
}

#[test]
fn a_view_of_other_dimensions_or_of_another_domain_is_refused() -> Result<(), Error> {
    let comm = Communicator::single();
    let (pattern, array) = (plane(&comm)?, Array::<f32>::zeros(&comm, &[5, 6])?);
    let domain = pattern.domain()?;
    let error = array.read()?.view::<Ix3>().map(drop).expect_err("two dimensions");
    assert_eq!(
        error.to_string(),
        "a view of 3 dimensions was asked for, the array has 2; ask for a view of 2"
    );
    assert!(matches!(
        array.write()?.owned_mut::<Ix1>(&domain),
        Err(Error::Array(ArrayError::Dimensions { .. }))
    ));
    let other = Array::<f32>::zeros(&comm, &[2, 2])?;
    assert!(matches!(other.read()?.owned::<Ix2>(&domain), Err(Error::Layout(_))));
    Ok(())
}

#[test]
fn a_box_that_is_not_of_the_domain_or_leaves_the_array_is_refused() -> Result<(), Error> {
    let comm = Communicator::single();
    let (pattern, array) = (plane(&comm)?, Array::<f32>::zeros(&comm, &[5, 6])?);
    let domain = pattern.domain()?;
    let (read, write) = (Array::<f32>::zeros(&comm, &[5, 6])?, &array);
    for count in [0, 1, 3] {
        let cells = &[1..5, 2..5, 0..1][..count];
        let refused = |end: Result<(), Error>| match end {
            Err(Error::Layout(LayoutError::BoxRanges { ranges, axes: 2 })) => assert_eq!(ranges, count),
            end => panic!("{cells:?}: {end:?}"),
        };
        refused(read.read()?.cells::<Ix2>(&domain, cells).map(drop));
        refused(write.write()?.cells_mut::<Ix2>(&domain, cells).map(drop));
    }
    for (cells, beyond) in [([1..6, 2..5], 0), ([1..5, 2..7], 1), ([5..9, 2..5], 0)] {
        let refused = |end: Result<(), Error>| match end {
            Err(Error::Layout(LayoutError::OutsideArray { axis, .. })) => assert_eq!(axis, beyond),
            end => panic!("{cells:?}: {end:?}"),
        };
        refused(read.read()?.cells::<Ix2>(&domain, &cells).map(drop));
        refused(write.write()?.cells_mut::<Ix2>(&domain, &cells).map(drop));
    }
    // Halo cells are the domain's, too.
    assert_eq!(read.read()?.cells::<Ix2>(&domain, &[0..5, 0..6])?.dim(), (5, 6));
    assert!(read.read()?.cells::<Ix2>(&domain, &[2..2, 0..6])?.is_empty());
    // An array without space for the halo cells, which the domain has none of, holds the others.
    let tight =
        Array::<f32>::with_layout(&comm, Layout::c_order(ElementType::F32, &[5, 6])?.with_origin(&[0, 0]))?;
    assert!(tight.read()?.cells::<Ix2>(&domain, &[0..5, 2..5]).is_err());
    let halo = tight.read()?.halo::<Ix2>(&domain)?.iter().map(|side| side.len()).sum::<usize>();
    assert_eq!((tight.read()?.owned::<Ix2>(&domain)?.len(), halo), (12, 4));
    Ok(())
}

#[test]
fn arrays_of_ndarray_become_arrays_without_a_copy() -> Result<(), Error> {
    let given = arr2(&[[1, 2, 3], [4, 5, 6]]);
    let (address, expected) = (given.as_ptr(), given.clone());
    let array = Array::from_ndarray(given)?;
    assert!(std::ptr::eq(&array.read()?[0], address));
    assert_eq!(array.read()?.view::<Ix2>()?, expected);

    // Reversed, transposed, and a part of a larger one.
    let mut turned =
        Array2::from_shape_fn((4, 5), |(row, column)| (10 * row + column) as u64).reversed_axes();
    turned.invert_axis(Axis(1));
    turned.slice_axis_inplace(Axis(0), (1..4).into());
    let expected = turned.clone();
    let array = Array::from_ndarray(turned)?;
    assert_eq!(array.layout().extents(), [3, 4]);
    assert_eq!(array.read()?.view::<Ix2>()?, expected);

    let six = Array6::<f32>::zeros(Dim([1, 2, 1, 3, 2, 2]));
    assert_eq!(Array::from_ndarray(six)?.read()?.view::<ndarray::Ix6>()?.len(), 24);
    let none = Array2::<f64>::zeros((0, 3));
    assert!(Array::from_ndarray(none)?.read()?.view::<Ix2>()?.is_empty());
    Ok(())
}

#[test]
fn arrays_of_ndarray_are_exchanged() -> Result<(), Error> {
    on_ranks(3, |comm| {
        let pattern = RegularGrid::new((3 * comm.size(),))
            .periodic((true,))
            .decompose(comm.size())?
            .pattern(comm, 1)?;
        let me = comm.rank() as i64;
        let row = Array::from_ndarray(ndarray::Array1::from_elem(5, me))?;
        HaloExchange::bind(comm, [(&pattern, &row)])?.exchange()?.wait()?;
        let size = comm.size() as i64;
        let expected = [(me + size - 1) % size, me, me, me, (me + 1) % size];
        assert_eq!(row.read()?.view::<Ix1>()?.to_vec(), expected);
        Ok(())
    })
}

#[test]
fn no_view_is_given_while_an_exchange_is_in_flight() -> Result<(), Error> {
    let comm = Communicator::single();
    let (pattern, array) = (plane(&comm)?, Array::<f32>::zeros(&comm, &[5, 6])?);
    let halo = HaloExchange::bind(&comm, [(&pattern, &array)])?;
    let pending = halo.exchange()?;
    assert!(matches!(array.read(), Err(Error::Array(ArrayError::InFlight))));
    pending.wait()?;
    let guard = array.read()?;
    let view = guard.view::<Ix2>()?;
    assert!(matches!(halo.exchange(), Err(Error::Borrowed { field: 0 })));
    assert_eq!(view.len(), 30);
    Ok(())
}

#[test]
fn owned_cells_have_a_view_while_an_exchange_fills_the_halo() -> Result<(), Error> {
    let comm = Communicator::single();
    let grid = RegularGrid::new((4, 3)).periodic((true, true));
    let pattern = grid.decompose(1)?.pattern(&comm, Halo::per_axis([(1, 0), (2, 1)]))?;
    let domain = pattern.domain()?;
    for layout in layouts()? {
        let array = Array::<i32>::with_layout(&comm, layout.clone())?;
        let count = array.write()?.len() as i32;
        array.write()?.copy_from_slice(&(0..count).collect::<Vec<_>>());
        let before = array.read()?.owned::<IxDyn>(&domain)?.to_owned();
        let halo = HaloExchange::bind(&comm, [(&pattern, &array)])?;
        let pending = halo.exchange()?;
        let owned = pending.owned(&array)?;
        assert_eq!(owned.view::<IxDyn>(&domain)?, before, "{layout:?}");
        pending.wait()?;
        assert!(matches!(halo.exchange(), Err(Error::Borrowed { field: 0 })), "{layout:?}");
        assert_eq!(owned.view::<IxDyn>(&domain)?.as_ptr(), array.read()?.owned::<IxDyn>(&domain)?.as_ptr());
        drop(owned);
        halo.exchange()?.wait()?;
    }
    Ok(())
}

#[test]
fn a_view_of_cells_that_the_exchange_in_flight_writes_is_refused() -> Result<(), Error> {
    let comm = Communicator::single();
    let (pattern, array) = (plane(&comm)?, Array::<f32>::zeros(&comm, &[5, 6])?);
    let domain = pattern.domain()?;
    let halo = HaloExchange::bind(&comm, [(&pattern, &array)])?;
    let pending = halo.exchange()?;
    let owned = pending.owned(&array)?;
    assert!(matches!(
        owned.view::<Ix3>(&domain),
        Err(Error::Array(ArrayError::Dimensions { wanted: 3, found: 2 }))
    ));
    let small = RegularGrid::new((4, 4)).decompose(1)?.pattern(&comm, 0)?;
    assert!(matches!(owned.view::<Ix2>(&small.domain()?), Err(Error::Layout(_))));
    // Its owned cells are the halo of the domain, too.
    let whole = RegularGrid::new((5, 6)).decompose(1)?.pattern(&comm, 0)?;
    let error = owned.view::<Ix2>(&whole.domain()?).map(drop).expect_err("the domain is another one");
    assert!(matches!(error, Error::Array(ArrayError::NotOwned { domain: 0 })), "{error}");
    drop(owned);
    pending.wait()?;

    let grid = RegularGrid::new((5, 6)).decompose(1)?;
    let none = Halo::uniform(0);
    let (from, to) = (Array::<f32>::zeros(&comm, &[5, 6])?, Array::<f32>::zeros(&comm, &[5, 6])?);
    let moves = Redistribute::regular(&comm, (&grid, &none), (&grid, &none))?;
    let halo = moves.bind(&comm, [&from], [&to])?;
    let pending = halo.exchange()?;
    assert_eq!(pending.owned(&from)?.view::<Ix2>(&whole.domain()?)?.len(), 30);
    assert!(matches!(
        pending.owned(&to)?.view::<Ix2>(&whole.domain()?),
        Err(Error::Array(ArrayError::NotOwned { domain: 0 }))
    ));
    pending.wait()
}

#[test]
fn owned_cells_that_are_no_range_have_no_view() -> Result<(), Error> {
    on_ranks(2, |comm| {
        let rank = comm.rank() as u64;
        // Rank 0 owns the ids 0 and 1, rank 1 the ids 2 and 3. The halo cell of rank 0 lies between its owned cells.
        let cells = if rank == 0 { vec![0, 2, 1] } else { vec![2, 3, 1] };
        let (listed, owners) = if rank == 0 { (vec![1], vec![0, 1, 0]) } else { (vec![2], vec![1, 1, 0]) };
        for domain in [
            UnstructuredDomain::from_indices(rank, cells.clone(), &listed),
            UnstructuredDomain::from_owners(rank, comm.rank(), cells, owners),
        ] {
            let pattern = Pattern::unstructured(comm, &[domain])?;
            let (domain, array) = (pattern.domain()?, Array::<u64>::zeros(comm, &[3])?);
            assert_eq!(domain.owned_come_first(), rank == 1);
            let halo = HaloExchange::bind(comm, [(&pattern, &array)])?;
            let pending = halo.exchange()?;
            let of_guard = pending.owned(&array)?.view::<Ix1>(&domain).map(drop);
            pending.wait()?;
            let (mut guard, read) = (array.write()?, Array::<u64>::zeros(comm, &[3])?);
            let ends = [
                of_guard,
                guard.owned_mut::<Ix1>(&domain).map(drop),
                guard.halo_mut::<Ix1>(&domain).map(drop),
                read.read()?.owned::<Ix1>(&domain).map(drop),
                read.read()?.halo::<Ix1>(&domain).map(drop),
            ];
            for end in ends {
                match end {
                    Err(Error::Array(ArrayError::NoRange { domain: 0 })) => assert_eq!(rank, 0),
                    end => assert!(rank == 1 && end.is_ok(), "{end:?}"),
                }
            }
        }
        Ok(())
    })
}
