//! Index lists: the cells of each rank, unique ids.

use crate::call::{call, call_for};
use crate::collective::collective_for;
use crate::comm::Comm;
use crate::object::{Handle, Pinned};
use crate::pattern::BoundPattern;
use crate::pointer::{Capacity, OutArray, OutPtr, array, store};
use crate::status::{Refusal, Status};
use halocline::{Field, IndexLists, Pattern, Stream};
use std::sync::{Arc, Mutex, PoisonError};

/// `halocline_index_lists`: threads use it one after the other.
pub(crate) type Lists = Mutex<IndexLists>;

/// The stream of a call; null for arrays of the host.
fn stream_of(stream: Handle<Arc<Stream>>) -> Result<Option<Pinned<Arc<Stream>>>, Refusal> {
    if stream.number() == 0 { Ok(None) } else { stream.pin().map(Some) }
}

/// An object without memory.
#[unsafe(no_mangle)]
extern "C" fn halocline_index_lists_create(lists: OutPtr<'_, Handle<Lists>>) -> Status {
    call_for(lists, "lists", || Handle::new(Mutex::new(IndexLists::new())))
}

/// The cells that each of some ranks owns.
#[unsafe(no_mangle)]
unsafe extern "C" fn halocline_index_lists_owned(
    lists: Handle<Lists>,
    owners: Handle<Field>,
    size: usize,
    ranks: *const usize,
    rank_count: usize,
    indices: Handle<Field>,
    stream: Handle<Arc<Stream>>,
) -> Status {
    call(|| {
        // SAFETY: the caller passes null or an array of that many elements.
        let ranks = unsafe { array(ranks, rank_count, "ranks") }?;
        let (lists, owners, indices) = (lists.pin()?, owners.pin()?, indices.pin()?);
        let stream = stream_of(stream)?;
        let stream = stream.as_ref().map(|stream| &***stream);
        let mut lists = lists.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(lists.owned(&owners, size, ranks, &indices, stream)?)
    })
}

/// The unique ids of an array.
#[unsafe(no_mangle)]
extern "C" fn halocline_index_lists_unique(
    lists: Handle<Lists>,
    ids: Handle<Field>,
    unique: Handle<Field>,
    stream: Handle<Arc<Stream>>,
) -> Status {
    call(|| {
        let (lists, ids, unique) = (lists.pin()?, ids.pin()?, unique.pin()?);
        let stream = stream_of(stream)?;
        let stream = stream.as_ref().map(|stream| &***stream);
        let mut lists = lists.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(lists.unique(&ids, &unique, stream)?)
    })
}

/// The elements of each part of the last list.
#[unsafe(no_mangle)]
extern "C" fn halocline_index_lists_counts(
    lists: Handle<Lists>,
    counts: OutArray<'_, usize>,
    capacity: Capacity,
    count: OutPtr<'_, usize>,
) -> Status {
    call(|| {
        let lists = lists.pin()?;
        let found = lists.lock().unwrap_or_else(PoisonError::into_inner).counts()?;
        store(&found, (counts, capacity), count, "counts")
    })
}

/// The pattern of one domain on each rank, from fields of its ids and owners.
#[unsafe(no_mangle)]
extern "C" fn halocline_pattern_of_owners(
    comm: Handle<Comm>,
    number: u64,
    ids: Handle<Field>,
    owners: Handle<Field>,
    stream: Handle<Arc<Stream>>,
    pattern: OutPtr<'_, Handle<BoundPattern>>,
) -> Status {
    call(|| {
        let comm = comm.pin()?;
        let (rank, size) = (comm.comm.rank(), comm.comm.size());
        let parse = || {
            let (ids, owners, stream) = (ids.pin()?, owners.pin()?, stream_of(stream)?);
            let stream = stream.as_ref().map(|stream| &***stream);
            Ok(IndexLists::new().domain(number, rank, size, &ids, &owners, stream)?)
        };
        collective_for(&comm.comm, "pattern", (pattern, "pattern"), parse, |within, domain| {
            Handle::new(BoundPattern::new(Pattern::unstructured(within, &[domain])?, &comm))
        })
    })
}
