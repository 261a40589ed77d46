//! The objects that handles stand for.

use crate::call::watch_forks;
use crate::comm::Comm;
use crate::handle::{Pin, Refused, Table};
use crate::index_lists::Lists;
use crate::memory_resource::Resource;
use crate::mesh::{AnyMesh, Halos};
use crate::pattern::BoundPattern;
use crate::pattern_links::Links;
use crate::program::{Loaded, PreparedCall};
use crate::session::Series;
use crate::sparse::Sparse;
use crate::status::{Refusal, Status};
use crate::trace::Recording;
use halocline::neighbors::{NeighborExchange, Round};
use halocline::{
    Decomposition, Field, HaloExchange, IconGrid, Packet, Partition, PatchDecomposition, PatchGrid,
    Redistribute, Stream,
};
use halocline_trace::device::DeviceTrace;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

/// All objects that C has handles of.
static TABLE: Table<Object> = Table::new();

/// A handle as C passes it, of objects of type `K`: a struct with one 64-bit number.
#[repr(transparent)]
pub(crate) struct Handle<K>(u64, PhantomData<fn(K)>);

impl<K> Clone for Handle<K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for Handle<K> {}

/// A type of object that C has handles of.
pub(crate) trait Kind: Sized {
    /// Its number in handles.
    const KIND: u8;

    fn into_object(self) -> Object;

    fn of(object: &Object) -> Option<&Self>;
}

macro_rules! kinds {
    ($($number:literal $kind:ident($of:ty), $name:literal, $free:ident;)*) => {
        /// An object of any kind.
        pub(crate) enum Object {
            $($kind($of),)*
        }

        $(
            impl Kind for $of {
                const KIND: u8 = $number;

                fn into_object(self) -> Object {
                    Object::$kind(self)
                }

                #[inline]
                fn of(object: &Object) -> Option<&Self> {
                    match object {
                        Object::$kind(value) => Some(value),
                        _ => None,
                    }
                }
            }

            /// Frees the object and sets the handle to null.
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $free(handle: *mut Handle<$of>) -> Status {
                // SAFETY: the caller passes null or a valid pointer to its handle.
                crate::call::call(|| unsafe { free(handle) })
            }
        )*

        /// The name in the header of an object of a kind.
        fn name_of(kind: u8) -> &'static str {
            match kind {
                $($number => $name,)*
                _ => "handle of an unknown kind",
            }
        }
    };
}

kinds! {
    1 Comm(Comm), "halocline_comm", halocline_comm_free;
    2 Decomposition(Decomposition), "halocline_decomposition", halocline_decomposition_free;
    3 Pattern(BoundPattern), "halocline_pattern", halocline_pattern_free;
    4 Field(Field), "halocline_field", halocline_field_free;
    5 HaloExchange(HaloExchange), "halocline_halo_exchange", halocline_halo_exchange_free;
    6 Stream(Arc<Stream>), "halocline_stream", halocline_stream_free;
    7 Mesh(AnyMesh), "halocline_mesh", halocline_mesh_free;
    8 Partition(Partition), "halocline_partition", halocline_partition_free;
    9 MeshHalos(Halos), "halocline_mesh_halos", halocline_mesh_halos_free;
    10 Links(Links), "halocline_pattern_links", halocline_pattern_links_free;
    11 Redistribute(Redistribute), "halocline_redistribute", halocline_redistribute_free;
    12 Packet(Packet), "halocline_received", halocline_packet_free;
    13 Resource(Resource), "halocline_resource", halocline_resource_free;
    14 Neighbors(NeighborExchange), "halocline_neighbors", halocline_neighbors_free;
    15 Round(Round), "halocline_round", halocline_round_free;
    16 Session(Series), "halocline_session", halocline_session_free;
    17 Sparse(Sparse), "halocline_sparse", halocline_sparse_free;
    18 Program(Loaded), "halocline_program", halocline_program_free;
    19 Prepared(PreparedCall), "halocline_prepared", halocline_prepared_free;
    20 Trace(Recording), "halocline_trace", halocline_trace_free;
    21 DeviceTrace(Arc<DeviceTrace>), "halocline_device_trace", halocline_device_trace_free;
    22 PatchGrid(PatchGrid), "halocline_patch_grid", halocline_patch_grid_free;
    23 PatchDecomposition(PatchDecomposition), "halocline_patch_decomposition", halocline_patch_decomposition_free;
    24 IconGrid(IconGrid), "halocline_icon_grid", halocline_icon_grid_free;
    25 IndexLists(Lists), "halocline_index_lists", halocline_index_lists_free;
}

/// Frees the object of a handle and sets the handle to null. A null handle is freed already.
///
/// # Safety
/// `handle` is null or points to a handle that may be read and written.
unsafe fn free<K: Kind>(handle: *mut Handle<K>) -> Result<(), Refusal> {
    let place = crate::pointer::checked(handle, "the handle to free")?;
    // SAFETY: the caller promises that it may be read and written, and `checked` has found it neither null nor misaligned.
    let handle = unsafe { &mut *place.as_ptr() };
    if handle.0 != 0 {
        drop(handle.pin()?);
        if !TABLE.remove(handle.0) {
            return Err(handle.refused());
        }
        handle.0 = 0;
    }
    Ok(())
}

impl<K: Kind> Handle<K> {
    /// The handle of a new object.
    pub(crate) fn new(value: K) -> Result<Self, Refusal> {
        watch_forks();
        let handle = TABLE.insert(K::KIND, value.into_object()).ok_or_else(|| {
            Refusal::new(
                Status::MEMORY,
                "the process has 2^24 handles, which is the limit; free those of no use",
            )
        })?;
        Ok(Self(handle, PhantomData))
    }

    /// The handle of a new object; null for none.
    pub(crate) fn of_option(value: Option<K>) -> Result<Self, Refusal> {
        value.map_or(Ok(Self::from_number(0)), Self::new)
    }

    /// The handle of a number that [`Handle::number`] returned.
    #[inline]
    pub(crate) fn from_number(number: u64) -> Self {
        Self(number, PhantomData)
    }

    /// Whether it is a handle of this kind, valid or not.
    pub(crate) fn is_of_kind(self) -> bool {
        Table::<Object>::kind(self.0) == K::KIND
    }

    #[inline]
    pub(crate) fn number(self) -> u64 {
        self.0
    }

    /// The object, which other threads may free meanwhile; it is dropped after this call has let go of it.
    #[inline(always)]
    pub(crate) fn pin(self) -> Result<Pinned<K>, Refusal> {
        match TABLE.pin(self.0) {
            // A made-up number may name the slot of an object by another kind.
            Some(pin) if self.is_of_kind() && pin.get().and_then(K::of).is_some() => {
                Ok(Pinned(pin, PhantomData))
            }
            _ => Err(self.refused()),
        }
    }

    #[cold]
    #[inline(never)]
    fn refused(self) -> Refusal {
        let wanted = name_of(K::KIND);
        Refusal::new(
            Status::HANDLE,
            match TABLE.diagnose(self.0, K::KIND) {
                Refused::Null => format!("the {wanted} is null; make it first"),
                Refused::Freed => format!("the {wanted} was freed; use no copy of a handle after its free"),
                Refused::Unknown => {
                    format!("the {wanted} {:#x} was not made by this library in this process", self.0)
                }
                Refused::Kind(kind) => format!("a {} was passed where a {wanted} is needed", name_of(kind)),
            },
        )
    }
}

/// An object that a call uses.
pub(crate) struct Pinned<K>(Pin<'static, Object>, PhantomData<fn(K)>);

impl<K: Kind> Deref for Pinned<K> {
    type Target = K;

    #[inline]
    fn deref(&self) -> &K {
        match self.0.get().and_then(K::of) {
            Some(value) => value,
            // `Handle::pin` has seen this kind, and a pinned object never changes.
            None => unreachable!("a pinned object of another kind"),
        }
    }
}
