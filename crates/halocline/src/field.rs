//! Fields: memory with a layout, and who may touch it when.

use crate::error::Error;
use crate::stream::Scheduled;
use halocline_comm::{Communicator, Segment};
use halocline_device::{Address, Device, Element, MemorySpace, Place};
use halocline_plan::Layout;
use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

/// Memory that fields lie in, and its borrow state.
pub(crate) struct Memory {
    pub(crate) segment: Arc<Segment>,
    /// The device that it is memory of; then the addresses of the segment are the device's.
    pub(crate) device: Option<OnDevice>,
    pub(crate) state: Arc<State>,
    /// The states of memories that were there before, and have some of the same bytes: who takes this one takes those, too.
    met: OnceLock<Box<[Arc<State>]>>,
}

/// Who uses some memory.
#[derive(Default)]
pub(crate) struct State {
    /// Exchanges in flight (upper half, one at most) and guards (lower half, with a mark for a writing one); the two exclude each other.
    users: AtomicU64,
    /// Guards of owned cells, which are made while an exchange is in flight, and exclude the next one and writing guards.
    of_owned: AtomicU64,
}

/// Memory of a device.
pub(crate) struct OnDevice {
    pub(crate) device: Device,
    /// The allocation that it lies in, by the identity that its first byte has.
    pub(crate) place: Place,
    /// It is not the library's own: it may go behind our back.
    pub(crate) foreign: bool,
    /// The objects that exchange it, some of them gone.
    pub(crate) users: Mutex<Vec<Weak<Scheduled>>>,
}

impl OnDevice {
    pub(crate) fn new(device: Device, place: Place, foreign: bool) -> Self {
        Self { device, place, foreign, users: Mutex::default() }
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Memory({:?})", self.segment)
    }
}

/// What keeps an exchange from beginning.
pub(crate) enum Blocked {
    /// Another object's exchange of the same memory.
    InFlight,
    /// A guard.
    Borrowed,
}

impl Blocked {
    /// The error of an exchange of the field with this number.
    pub(crate) fn error(self, field: usize) -> Error {
        match self {
            Self::InFlight => Error::Shared { field },
            Self::Borrowed => Error::Borrowed { field },
        }
    }
}

const FLIGHT: u64 = 1 << 32;
const WRITER: u64 = 1 << 31;
const GUARDS: u64 = FLIGHT - 1;

impl Memory {
    pub(crate) fn new(segment: Arc<Segment>) -> Arc<Self> {
        Arc::new(Self { segment, device: None, state: Arc::default(), met: OnceLock::new() })
    }

    /// Memory of a device: `bytes` from `base`.
    pub(crate) fn on_device(
        device: OnDevice,
        (base, bytes): (Address, usize),
        keepalive: Arc<dyn Any + Send + Sync>,
    ) -> Arc<Self> {
        // An address of a device is never followed on the host. One that is 0 has no byte.
        let base =
            NonNull::new(std::ptr::without_provenance_mut(base as usize)).unwrap_or(NonNull::dangling());
        // SAFETY: the memory is the device's, whose driver gave it or whose owner says so, and `keepalive` keeps it
        // valid. Only devices follow this address.
        let segment = unsafe { Segment::foreign(base, bytes, keepalive) };
        Arc::new(Self { segment, device: Some(device), state: Arc::default(), met: OnceLock::new() })
    }

    /// From now on an object exchanges it, if it is memory of a device.
    pub(crate) fn add_user(&self, user: &Arc<Scheduled>) {
        if let Some(home) = &self.device {
            let mut users = home.users.lock().unwrap_or_else(PoisonError::into_inner);
            users.retain(|user| user.strong_count() > 0);
            users.push(Arc::downgrade(user));
        }
    }

    /// The states of other memories with some of its bytes that an exchange of it takes, too.
    #[inline]
    pub(crate) fn met(&self) -> &[Arc<State>] {
        self.met.get().map_or(&[], |met| met)
    }
}

impl State {
    /// Notes an exchange in flight. Not while a guard is held, and not twice: two objects would write
    /// the same cells, or one write what the other sends.
    pub(crate) fn begin_flight(&self) -> Result<(), Blocked> {
        match self.users.compare_exchange(0, FLIGHT, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) if self.is_shown() => {
                self.end_flight();
                Err(Blocked::Borrowed)
            }
            Ok(_) => Ok(()),
            Err(state) if state >= FLIGHT => Err(Blocked::InFlight),
            Err(_) => Err(Blocked::Borrowed),
        }
    }

    /// Takes back a [`State::begin_flight`], since which nobody else could change the users.
    pub(crate) fn end_flight(&self) {
        self.users.store(0, Ordering::Release);
    }

    /// Notes a guard of owned cells. An exchange has the memory in flight and holds it meanwhile: what the end of that lets in comes later
    /// than this, and finds it.
    pub(crate) fn show_owned(&self) {
        self.of_owned.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes back a [`State::show_owned`].
    pub(crate) fn hide_owned(&self) {
        self.of_owned.fetch_sub(1, Ordering::Release);
    }

    /// Whether somebody holds a guard of owned cells. To be asked after `users` has let the caller in.
    fn is_shown(&self) -> bool {
        self.of_owned.load(Ordering::Acquire) != 0
    }

    /// Whether somebody holds a guard.
    pub(crate) fn is_guarded(&self) -> bool {
        self.users.load(Ordering::Acquire) & GUARDS != 0
    }

    /// Guards memory of a device, whose exchanges in flight are not counted here. To be given to [`State::unguard`].
    pub(crate) fn guard_copy(&self, writes: bool) -> Result<u64, Error> {
        let (add, blocked_by) = if writes { (WRITER, !0) } else { (1, WRITER) };
        self.guard(add, blocked_by).map(|()| add)
    }

    fn guard(&self, add: u64, blocked_by: u64) -> Result<(), Error> {
        let take = |state| (state & blocked_by == 0).then_some(state + add);
        match self.users.fetch_update(Ordering::Acquire, Ordering::Relaxed, take) {
            Ok(_) if add == WRITER && self.is_shown() => {
                self.unguard(add);
                Err(Error::ArrayBorrowed)
            }
            Ok(_) => Ok(()),
            Err(state) if state >= FLIGHT => Err(Error::ArrayInFlight),
            Err(_) => Err(Error::ArrayBorrowed),
        }
    }

    /// Takes back a guard that has added so much.
    pub(crate) fn unguard(&self, add: u64) {
        self.users.fetch_sub(add, Ordering::Release);
    }
}

/// Memory with a layout: what a [`crate::HaloExchange`] binds. A clone is the same field.
#[derive(Clone)]
pub struct Field {
    pub(crate) memory: Arc<Memory>,
    pub(crate) layout: Layout,
    /// Byte offset of element (0, 0, …) in the memory's segment.
    pub(crate) offset: usize,
    pub(crate) domain: Option<u64>,
    pub(crate) number: Number,
}

/// Tells fields that are clones of each other from all others, of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Number(u64);

impl Number {
    pub(crate) fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// A field that keeps no memory.
#[derive(Debug, Clone)]
pub struct WeakField(Weak<Memory>, Layout, usize);

impl WeakField {
    /// The field, unless nobody holds its memory any more.
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

/// Fields of fewer bytes begin where their segment does: they share no cache set with themselves.
const SPREAD: usize = 1 << 14;

/// Bytes that a field leaves free at the begin of its segment: another cache line of the page each time, an
/// odd number of them further, so that all are met in turn.
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
    /// A field in memory that the library does not own. Such memory is reached directly by ranks of
    /// the same process; others take a mailbox.
    ///
    /// # Safety
    /// `base` is the address of element (0, 0, …). All bytes of [`Layout::span`] around it must stay
    /// valid for reads and writes while `keepalive` is held. From an exchange's begin until its wait
    /// has returned without an error, or [`crate::HaloExchange::reclaim`] has said true, nobody may write
    /// owned cells or touch halo cells, except the exchange. Halo cells may get any bytes, whatever the element
    /// type of the layout: no `bool`, `char` or enum may lie there ([`Element`] has the rule).
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

    /// A field in memory of a device that the library does not own: an array of another library, say.
    ///
    /// Fails if `base` is no memory of `device`, or the layout goes beyond the allocation. A layout without
    /// elements may be anywhere, also at address 0. The
    /// memory must not move: that is noticed at the next exchange, as [`Error::MemoryMoved`].
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

    /// Another field in the memory of this one, with element (0, 0, …) at `base`: a part of it, or all of it seen
    /// otherwise. An exchange of either is one of both, and what they share is known to be the same.
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
            _ => Err(Error::Bind(format!(
                "the {} bytes of a view are not within the {bytes} bytes of its field's memory",
                span.len()
            ))),
        }
    }

    /// Says, once, which fields of other memories have some of the bytes of this one's, where that is known: parts of one buffer
    /// that were made fields on their own before. An exchange of this field, or of a view of it, is then refused while one of
    /// those is in flight, and the other way round. Without it that is for their owner to see to.
    pub fn meeting(self, others: &[Field]) -> Self {
        if !others.is_empty() {
            let states = others.iter().map(|other| Arc::clone(&other.memory.state));
            // A second time changes nothing: others may have taken what was said first.
            let _ = self.memory.met.set(states.collect());
        }
        self
    }

    /// The addresses of the memory that it lies in, of which other fields may have parts, too.
    pub fn memory(&self) -> Range<usize> {
        let first = self.memory.segment.base().addr().get();
        first..first + self.memory.segment.len()
    }

    /// Its memory, without keeping it: for those who want to find again what is there still.
    pub fn downgrade(&self) -> WeakField {
        WeakField(Arc::downgrade(&self.memory), self.layout.clone(), self.offset)
    }

    /// Where its memory lies.
    pub fn space(&self) -> MemorySpace {
        self.memory.device.as_ref().map_or(MemorySpace::Host, |home| home.device.space())
    }

    /// Memory of the library's own for `layout`, zeroed, where as many peers as possible can reach it.
    /// Its lowest byte lies on a cache line; on which one of a page differs from field to field, so that
    /// the same cells of several fields do not compete for the same sets of the caches.
    pub fn allocate(comm: &Communicator, layout: Layout) -> Result<Self, Error> {
        let span = layout.span();
        let bytes = (span.end - span.start) as usize;
        let lead = if bytes < SPREAD { 0 } else { next_lead() };
        let segment = comm.allocate(lead + bytes)?;
        let offset = lead + span.start.unsigned_abs();
        Ok(Self { memory: Memory::new(segment), layout, offset, domain: None, number: Number::next() })
    }

    /// The same field as a field of domain `id`: needed where a rank owns several domains.
    pub fn on_domain(&self, id: u64) -> Self {
        Self { domain: Some(id), number: Number::next(), ..self.clone() }
    }

    /// The layout.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Address of element (0, 0, …). Valid as long as the field, a clone of it or a bound object lives; for the
    /// device alone, if it is memory of a device.
    /// Reading owned cells through it is fine at any time; for all else see [`Field::from_raw`].
    pub fn base(&self) -> NonNull<u8> {
        let base = self.memory.segment.base().as_ptr().wrapping_add(self.offset);
        // SAFETY: `offset` lies within the segment, or at its end, as every constructor of a field sees to. So the
        // address is not null.
        unsafe { NonNull::new_unchecked(base) }
    }
}

/// An array of the library's own, with elements of a Rust type. A clone is the same array.
///
/// Its elements are reached through guards. From the begin of an exchange to the end of its wait there is one of its owned cells,
/// to be read ([`crate::Pending::owned`]); the guards of the whole array are refused.
#[derive(Debug, Clone)]
pub struct Array<T> {
    field: Field,
    element: PhantomData<T>,
}

impl<T: Element> Array<T> {
    /// The array in a field that [`Field::allocate`] has made, whose elements are `T` and whose strides are whole elements.
    pub(crate) fn of_field(field: Field) -> Self {
        debug_assert_eq!(field.layout.element(), T::TYPE);
        Self { field, element: PhantomData }
    }

    /// A zeroed array in C order: the last dimension is contiguous. The first dimensions are the axes of the pattern
    /// that it is bound with, and have exactly the extents of the domain; for another array see [`Layout`].
    pub fn zeros(comm: &Communicator, extents: &[usize]) -> Result<Self, Error> {
        Self::with_layout(comm, Layout::c_order(T::TYPE, extents)?)
    }

    /// A zeroed array of any layout whose elements are `T` and whose strides are whole elements. A layout without a name takes that
    /// of `T` ([`Element::RECORD`]).
    pub fn with_layout(comm: &Communicator, layout: Layout) -> Result<Self, Error> {
        let size = T::TYPE.size() as isize;
        if layout.element() != T::TYPE || layout.strides().iter().any(|stride| stride % size != 0) {
            return Err(Error::ArrayElement { wanted: T::TYPE, layout: Box::new(layout) });
        }
        let layout = if layout.named_element().name.is_none() { layout.named(T::RECORD) } else { layout };
        Ok(Self { field: Field::allocate(comm, layout)?, element: PhantomData })
    }

    /// The elements, lowest address first, gaps of the layout included. Fails with [`Error::ArrayInFlight`] from the begin of an
    /// exchange of the array until its user has learned that it is over, however soon it is: by [`crate::Pending::wait`],
    /// [`crate::Pending::is_ready`] or another wait. Where nobody is left who could, because the exchange and its object were
    /// dropped, it ends by itself. Fails with [`Error::ArrayBorrowed`] while a writing guard is held.
    pub fn read(&self) -> Result<ReadGuard<'_, T>, Error> {
        self.field.memory.state.guard(1, !GUARDS | WRITER)?;
        Ok(ReadGuard { array: self })
    }

    /// As [`Array::read`], for writing: nobody else may hold a guard, not even one of owned cells.
    pub fn write(&self) -> Result<WriteGuard<'_, T>, Error> {
        self.field.memory.state.guard(WRITER, !0)?;
        Ok(WriteGuard { array: self })
    }

    pub(crate) fn elements(&self) -> (NonNull<T>, usize) {
        let span = self.field.layout.span();
        // SAFETY: the field was allocated for its layout: the span lies within its segment.
        let lowest = unsafe { self.field.base().offset(span.start) };
        (lowest.cast(), span.len() / size_of::<T>())
    }
}

impl<T> Deref for Array<T> {
    type Target = Field;

    fn deref(&self) -> &Field {
        &self.field
    }
}

/// Read access to an [`Array`].
#[derive(Debug)]
pub struct ReadGuard<'a, T: Element> {
    array: &'a Array<T>,
}

impl<T: Element> Deref for ReadGuard<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        let (base, len) = self.array.elements();
        // SAFETY: `Field::allocate` gave the segment room for `len` elements, aligned to a cache line and initialised
        // (zeroed at first); any bytes are a `T`, by the contract of `Element`. The guard is counted in the memory's
        // `State`, which admits no writing guard and no exchange meanwhile.
        unsafe { std::slice::from_raw_parts(base.as_ptr(), len) }
    }
}

impl<T: Element> Drop for ReadGuard<'_, T> {
    fn drop(&mut self) {
        self.array.field.memory.state.unguard(1);
    }
}

/// Write access to an [`Array`].
#[derive(Debug)]
pub struct WriteGuard<'a, T: Element> {
    array: &'a Array<T>,
}

impl<T: Element> Deref for WriteGuard<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        let (base, len) = self.array.elements();
        // SAFETY: `Field::allocate` gave the segment room for `len` elements, aligned to a cache line and initialised
        // (zeroed at first); any bytes are a `T`, by the contract of `Element`. The guard is marked in the memory's
        // `State`, which admits no other guard and no exchange meanwhile.
        unsafe { std::slice::from_raw_parts(base.as_ptr(), len) }
    }
}

impl<T: Element> DerefMut for WriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        let (base, len) = self.array.elements();
        // SAFETY: `Field::allocate` gave the segment room for `len` elements, aligned to a cache line and initialised
        // (zeroed at first); any bytes are a `T`, by the contract of `Element`. The guard is marked in the memory's
        // `State`, which admits no other guard and no exchange meanwhile, and `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(base.as_ptr(), len) }
    }
}

impl<T: Element> Drop for WriteGuard<'_, T> {
    fn drop(&mut self) {
        self.array.field.memory.state.unguard(WRITER);
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
            assert!(matches!(whole.view(base, wrong.clone()), Err(Error::Bind(_))), "{base:?}");
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
