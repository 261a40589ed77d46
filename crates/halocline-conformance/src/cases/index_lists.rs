//! Index lists: of each rank's cells, of unique ids, and the patterns made of them.

use super::device_of;
use crate::device_fixtures::Rig;
use crate::numbers::{Numbers, mix};
use crate::stage::Stage;
use crate::{Case, Outcome, ensure};
use halocline::device::Priority;
use halocline::{
    Array, Device, DeviceArray, Element, Error, Field, IndexListError, IndexLists, Pattern, Stream,
    UnstructuredDomain,
};

pub(super) const fn cases<R: Rig>() -> [Case; 3] {
    [
        Case { name: "index_lists::those_of_a_device_equal_those_of_a_loop", run: as_a_loop::<R> },
        Case {
            name: "index_lists::a_domain_of_device_arrays_has_the_pattern_of_its_cells",
            run: patterns::<R>,
        },
        Case { name: "index_lists::an_owner_that_is_no_rank_is_refused_on_all_ranks", run: bad_owners::<R> },
    ]
}

/// A list in memory of a device.
fn on_device<T: Element>(device: &Device, stream: &Stream, values: &[T]) -> Result<DeviceArray<T>, Error> {
    let array = DeviceArray::zeros(device, &[values.len()])?;
    array.write(stream, values)?;
    Ok(array)
}

/// The cells of each of these ranks.
fn cells_of(owners: &[i32], ranks: &[usize]) -> Vec<Vec<u32>> {
    let of = |&rank: &usize| {
        let cells = (0u32..).zip(owners).filter(|&(_, &owner)| owner as usize == rank);
        cells.map(|(cell, _)| cell).collect()
    };
    ranks.iter().map(of).collect()
}

fn as_a_loop<R: Rig>(comm: &Stage<'_>) -> Outcome {
    let device = device_of(R::get()?, comm.rank());
    let streams = [device.stream(Priority::Normal)?, device.stream(Priority::Normal)?];
    let mut lists = IndexLists::new();
    let mut numbers = Numbers::new(comm.rank() as u64);
    for (turn, cells) in [0, 1, 33, 700, 5000].into_iter().enumerate() {
        let stream = &streams[turn % 2];
        let size = [1, 3, 9][numbers.below(3)];
        let owners: Vec<i32> = (0..cells).map(|_| numbers.below(size) as i32).collect();
        let ranks: Vec<usize> = (0..size).filter(|_| numbers.below(3) > 0).collect();
        let given = on_device(device, stream, &owners)?;
        let indices = on_device(device, stream, &vec![u32::MAX; cells])?;
        lists.owned(&given, size, &ranks, &indices, Some(stream))?;
        let wanted = cells_of(&owners, &ranks);
        let counts: Vec<usize> = wanted.iter().map(Vec::len).collect();
        ensure!(lists.counts()? == counts, "{cells} cells of {size} ranks: not the counts of the host");
        let found = indices.read(stream)?;
        let mut wanted = wanted.concat();
        wanted.resize(cells, u32::MAX);
        ensure!(found == wanted, "{cells} cells of {size} ranks: another list");
        // The other stream begins while this object's last list may be in flight.
        let other = &streams[(turn + 1) % 2];
        let ids: Vec<i64> = (0..cells).map(|_| numbers.below(50) as i64 - 20).collect();
        let (given, unique) =
            (on_device(device, other, &ids)?, on_device(device, other, &vec![0i64; cells])?);
        lists.owned(&*on_device(device, stream, &owners)?, size, &ranks, &indices, Some(stream))?;
        lists.unique(&given, &unique, Some(other))?;
        let mut wanted = ids;
        wanted.sort_unstable();
        wanted.dedup();
        ensure!(lists.counts()? == [wanted.len()], "{cells} ids: not as many unique ones");
        ensure!(unique.read(other)?[..wanted.len()] == wanted[..], "{cells} ids: other unique ones");
        stream.synchronise()?;
    }
    Ok(())
}

/// The cells of a rank, in any order: those that it owns, and some of others. Ids and owners.
fn cloud(seed: u64, rank: usize, ranks: usize) -> (Vec<u64>, Vec<usize>) {
    let mut numbers = Numbers::new(seed);
    let owners: Vec<usize> = (0..30 * ranks).map(|_| numbers.below(ranks)).collect();
    let mut numbers = Numbers::new(mix(seed) ^ rank as u64);
    let is_local = |cell: &usize| owners[*cell] == rank || numbers.one_in(3);
    let mut local: Vec<usize> = (0..owners.len()).filter(is_local).collect();
    numbers.shuffle(&mut local);
    local.into_iter().map(|cell| (mix(cell as u64) >> 1, owners[cell])).unzip()
}

fn patterns<R: Rig>(comm: &Stage<'_>) -> Outcome {
    let device = device_of(R::get()?, comm.rank());
    let stream = device.stream(Priority::Normal)?;
    let (rank, ranks) = (comm.rank(), comm.size());
    for seed in 0..3 {
        let (ids, of_cells) = cloud(seed, rank, ranks);
        let owners: Vec<i32> = of_cells.iter().map(|&owner| owner as i32).collect();
        let here = (as_array(comm, &ids)?, as_array(comm, &owners)?);
        let there = (on_device(device, &stream, &ids)?, on_device(device, &stream, &owners)?);
        let number = 10 + rank as u64;
        let of = |ids: &Field, owners: &Field, stream| {
            IndexLists::new().domain(number, rank, ranks, ids, owners, stream)
        };
        let wanted = UnstructuredDomain::from_owners(number, rank, ids.clone(), of_cells);
        let wanted = Pattern::unstructured(comm, &[wanted])?;
        for made in [of(&there.0, &there.1, Some(&stream))?, of(&here.0, &here.1, None)?] {
            ensure!(made.cells() == ids, "the domain has other cells");
            let found = Pattern::unstructured(comm, &[made])?;
            let is_same =
                found.plan().peers == wanted.plan().peers && found.plan().local == wanted.plan().local;
            ensure!(is_same, "the pattern differs from that of the owners on the host");
        }
    }
    Ok(())
}

fn as_array<T: Element>(comm: &Stage<'_>, values: &[T]) -> Result<Array<T>, Error> {
    let array = Array::zeros(comm, &[values.len()])?;
    array.write()?.copy_from_slice(values);
    Ok(array)
}

fn bad_owners<R: Rig>(comm: &Stage<'_>) -> Outcome {
    let device = device_of(R::get()?, comm.rank());
    let stream = device.stream(Priority::Normal)?;
    let (last, rank) = (comm.size() - 1, comm.rank());
    let owner = if rank == last { comm.size() as i32 } else { rank as i32 };
    let ids = on_device(device, &stream, &[3 * rank as u64, 3 * rank as u64 + 1])?;
    let owners = on_device(device, &stream, &[rank as i32, owner])?;
    let domain = IndexLists::new().domain(rank as u64, rank, comm.size(), &ids, &owners, Some(&stream));
    let agreed: Result<UnstructuredDomain, Error> = halocline::agree(comm, domain);
    let is_right = match agreed {
        Err(Error::IndexList(IndexListError::Owner { cell: 1, owner, size })) => {
            rank == last && owner == size as i128 && size == comm.size()
        }
        Err(Error::Elsewhere { rank: other, .. }) => rank != last && other == last,
        _ => false,
    };
    ensure!(is_right, "an owner that is no rank is no error");
    Ok(())
}
