//! Index lists of host arrays and of a simulated device: against a loop, in any order of streams, and refused arguments.

use halocline::device::sim::{self, explore};
use halocline::device::{Capture, MemorySpace, Priority};
use halocline::{
    Array, ArrayError, Communicator, DeviceArray, ElementType, Error, Field, IndexListError, IndexLists,
    Layout,
};

type Outcome = Result<(), Error>;

fn list<T: halocline::Element>(values: &[T]) -> Result<Array<T>, Error> {
    let array = Array::zeros(&Communicator::single(), &[values.len()])?;
    array.write()?.copy_from_slice(values);
    Ok(array)
}

fn of(result: Result<(), Error>) -> IndexListError {
    match result.expect_err("an error") {
        Error::IndexList(error) => error,
        error => panic!("{error}"),
    }
}

#[test]
fn lists_of_the_host_are_those_of_a_loop() -> Outcome {
    let mut lists = IndexLists::new();
    assert!(lists.counts()?.is_empty());
    let mut seed = 1u64;
    let mut next = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) % below
    };
    for cells in [0, 1, 2, 100, 1000] {
        for size in [1, 2, 300] {
            let owners: Vec<u32> = (0..cells).map(|_| next(size) as u32).collect();
            let ranks: Vec<usize> = (0..size as usize).filter(|_| next(2) == 0).collect();
            let indices = list(&vec![-1i64; cells])?;
            lists.owned(&*list(&owners)?, size as usize, &ranks, &indices, None)?;
            let cells_of = |rank: &usize| {
                let cells = owners.iter().enumerate().filter(|(_, owner)| **owner as usize == *rank);
                cells.map(|(cell, _)| cell as i64).collect::<Vec<_>>()
            };
            let wanted: Vec<Vec<i64>> = ranks.iter().map(cells_of).collect();
            assert_eq!(lists.counts()?, wanted.iter().map(Vec::len).collect::<Vec<_>>());
            let wanted = wanted.concat();
            assert_eq!(indices.read()?[..wanted.len()], wanted[..]);
            assert!(indices.read()?[wanted.len()..].iter().all(|&index| index == -1));
        }
    }
    Ok(())
}

/// Two streams begin lists of one object, which is dropped while they may be in flight.
#[test]
fn streams_and_drops_in_any_order_are_ordered() {
    explore(0..30, &sim::Options::default(), |world| {
        let run = || -> Outcome {
            let device = world.device(0)?;
            let streams = [device.stream(Priority::Normal)?, device.stream(Priority::Normal)?];
            let owners = DeviceArray::<i32>::zeros(&device, &[5])?;
            let [first, second] =
                [DeviceArray::<u32>::zeros(&device, &[5])?, DeviceArray::zeros(&device, &[5])?];
            owners.write(&streams[0], &[1, 0, 1, 2, 1])?;
            let mut lists = IndexLists::new();
            lists.owned(&owners, 3, &[1], &first, Some(&streams[0]))?;
            lists.owned(&owners, 3, &[0, 2], &second, Some(&streams[1]))?;
            assert_eq!(lists.counts()?, [1, 1]);
            drop(lists);
            assert_eq!(first.read(&streams[0])?[..3], [0, 2, 4]);
            assert_eq!(second.read(&streams[1])?[..2], [1, 3]);
            // Dropped in flight: the memory stays.
            let mut lists = IndexLists::new();
            let unique = DeviceArray::<i32>::zeros(&device, &[3])?;
            lists.unique(&owners, &unique, Some(&streams[1]))?;
            drop(lists);
            streams[1].synchronise()?;
            Ok(())
        };
        run().expect("no error");
    });
}

/// What a peer of the list's stream writes is a race that the simulated device reports.
#[test]
fn a_list_that_is_not_ordered_with_its_owners_is_found() {
    let found = sim::find(0..30, &sim::Options::default(), |world| {
        let device = world.device(0).expect("a device");
        let streams = [(); 2].map(|()| device.stream(Priority::Normal).expect("a stream"));
        let owners = DeviceArray::<i32>::zeros(&device, &[64]).expect("memory");
        let indices = DeviceArray::<u32>::zeros(&device, &[64]).expect("memory");
        // SAFETY: the memory outlives the work. The missing order is what the test is about.
        unsafe { streams[0].clear(owners.address(), 256) }.expect("a stream");
        let mut lists = IndexLists::new();
        lists.owned(&owners, 1, &[0], &indices, Some(&streams[1])).expect("begun");
        // SAFETY: the arrays outlive the stream's work. The missing order with the list is what the test is about.
        unsafe { streams[0].copy(owners.address(), indices.address(), 256) }.expect("a stream");
        streams.iter().for_each(|stream| stream.synchronise().expect("no failure"));
    });
    assert!(found.is_some(), "no race is reported");
}

#[test]
fn arrays_that_are_no_lists_are_refused() -> Outcome {
    let mut lists = IndexLists::new();
    let (owners, indices) = (list(&[0i32, 1, 0])?, list(&[0u32; 3])?);
    let flat = Array::<i32>::zeros(&Communicator::single(), &[3, 1])?;
    let refused = of(lists.owned(&flat, 2, &[0], &indices, None));
    assert!(matches!(refused, IndexListError::Shape { array: "owners", .. }), "{refused}");
    let gaps = owners.view(owners.base(), Layout::strided(ElementType::I32, &[2], &[8])?)?;
    let refused = of(lists.owned(&gaps, 2, &[0], &indices, None));
    assert!(matches!(refused, IndexListError::Shape { array: "owners", .. }), "{refused}");
    let refused = of(lists.owned(&owners, 2, &[0], &*list(&[0.0f64; 3])?, None));
    assert!(matches!(refused, IndexListError::Element { array: "indices", element: ElementType::F64 }));
    let refused = of(lists.unique(&owners, &indices, None));
    assert!(matches!(refused, IndexListError::Types { unique: ElementType::U32, ids: ElementType::I32 }));
    let refused = of(lists.owned(&owners, 2, &[0], &owners, None));
    assert!(matches!(refused, IndexListError::Overlap { array: "owners", other: "indices" }));
    let guard = indices.read()?;
    let refused = lists.owned(&owners, 2, &[0], &indices, None);
    assert!(matches!(refused, Err(Error::Array(ArrayError::Borrowed))));
    drop(guard);
    Ok(())
}

/// 2^31 + 1 owners that no memory holds: refused before they are read.
#[test]
fn more_cells_than_an_index_can_number_are_refused() -> Outcome {
    let cells = (1 << 31) + 1;
    let layout = |element, cells| Layout::c_order(element, &[cells]);
    let base = list(&[0u64; 8])?;
    // SAFETY: the fields are never read: each call is refused, as is asserted.
    let far = |layout: Layout| unsafe { Field::from_raw(base.base(), layout, std::sync::Arc::new(())) };
    let owners = far(layout(ElementType::I32, cells)?);
    let refused = of(IndexLists::new().owned(&owners, 2, &[0], &*list(&[0i32; 2])?, None));
    assert!(
        matches!(refused, IndexListError::TooMany { cells: found, index: ElementType::I32 } if found == cells)
    );
    Ok(())
}

#[test]
fn ranks_and_owners_beyond_the_communicator_are_refused() -> Outcome {
    let mut lists = IndexLists::new();
    let (owners, indices) = (list(&[0i32, -4, 7])?, list(&[0u32; 3])?);
    let refused = of(lists.owned(&owners, 2, &[0, 2], &indices, None));
    assert!(matches!(refused, IndexListError::Rank { position: 1, rank: 2, size: 2 }));
    let refused = of(lists.owned(&owners, 3, &[0, 1, 1], &indices, None));
    assert!(matches!(refused, IndexListError::Order { position: 2, rank: 1, before: 1 }));
    let refused = of(lists.owned(&owners, 1 << 32, &[0], &indices, None));
    assert!(matches!(refused, IndexListError::Size { .. }));
    lists.owned(&owners, 2, &[0], &indices, None)?;
    let refused = of(lists.counts().map(drop));
    assert!(matches!(refused, IndexListError::Owner { cell: 1, owner: -4, size: 2 }), "{refused}");
    lists.owned(&*list(&[0i32, 0, 1])?, 2, &[0, 1], &*list(&[9u64])?, None)?;
    let refused = of(lists.counts().map(drop));
    assert!(matches!(refused, IndexListError::Capacity { found: 3, capacity: 1 }));
    Ok(())
}

#[test]
fn domains_of_other_lengths_and_of_negative_ids_are_refused() -> Outcome {
    let mut lists = IndexLists::new();
    let of_two = |lists: &mut IndexLists, ids: &Field, owners: &Field| {
        of(lists.domain(0, 0, 2, ids, owners, None).map(drop))
    };
    let (owners, ids) = (list(&[0i32, 1])?, list(&[4i32, -2])?);
    let refused = of_two(&mut lists, &ids, &*list(&[0u64])?);
    assert!(matches!(refused, IndexListError::Lengths { ids: 2, owners: 1 }));
    let refused = of_two(&mut lists, &ids, &owners);
    assert!(matches!(refused, IndexListError::Id { cell: 1, id: -2 }));
    let domain = lists.domain(5, 1, 2, &*list(&[4i64, 2])?, &owners, None)?;
    assert_eq!((domain.id(), domain.cells(), domain.owned_indices()), (5, &[4, 2][..], vec![1]));
    Ok(())
}

#[test]
fn arrays_and_streams_of_several_devices_are_refused() -> Outcome {
    let world = sim::World::live(0, &sim::Options::default()).expect("a thread");
    let devices = [world.world().device(0)?, world.world().device(1)?];
    let [own, other] = devices.each_ref().map(|device| device.stream(Priority::Normal).expect("a stream"));
    let owners = DeviceArray::<i32>::zeros(&devices[0], &[3])?;
    let indices = DeviceArray::<u32>::zeros(&devices[0], &[3])?;
    let mut lists = IndexLists::new();
    let refused = of(lists.owned(&owners, 1, &[0], &*list(&[0u32; 3])?, Some(&own)));
    assert!(matches!(refused, IndexListError::Space { other_space: MemorySpace::Host, .. }), "{refused}");
    let refused = of(lists.owned(&owners, 1, &[0], &indices, None));
    assert!(matches!(refused, IndexListError::NoStream { device: 0 }));
    let refused = lists.owned(&owners, 1, &[0], &indices, Some(&other));
    assert!(matches!(refused, Err(Error::StreamDevice { device: 1, .. })));
    // SAFETY: nothing is captured, as the list is refused.
    let captured = unsafe {
        own.capture_graph(|| -> Outcome {
            let capture: Option<Capture> = own.capture()?;
            assert!(capture.is_some());
            lists.owned(&owners, 1, &[0], &indices, Some(&own))
        })
    };
    assert!(matches!(of(captured.map(drop)), IndexListError::Captured));
    lists.owned(&owners, 1, &[0], &indices, Some(&own))?;
    assert_eq!(lists.counts()?, [3]);
    Ok(())
}
