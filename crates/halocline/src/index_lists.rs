//! Index lists: which cells each rank owns, and the unique ids of an array, on the host or in the order of a stream.

mod domain;
mod scratch;

use crate::error::{Error, IndexListError};
use crate::field::Field;
use halocline_device::{Address, Device, Finds, Found, ListSpec, MemorySpace, Stream, host};
use halocline_plan::ElementType;
use scratch::Scratch;
use std::fmt;

/// Makes index lists: the cells that ranks own, from an array of owners; the sorted unique ids of an array. Arrays lie all in host memory,
/// or all in memory of one device. The results stay there; only counts come to the host.
///
/// An object makes one list at a time, with memory that it keeps for the next one. Begins ([`IndexLists::owned`], [`IndexLists::unique`])
/// of device arrays run after all earlier work of the stream, and the host does not wait. Exceptions are the first list of an object, for
/// which kernels are loaded and, once, compiled, and a list that needs more memory than those before. Later work of that stream sees the
/// list.
/// [`IndexLists::counts`] and [`IndexLists::domain`] block. Dropping never blocks.
///
/// ```
/// use halocline::device::{Priority, sim};
/// use halocline::{DeviceArray, IndexLists};
///
/// // A simulated device; `device::cuda::device(0)?` opens a GPU.
/// let world = sim::World::live(0, &sim::Options::default()).expect("a thread");
/// let device = world.world().device(0)?;
/// let stream = device.stream(Priority::Normal)?;
///
/// let owners = DeviceArray::<i32>::zeros(&device, &[6])?;
/// owners.write(&stream, &[2, 0, 1, 0, 2, 2])?;
/// let cells = DeviceArray::<u32>::zeros(&device, &[6])?;
/// let mut lists = IndexLists::new();
/// lists.owned(&owners, 3, &[0, 2], &cells, Some(&stream))?;
/// assert_eq!(lists.counts()?, [2, 3]); // waits for the list
/// assert_eq!(cells.read(&stream)?[..5], [1, 3, 0, 4, 5]);
///
/// let ids = DeviceArray::<i32>::zeros(&device, &[6])?;
/// lists.unique(&owners, &ids, Some(&stream))?;
/// assert_eq!(lists.counts()?, [3]);
/// assert_eq!(ids.read(&stream)?[..3], [0, 1, 2]);
/// # Ok::<(), halocline::Error>(())
/// ```
#[derive(Default)]
pub struct IndexLists {
    last: Option<Last>,
    scratch: Option<Scratch>,
}

/// The last list.
struct Last {
    limits: Limits,
    /// None: its counts are in the scratch.
    found: Option<Found>,
}

/// What a list must keep to.
#[derive(Debug, Clone, Copy)]
struct Limits {
    capacity: usize,
    /// The number of ranks.
    size: usize,
    key: ElementType,
}

impl fmt::Debug for IndexLists {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IndexLists({})", if self.last.is_some() { "of a list" } else { "of none" })
    }
}

/// A list without gaps, with its name among the arguments.
#[derive(Clone, Copy)]
struct List<'a> {
    name: &'static str,
    field: &'a Field,
    element: ElementType,
    len: usize,
}

impl<'a> List<'a> {
    fn new(name: &'static str, field: &'a Field) -> Result<Self, IndexListError> {
        let (layout, element) = (field.layout(), field.layout().element());
        let (extents, strides) = (layout.extents(), layout.strides());
        let &[len] = extents else {
            let (extents, strides) = (extents.to_vec(), strides.to_vec());
            return Err(IndexListError::Shape { array: name, extents, strides });
        };
        if len > 1 && strides != [element.size() as isize] {
            let (extents, strides) = (extents.to_vec(), strides.to_vec());
            return Err(IndexListError::Shape { array: name, extents, strides });
        }
        match element {
            ElementType::I32 | ElementType::U32 | ElementType::I64 | ElementType::U64 => {}
            element => return Err(IndexListError::Element { array: name, element }),
        }
        Ok(Self { name, field, element, len })
    }

    /// 0 if it has no bytes: then its base may be any number.
    fn address(&self) -> Address {
        if self.len == 0 { 0 } else { self.field.base().addr().get() as Address }
    }

    fn bytes(&self) -> usize {
        self.len * self.element.size()
    }

    fn device(&self) -> Option<&'a Device> {
        self.field.memory.device.as_ref().map(|home| &home.device)
    }

    /// Whether both lie in one memory, and share no bytes.
    fn check_beside(&self, other: &List<'_>) -> Result<(), IndexListError> {
        let (space, other_space) = (self.field.space(), other.field.space());
        let (array, other_name) = (self.name, other.name);
        if self.device() != other.device() {
            return Err(IndexListError::Space { array, space, other: other_name, other_space });
        }
        let range = |list: &List<'_>| (list.address(), list.address() + list.bytes() as Address);
        let ((first, end), (other_first, other_end)) = (range(self), range(other));
        match first < other_end && other_first < end {
            true => Err(IndexListError::Overlap { array, other: other_name }),
            false => Ok(()),
        }
    }
}

impl List<'_> {
    /// The ranks, of so many, that elements of this type can name: those below the number returned.
    fn ranks(&self, size: usize) -> u64 {
        // Kernels take elements as numbers without sign.
        let most = if self.element == ElementType::I32 { 1 << 31 } else { u64::MAX };
        most.min(size as u64)
    }
}

impl IndexLists {
    /// Without memory.
    pub fn new() -> Self {
        Self::default()
    }

    /// Stores the positions of the cells that each of `ranks` owns, rank after rank, each rank's in ascending order. `owners` has the rank of
    /// each cell: 32-bit or 64-bit integers below `size`, the number of ranks. `ranks` ascend; there may be none. `indices` (32-bit or 64-bit
    /// integers) takes as many positions as fit. The elements behind the list stay as they are. `stream`: of the device of the arrays; not
    /// used for arrays of the host, whose list is complete when the call returns.
    ///
    /// [`IndexLists::counts`] returns the number of cells of each rank. It fails with [`IndexListError::Owner`] if a cell's owner is no rank,
    /// and with [`IndexListError::Capacity`] if the list was longer than `indices`.
    ///
    /// Fails with [`Error::IndexList`] for other arrays or ranks and for a stream under capture, with [`Error::StreamDevice`] for a stream of
    /// another device, with [`Error::Array`] while an exchange or a guard of a host array excludes the access, and with [`Error::Device`].
    pub fn owned(
        &mut self,
        owners: &Field,
        size: usize,
        ranks: &[usize],
        indices: &Field,
        stream: Option<&Stream>,
    ) -> Result<(), Error> {
        let (owners, indices) = (List::new("owners", owners)?, List::new("indices", indices)?);
        let ranks = checked_ranks(ranks, size)?;
        check_positions(owners.len, indices.element)?;
        let finds = Finds::Owned { ranks: &ranks, size: owners.ranks(size), index: indices.element };
        let limits = Limits { capacity: indices.len, size, key: owners.element };
        self.begin(&owners, finds, &indices, limits, stream)
    }

    /// Stores the ids that occur in `ids`, each once, in ascending order. `unique` has elements of the same type (32-bit or 64-bit integers)
    /// and takes as many as fit; [`IndexLists::counts`] returns their number. Arrays, streams and errors are those of [`IndexLists::owned`].
    /// For device arrays the object keeps memory of twice the bytes of `ids`.
    pub fn unique(&mut self, ids: &Field, unique: &Field, stream: Option<&Stream>) -> Result<(), Error> {
        let (ids, unique) = (List::new("ids", ids)?, List::new("unique", unique)?);
        if ids.element != unique.element {
            return Err(IndexListError::Types { unique: unique.element, ids: ids.element }.into());
        }
        let limits = Limits { capacity: unique.len, size: 0, key: ids.element };
        self.begin(&ids, Finds::Unique, &unique, limits, stream)
    }

    /// The number of elements of each part of the last list: one for each rank of [`IndexLists::owned`], one of [`IndexLists::unique`].
    /// Empty before the first list. Blocks until the device has made the list.
    ///
    /// Fails with [`IndexListError::Owner`] and [`IndexListError::Capacity`] for a list that is not complete, and with [`Error::Device`].
    pub fn counts(&self) -> Result<Vec<usize>, Error> {
        let Some(Last { limits, found }) = &self.last else { return Ok(Vec::new()) };
        let found = match (found, &self.scratch) {
            (Some(found), _) => found.clone(),
            (None, Some(scratch)) => scratch.found()?,
            (None, None) => return Ok(Vec::new()),
        };
        limits.check(&found)?;
        Ok(found.counts.iter().map(|&count| count as usize).collect())
    }

    fn begin(
        &mut self,
        keys: &List<'_>,
        finds: Finds<'_>,
        target: &List<'_>,
        limits: Limits,
        stream: Option<&Stream>,
    ) -> Result<(), Error> {
        keys.check_beside(target)?;
        let found = match (keys.device(), stream) {
            (None, _) => Some(on_host(keys, finds, target)?),
            (Some(device), None) => {
                return Err(IndexListError::NoStream { device: device.ordinal() }.into());
            }
            (Some(device), Some(stream)) => {
                check_stream(stream, device)?;
                let spec = ListSpec {
                    keys: keys.address(),
                    key: keys.element,
                    count: keys.len as u64,
                    finds,
                    target: target.address(),
                    capacity: target.len as u64,
                    scratch: 0,
                };
                // A list that begins here replaces the last one, also if it fails.
                self.last = None;
                scratch::begin(&mut self.scratch, (device, stream), spec, [keys.field, target.field])?;
                None
            }
        };
        self.last = Some(Last { limits, found });
        Ok(())
    }
}

impl Limits {
    fn check(&self, found: &Found) -> Result<(), IndexListError> {
        if let Some((cell, owner)) = found.bad {
            let owner = match self.key {
                ElementType::I32 => i128::from(owner as u32 as i32),
                ElementType::I64 => i128::from(owner as i64),
                _ => i128::from(owner),
            };
            return Err(IndexListError::Owner { cell, owner, size: self.size });
        }
        match found.counts.iter().sum::<u64>() as usize {
            found if found > self.capacity => {
                Err(IndexListError::Capacity { found, capacity: self.capacity })
            }
            _ => Ok(()),
        }
    }
}

/// Ranks that ascend and are below `size`.
fn checked_ranks(ranks: &[usize], size: usize) -> Result<Vec<u32>, IndexListError> {
    if size as u64 > u64::from(u32::MAX) {
        return Err(IndexListError::Size { size });
    }
    for (position, &rank) in ranks.iter().enumerate() {
        if rank >= size {
            return Err(IndexListError::Rank { position, rank, size });
        }
        match position.checked_sub(1).map(|before| ranks[before]) {
            Some(before) if before >= rank => return Err(IndexListError::Order { position, rank, before }),
            _ => {}
        }
    }
    Ok(ranks.iter().map(|&rank| rank as u32).collect())
}

/// Whether positions of so many cells fit into the elements of a list.
fn check_positions(cells: usize, index: ElementType) -> Result<(), IndexListError> {
    let most = match index {
        ElementType::I32 => 1 << 31,
        ElementType::U32 => 1 << 32,
        _ => u64::MAX,
    };
    if cells as u64 > most { Err(IndexListError::TooMany { cells, index }) } else { Ok(()) }
}

fn check_stream(stream: &Stream, device: &Device) -> Result<(), Error> {
    if stream.device() != device {
        let (given, own) = (stream.device().ordinal(), device.ordinal());
        return Err(Error::StreamDevice { stream: 0, device: given, devices: vec![own] });
    }
    match stream.capture()? {
        Some(_) => Err(IndexListError::Captured.into()),
        None => Ok(()),
    }
}

fn on_host(keys: &List<'_>, finds: Finds<'_>, target: &List<'_>) -> Result<Found, Error> {
    debug_assert_eq!(keys.field.space(), MemorySpace::Host);
    let (from, to) = (&keys.field.memory.state, &target.field.memory.state);
    let _written = to.guarded(true)?;
    // Both may be parts of one array, which the first guard covers.
    let _read = (!std::sync::Arc::ptr_eq(from, to)).then(|| from.guarded(false)).transpose()?;
    // SAFETY: the field has so many bytes without gaps from its base on. The guard excludes exchanges and guards that write them; for memory
    // that the library does not own, the rules of `Field::from_raw` do. All bytes are initialised.
    let given = unsafe { std::slice::from_raw_parts(keys.field.base().as_ptr(), keys.bytes()) };
    // SAFETY: the field has so many bytes without gaps from its base on, which `check_beside` has found apart from those of the keys. The
    // guard excludes all other guards and exchanges; for memory that the library does not own, the rules of `Field::from_raw` do.
    let place = unsafe { std::slice::from_raw_parts_mut(target.field.base().as_ptr(), target.bytes()) };
    Ok(host::find_list(given, keys.element, &finds, place))
}
