//! Fields: memory with a layout, and the rules of access to it.

mod array;
mod memory;

pub use array::{Array, ReadGuard, WriteGuard};
pub(crate) use array::{element_of, is_element, layout_of};
pub(crate) use memory::{Blocked, Memory, OnDevice, State};

use crate::error::Error;
use halocline_comm::{Communicator, Segment};
use halocline_device::{Address, Device, MemorySpace, Place};
use halocline_plan::Layout;
use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// Memory with a layout: what a [`crate::HaloExchange`] binds. A clone is the same field.
///
/// ```
/// use halocline::{Communicator, Decomposed, ElementType, Field, HaloExchange, Layout, RegularGrid};
/// use std::{ptr::NonNull, sync::Arc};
///
/// let comm = Communicator::single();
/// let pattern = RegularGrid::new([4]).periodic([true]).decompose(1)?.pattern(&comm, 1)?;
///
/// // Memory of the program; `Field::allocate` takes memory of the library.
/// let mut cells = vec![0.0, 1.0, 2.0, 3.0, 4.0, 0.0_f64];
/// let base = NonNull::new(cells.as_mut_ptr()).expect("a vector has no null pointer");
/// let layout = Layout::c_order(ElementType::F64, &[6])?;
/// // SAFETY: the field holds the vector, and nothing else accesses its elements during an exchange.
/// let field = unsafe { Field::from_raw(base.cast(), layout, Arc::new(cells)) };
///
/// HaloExchange::bind(&comm, [(&pattern, &field)])?.exchange()?.wait()?;
/// // SAFETY: the exchange is over.
/// assert_eq!(unsafe { base.read() }, 4.0);
/// # Ok::<(), halocline::Error>(())
/// ```
#[derive(Clone)]
pub struct Field {
    pub(crate) memory: Arc<Memory>,
    pub(crate) layout: Layout,
    /// Byte offset of element (0, 0, …) in the memory's segment.
    pub(crate) offset: usize,
    pub(crate) domain: Option<u64>,
    pub(crate) number: Number,
}

/// Identifies a field and its clones among all fields of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Number(u64);

impl Number {
    pub(crate) fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// A weak reference to a field: it does not keep the memory.
///
/// ```
/// use halocline::{Array, Communicator};
///
/// let t = Array::<f64>::zeros(&Communicator::single(), &[4, 6])?;
/// let weak = t.downgrade();
/// assert_eq!(weak.upgrade().expect("`t` keeps it").memory(), t.memory());
/// drop(t);
/// assert!(weak.upgrade().is_none());
/// # Ok::<(), halocline::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct WeakField(Weak<Memory>, Layout, usize);

impl WeakField {
    /// The field, unless its memory was freed.
    pub fn upgrade(&self) -> Option<Field> {
        let Self(memory, layout, offset) = self;
        Some(Field {
            memory: memory.upgrade()?,
            layout: layout.clone(),
            offset: *offset,
            domain: None,
            number: Number::next(),
        })
    }
}

/// Fields of fewer bytes begin where their segment does: they are smaller than a way of the cache.
const SPREAD: usize = 1 << 14;

/// Bytes that a field leaves free at the start of its segment: each field starts on another cache line of the page. The step
/// is an odd number of lines, so that all lines take turns.
fn next_lead() -> usize {
    const LINE: usize = 64;
    const PAGE: usize = 4096;
    static FIELDS: AtomicUsize = AtomicUsize::new(0);
    FIELDS.fetch_add(1, Ordering::Relaxed) * 9 * LINE % PAGE
}

impl fmt::Debug for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Field({} {:?})", self.layout.element(), self.layout.extents())
    }
}

impl Field {
    /// A field in memory that the library does not own. Ranks of the same process access such memory directly; others use
    /// a mailbox.
    ///
    /// # Safety
    /// `base` is the address of element (0, 0, …). All bytes of [`Layout::span`] around it must stay
    /// valid for reads and writes while `keepalive` is held. From the begin of an exchange until its wait
    /// has returned without an error, or [`crate::HaloExchange::reclaim`] has returned true, only the exchange may write
    /// owned cells or access halo cells. Halo cells may receive any bytes, whatever the element
    /// type of the layout: no `bool`, `char` or enum may lie there ([`crate::Element`] has the rule).
    pub unsafe fn from_raw(base: NonNull<u8>, layout: Layout, keepalive: Arc<dyn Any + Send + Sync>) -> Self {
        let span = layout.span();
        // SAFETY: the caller promises that all bytes of the span around `base` are valid while `keepalive` is held; the
        // first of them lies at a valid address, which is not null.
        let segment = unsafe {
            let low = NonNull::new_unchecked(base.as_ptr().wrapping_offset(span.start));
            Segment::foreign(low, (span.end - span.start) as usize, keepalive)
        };
        Self {
            memory: Memory::new(segment),
            layout,
            offset: span.start.unsigned_abs(),
            domain: None,
            number: Number::next(),
        }
    }

    /// A field in device memory that the library does not own: an array of another library, for example.
    ///
    /// Fails if `base` is not in memory of `device`, or if the layout exceeds the allocation. A layout without
    /// elements may have any address, 0 included. The memory must not move: the next exchange reports that as
    /// [`Error::MemoryMoved`].
    ///
    /// # Safety
    /// `base` is the address of element (0, 0, …), and its memory stays valid while `keepalive` is held. Work on
    /// owned and halo cells is ordered with the exchanges of the field by streams: see
    /// [`crate::HaloExchange::schedule_exchange`].
    pub unsafe fn from_device(
        device: &Device,
        base: Address,
        layout: Layout,
        keepalive: Arc<dyn Any + Send + Sync>,
    ) -> Result<Self, Error> {
        let span = layout.span();
        let bytes = (span.end - span.start) as usize;
        let first = base.wrapping_add_signed(span.start as i64);
        let place = match bytes {
            0 => Place { space: device.space(), id: 0, base, bytes },
            _ => {
                let place = device.place_of(base)?;
                let before = first.checked_sub(place.base).filter(|_| place.space == device.space());
                if before.is_none_or(|before| before + bytes as u64 > place.bytes as u64) {
                    return Err(Error::OutsideMemory { device: device.ordinal(), base, bytes, place });
                }
                // Virtual memory has an identity for each physical one that lies in it.
                Place { id: device.place_of(first)?.id, ..place }
            }
        };
        let home = OnDevice::new(device.clone(), place, true);
        let memory = Memory::on_device(home, (first, bytes), keepalive);
        Ok(Self { memory, layout, offset: span.start.unsigned_abs(), domain: None, number: Number::next() })
    }

    /// Another field in the memory of this one, with element (0, 0, …) at `base`: a part of it, or all of it with another
    /// layout. Both are in flight together, and a bind knows which bytes they share.
    ///
    /// Fails if the layout leaves the memory.
    pub fn view(&self, base: NonNull<u8>, layout: Layout) -> Result<Self, Error> {
        let segment = &self.memory.segment;
        let (first, bytes) = (segment.base().addr().get(), segment.len());
        let span = layout.span();
        let offset = base.addr().get().checked_sub(first);
        let low = base.addr().get().wrapping_add_signed(span.start).checked_sub(first);
        match (offset, low) {
            (Some(offset), Some(low))
                if low.checked_add(span.len()).is_some_and(|end| end <= bytes) && offset <= bytes =>
            {
                Ok(Self {
                    memory: Arc::clone(&self.memory),
                    layout,
                    offset,
                    domain: None,
                    number: Number::next(),
                })
            }
            _ => Err(Error::ViewOutside { bytes: span.len(), memory: bytes }),
        }
    }

    /// Declares, once, the fields of other memories that share bytes with this one: parts of one buffer that became fields of
    /// their own before. An exchange of this field, or of a view of it, is then refused while one of those is in flight, and
    /// vice versa. Without this call the caller must avoid such exchanges.
    pub fn overlapping(self, others: &[Field]) -> Self {
        if !others.is_empty() {
            let states = others.iter().map(|other| Arc::clone(&other.memory.state));
            // A second call changes nothing: other threads may use the first list already.
            let _ = self.memory.overlapping.set(states.collect());
        }
        self
    }

    /// The addresses of its memory, which other fields may share.
    pub fn memory(&self) -> Range<usize> {
        let first = self.memory.segment.base().addr().get();
        first..first + self.memory.segment.len()
    }

    /// A weak reference to it, for caches.
    pub fn downgrade(&self) -> WeakField {
        WeakField(Arc::downgrade(&self.memory), self.layout.clone(), self.offset)
    }

    /// The memory space that it lies in.
    pub fn space(&self) -> MemorySpace {
        self.memory.device.as_ref().map_or(MemorySpace::Host, |home| home.device.space())
    }

    /// Allocates zeroed memory for `layout` where as many peers as possible can access it. Its lowest byte lies at the start of
    /// a cache line. That line differs from field to field within the page, so that the same cells of several fields
    /// do not compete for the same cache sets.
    pub fn allocate(comm: &Communicator, layout: Layout) -> Result<Self, Error> {
        let span = layout.span();
        let bytes = (span.end - span.start) as usize;
        let lead = if bytes < SPREAD { 0 } else { next_lead() };
        let segment = comm.allocate(lead + bytes)?;
        let offset = lead + span.start.unsigned_abs();
        Ok(Self { memory: Memory::new(segment), layout, offset, domain: None, number: Number::next() })
    }

    /// The same field, assigned to domain `id`: needed where a rank owns several domains.
    pub fn on_domain(&self, id: u64) -> Self {
        Self { domain: Some(id), number: Number::next(), ..self.clone() }
    }

    /// The layout.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Address of element (0, 0, …). Valid as long as the field, a clone of it or a bound object lives; for the
    /// device only, if it is device memory.
    /// Owned cells may be read through it at any time; for all other access see [`Field::from_raw`].
    pub fn base(&self) -> NonNull<u8> {
        let base = self.memory.segment.base().as_ptr().wrapping_add(self.offset);
        // SAFETY: every constructor of a field makes `offset` lie within the segment or at its end, so that the address
        // is not null.
        unsafe { NonNull::new_unchecked(base) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use halocline_plan::ElementType;
    use std::collections::HashSet;

    #[test]
    fn a_view_lies_in_the_memory_of_its_field_and_keeps_it() -> Result<(), Error> {
        let comm = Communicator::single();
        let whole = Array::<f64>::zeros(&comm, &[4, 6])?;
        whole.write()?.copy_from_slice(&(0..24).map(f64::from).collect::<Vec<_>>());
        // The last three columns, from right to left.
        let layout = Layout::strided(ElementType::F64, &[4, 3], &[48, -8])?;
        let at = |element: usize| whole.base().map_addr(|a| a.saturating_add(8 * element));
        let part = whole.view(at(5), layout.clone())?;
        assert_eq!(part.memory(), whole.memory());
        for (base, wrong) in
            [(at(1), &layout), (at(6), &layout), (at(0), &Layout::c_order(ElementType::F64, &[25])?)]
        {
            assert!(matches!(whole.view(base, wrong.clone()), Err(Error::ViewOutside { .. })), "{base:?}");
        }
        let weak = whole.downgrade();
        drop(whole);
        assert!(weak.upgrade().is_some(), "a view holds the memory");
        drop(part);
        assert!(weak.upgrade().is_none());
        Ok(())
    }

    #[test]
    fn fields_of_one_shape_begin_on_different_cache_lines_of_a_page() -> Result<(), Error> {
        let comm = Communicator::single();
        let arrays: Vec<Array<f64>> =
            (0..8).map(|_| Array::zeros(&comm, &[64, 64])).collect::<Result<_, _>>()?;
        let lines: HashSet<usize> = arrays.iter().map(|a| a.base().addr().get() % 4096).collect();
        // Tests that run beside this one take lines, too, but not the same ones again within so few.
        assert!(lines.len() == arrays.len() && lines.iter().all(|line| line % 64 == 0), "{lines:?}");
        for (number, array) in arrays.iter().enumerate() {
            array.write()?.fill(number as f64);
        }
        for (number, array) in arrays.iter().enumerate() {
            let elements = array.read()?;
            assert!(elements.len() == 64 * 64 && elements.iter().all(|&element| element == number as f64));
        }
        Ok(())
    }
}
