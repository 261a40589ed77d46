//! The domain of unstructured cells whose ids and owners lie in memory of a device.

use super::{IndexLists, Limits, List, check_positions, checked_ranks};
use crate::device_array::DeviceArray;
use crate::error::{Error, IndexListError};
use crate::field::Field;
use halocline_comm::Communicator;
use halocline_device::{Finds, MemorySpace, Stream};
use halocline_plan::{ElementType, Layout, UnstructuredDomain};

impl IndexLists {
    /// The domain number `number` of rank `rank` among `size` ranks, for [`crate::Pattern::unstructured`]: `ids` has the global id of each
    /// cell in local order, owned and halo, and `owners` the rank that owns it. Of device arrays the host gets the ids, and the number and
    /// the positions of the halo cells; the owners stay on the device. Blocks until the host has them. It
    /// uses the memory of lists: [`IndexLists::counts`] is empty afterwards.
    ///
    /// Fails as [`IndexLists::owned`] and [`IndexLists::counts`] do, and with [`Error::IndexList`] for arrays of different lengths and for
    /// negative ids.
    ///
    /// ```
    /// use halocline::{Array, Communicator, IndexLists, Pattern};
    ///
    /// let comm = Communicator::single();
    /// let (ids, owners) = (Array::<i64>::zeros(&comm, &[3])?, Array::<i32>::zeros(&comm, &[3])?);
    /// ids.write()?.copy_from_slice(&[7, 5, 6]);
    /// let domain = IndexLists::new().domain(0, comm.rank(), comm.size(), &ids, &owners, None)?;
    /// assert_eq!(domain.cells(), [7, 5, 6]);
    /// let pattern = Pattern::unstructured(&comm, &[domain])?;
    /// # Ok::<(), halocline::Error>(())
    /// ```
    pub fn domain(
        &mut self,
        number: u64,
        rank: usize,
        size: usize,
        ids: &Field,
        owners: &Field,
        stream: Option<&Stream>,
    ) -> Result<UnstructuredDomain, Error> {
        let (ids, owners) = (List::new("ids", ids)?, List::new("owners", owners)?);
        if ids.len != owners.len {
            return Err(IndexListError::Lengths { ids: ids.len, owners: owners.len }.into());
        }
        ids.check_beside(&owners)?;
        check_positions(ids.len, ElementType::U32)?;
        checked_ranks(&[rank], size)?;
        let halo = self.halo_positions(&owners, (rank, size), stream);
        // Its counts are none of a list of the program.
        self.last = None;
        let halo = halo?;
        let cells = cells_of(&ids, stream)?;
        let halo: Vec<usize> = halo.into_iter().map(|position| position as usize).collect();
        Ok(UnstructuredDomain::from_indices(number, cells, &halo))
    }

    /// The positions of the cells that other ranks own.
    fn halo_positions(
        &mut self,
        owners: &List<'_>,
        of: (usize, usize),
        stream: Option<&Stream>,
    ) -> Result<Vec<u32>, Error> {
        // The first pass counts, so that the list has no more memory than it needs.
        let count = self.halo(owners, of, 0, stream)?.0;
        if count == 0 {
            return Ok(Vec::new());
        }
        let (again, mut positions) = self.halo(owners, of, count, stream)?;
        positions.truncate(again);
        Ok(positions)
    }

    /// The number of cells that other ranks own, and the positions of so many of them.
    fn halo(
        &mut self,
        owners: &List<'_>,
        (rank, size): (usize, usize),
        capacity: usize,
        stream: Option<&Stream>,
    ) -> Result<(usize, Vec<u32>), Error> {
        let finds = Finds::Halo { rank: rank as u32, size: owners.ranks(size), index: ElementType::U32 };
        let limits = Limits { capacity: usize::MAX, size, key: owners.element };
        let bytes = match owners.device().zip(stream) {
            Some((device, stream)) => {
                let positions = DeviceArray::<u32>::zeros(device, &[capacity])?;
                self.begin(owners, finds, &List::new("indices", &positions)?, limits, Some(stream))?;
                self.counts()?;
                bytes_of(&positions, Some(stream))?
            }
            None => {
                let layout = Layout::c_order(ElementType::U32, &[capacity])?;
                let positions = Field::allocate(&Communicator::single(), layout)?;
                self.begin(owners, finds, &List::new("indices", &positions)?, limits, stream)?;
                bytes_of(&positions, None)?
            }
        };
        let positions = bytes.as_chunks().0.iter().map(|position| u32::from_ne_bytes(*position));
        Ok((self.counts()?[0], positions.collect()))
    }
}

/// The bytes of a list on the host.
fn bytes_of(field: &Field, stream: Option<&Stream>) -> Result<Vec<u8>, Error> {
    let mut bytes = vec![0; field.layout().span().len()];
    match stream.filter(|_| field.space() != MemorySpace::Host) {
        Some(stream) => field.read_bytes(stream, &mut bytes)?,
        None => {
            let _guard = field.memory.state.guarded(false)?;
            // SAFETY: the field has so many bytes without gaps from its base on. The guard excludes exchanges and guards that write them; for
            // memory that the library does not own, the rules of `Field::from_raw` do.
            let from = unsafe { std::slice::from_raw_parts(field.base().as_ptr(), bytes.len()) };
            bytes.copy_from_slice(from);
        }
    }
    Ok(bytes)
}

/// The ids of a list, which must not be negative.
fn cells_of(ids: &List<'_>, stream: Option<&Stream>) -> Result<Vec<u64>, Error> {
    let bytes = bytes_of(ids.field, stream)?;
    let signed = |ids: &mut dyn Iterator<Item = i64>| {
        let id = |(cell, id): (usize, i64)| {
            u64::try_from(id).map_err(|_| Error::from(IndexListError::Id { cell, id }))
        };
        ids.enumerate().map(id).collect::<Result<Vec<u64>, Error>>()
    };
    let (of_4, of_8) = (bytes.as_chunks().0.iter(), bytes.as_chunks().0.iter());
    match ids.element {
        ElementType::I32 => signed(&mut of_4.map(|id| i32::from_ne_bytes(*id).into())),
        ElementType::I64 => signed(&mut of_8.map(|id| i64::from_ne_bytes(*id))),
        ElementType::U32 => Ok(of_4.map(|id| u32::from_ne_bytes(*id).into()).collect()),
        _ => Ok(of_8.map(|id| u64::from_ne_bytes(*id)).collect()),
    }
}
