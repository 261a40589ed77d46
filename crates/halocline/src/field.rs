//! Fields: memory with a layout, and the rules of access to it.

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
    /// The device, if it is device memory; then the addresses of the segment are the device's.
    pub(crate) device: Option<OnDevice>,
    pub(crate) state: Arc<State>,
    /// The states of earlier memories that share bytes with this one: an exchange that takes this one takes those, too.
    met: OnceLock<Box<[Arc<State>]>>,
}

/// The users of some memory.
#[derive(Default)]
pub(crate) struct State {
    /// Upper half: exchanges in flight, at most one. Lower half: guards, with a mark for a writing one. The two exclude each other.
    users: AtomicU64,
    /// Guards of owned cells. They are made while an exchange is in flight, and exclude the next exchange and writing guards.
    of_owned: AtomicU64,
}

/// Memory of a device.
pub(crate) struct OnDevice {
    pub(crate) device: Device,
    /// Its allocation, with the identity of its first byte.
    pub(crate) place: Place,
    /// The library does not own it: it may be freed at any time.
    pub(crate) foreign: bool,
    /// The objects that exchange it. Some may have been dropped.
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

/// The reason that an exchange cannot begin.
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
        // The host never dereferences a device address. Address 0 means that there are no bytes.
        let base =
            NonNull::new(std::ptr::without_provenance_mut(base as usize)).unwrap_or(NonNull::dangling());
        // SAFETY: the memory is the device's, whose driver gave it or whose owner says so, and `keepalive` keeps it
        // valid. Only devices follow this address.
        let segment = unsafe { Segment::foreign(base, bytes, keepalive) };
        Arc::new(Self { segment, device: Some(device), state: Arc::default(), met: OnceLock::new() })
    }

    /// Registers an object that exchanges it, if it is device memory.
    pub(crate) fn add_user(&self, user: &Arc<Scheduled>) {
        if let Some(home) = &self.device {
            let mut users = home.users.lock().unwrap_or_else(PoisonError::into_inner);
            users.retain(|user| user.strong_count() > 0);
            users.push(Arc::downgrade(user));
        }
    }

    /// The states of other memories that share bytes with it: an exchange of this one takes those, too.
    #[inline]
    pub(crate) fn met(&self) -> &[Arc<State>] {
        self.met.get().map_or(&[], |met| met)
    }
}

impl State {
    /// Marks an exchange in flight. Refused while a guard is held, and while another exchange is in flight: two objects
    /// would write the same cells, or one would write what the other sends.
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

    /// Undoes [`State::begin_flight`]. Until then no other thread can change the users.
    pub(crate) fn end_flight(&self) {
        self.users.store(0, Ordering::Release);
    }

    /// Adds a guard of owned cells. An exchange holds the memory in flight: users that its end admits come later, and see the guard.
    pub(crate) fn show_owned(&self) {
        self.of_owned.fetch_add(1, Ordering::Relaxed);
    }

    /// Undoes [`State::show_owned`].
    pub(crate) fn hide_owned(&self) {
        self.of_owned.fetch_sub(1, Ordering::Release);
    }

    /// Whether a guard of owned cells is held. Call it after `users` has admitted the caller.
    fn is_shown(&self) -> bool {
        self.of_owned.load(Ordering::Acquire) != 0
    }

    /// Whether a guard is held.
    pub(crate) fn is_guarded(&self) -> bool {
        self.users.load(Ordering::Acquire) & GUARDS != 0
    }

    /// Guards device memory, whose exchanges in flight are not counted here. Returns the argument of [`State::unguard`].
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

    /// Removes a guard that has added so much.
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
    pub fn meeting(self, others: &[Field]) -> Self {
        if !others.is_empty() {
            let states = others.iter().map(|other| Arc::clone(&other.memory.state));
            // A second call changes nothing: other threads may use the first list already.
            let _ = self.memory.met.set(states.collect());
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

/// An array in memory of the library, with elements of a Rust type. A clone is the same array.
///
/// Guards give access to its elements. From the begin of an exchange to the end of its wait the guards of the whole array are
/// refused; [`crate::Pending::owned`] reads its owned cells.
///
/// ```
/// use halocline::{Array, Communicator};
///
/// let t = Array::<f64>::zeros(&Communicator::single(), &[4, 6])?;
/// t.write()?.fill(1.0);
/// assert_eq!(t.read()?.iter().sum::<f64>(), 24.0);
/// # Ok::<(), halocline::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Array<T> {
    field: Field,
    element: PhantomData<T>,
}

impl<T: Element> Array<T> {
    /// The array in a field whose memory holds elements of `T`, initialised and aligned, that nobody else uses: made by
    /// [`Field::allocate`], or from a `Vec<T>`. Strides are whole elements.
    pub(crate) fn of_field(field: Field) -> Self {
        debug_assert_eq!(field.layout.element(), T::TYPE);
        Self { field, element: PhantomData }
    }

    /// A zeroed array in C order: the last dimension is contiguous. Its first dimensions are the axes of the pattern
    /// that it is bound to, with exactly the extents of the domain. [`Layout`] describes other arrays.
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
    /// exchange of the array until the program has observed its end by [`crate::Pending::wait`], [`crate::Pending::is_ready`] or another
    /// wait, even if the exchange completed earlier. Once the exchange and its object are dropped, its completion is enough.
    /// Fails with [`Error::ArrayBorrowed`] while a writing guard is held.
    pub fn read(&self) -> Result<ReadGuard<'_, T>, Error> {
        self.field.memory.state.guard(1, !GUARDS | WRITER)?;
        Ok(ReadGuard { array: self })
    }

    /// As [`Array::read`], for writing. Fails while any other guard is held, one of owned cells included.
    pub fn write(&self) -> Result<WriteGuard<'_, T>, Error> {
        self.field.memory.state.guard(WRITER, !0)?;
        Ok(WriteGuard { array: self })
    }

    /// The element at the lowest address, and the number of elements from there on, gaps of the layout included.
    pub(crate) fn elements(&self) -> (NonNull<T>, usize) {
        let span = self.field.layout.span();
        // SAFETY: the memory of the field was allocated or given for its layout: the span lies within its segment.
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

impl<T: Element> ReadGuard<'_, T> {
    #[cfg(feature = "ndarray")]
    pub(crate) fn array(&self) -> &Array<T> {
        self.array
    }
}

impl<T: Element> Deref for ReadGuard<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        let (base, len) = self.array.elements();
        // SAFETY: the segment has room for `len` elements, aligned and initialised: `Field::allocate` zeroed it, or
        // `from_ndarray` took it from a `Vec` of them. Any bytes are a `T`, by the contract of `Element`. The guard is counted in the memory's
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

impl<T: Element> WriteGuard<'_, T> {
    #[cfg(feature = "ndarray")]
    pub(crate) fn array(&self) -> &Array<T> {
        self.array
    }
}

impl<T: Element> Deref for WriteGuard<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        let (base, len) = self.array.elements();
        // SAFETY: the segment has room for `len` elements, aligned and initialised: `Field::allocate` zeroed it, or
        // `from_ndarray` took it from a `Vec` of them. Any bytes are a `T`, by the contract of `Element`. The guard is marked in the memory's
        // `State`, which admits no other guard and no exchange meanwhile.
        unsafe { std::slice::from_raw_parts(base.as_ptr(), len) }
    }
}

impl<T: Element> DerefMut for WriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        let (base, len) = self.array.elements();
        // SAFETY: the segment has room for `len` elements, aligned and initialised: `Field::allocate` zeroed it, or
        // `from_ndarray` took it from a `Vec` of them. Any bytes are a `T`, by the contract of `Element`. The guard is marked in the memory's
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
