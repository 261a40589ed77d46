//! Arrays in the memory of a device.

use crate::error::{ArrayError, Error};
use crate::field::{Field, Memory, Number, OnDevice, State, layout_of};
use halocline_device::{Address, Device, Element, Priority, Stream};
use halocline_plan::Layout;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Deref;
use std::sync::Arc;

/// Most bytes of host memory that one copy pins.
const PIECE: usize = 16 << 20;

/// An array in device memory of the library. A clone is the same array.
///
/// The host accesses its elements by copies in the order of a stream, 16 MiB at a time. Work that another thread gives the same
/// stream may run between two pieces. All work on the array must be complete when its last holder is dropped; a bound
/// object that exchanges it is a holder. Exchanges of one array by several objects run in the order of their begins.
///
/// ```
/// use halocline::device::{Priority, sim};
/// use halocline::{Communicator, Decomposed, DeviceArray, HaloExchange, RegularGrid};
///
/// // A simulated device; `device::cuda::device(0)?` opens a GPU.
/// let world = sim::World::live(0, &sim::Options::default()).expect("a thread");
/// let device = world.world().device(0)?;
/// let stream = device.stream(Priority::Normal)?;
///
/// let comm = Communicator::single();
/// let pattern = RegularGrid::new([4]).periodic([true]).decompose(1)?.pattern(&comm, 1)?;
/// let t = DeviceArray::<f64>::zeros(&device, &[6])?;
/// t.write(&stream, &[0.0, 1.0, 2.0, 3.0, 4.0, 0.0])?;
/// let halo = HaloExchange::bind(&comm, [(&pattern, &t)])?;
/// halo.schedule_exchange(&[&stream])?.schedule_wait(&stream)?;
/// assert_eq!(t.read(&stream)?, [4.0, 1.0, 2.0, 3.0, 4.0, 1.0]);
/// # Ok::<(), halocline::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct DeviceArray<T> {
    field: Field,
    element: PhantomData<T>,
}

impl Field {
    /// Allocates zeroed memory of a device for `layout`: a [`DeviceArray`] whose element type is known at run time only. Blocks until it
    /// is zeroed. Fails with [`Error::Device`] if the device has no memory or refuses a call.
    ///
    /// ```
    /// use halocline::device::{MemorySpace, sim};
    /// use halocline::{ElementType, Field, Layout};
    ///
    /// // A simulated device; `device::cuda::device(0)?` opens a GPU.
    /// let world = sim::World::live(0, &sim::Options::default()).expect("a thread");
    /// let device = world.world().device(0)?;
    /// let field = Field::allocate_on(&device, Layout::c_order(ElementType::F32, &[6, 4])?)?;
    /// assert_eq!(field.space(), MemorySpace::Device(0));
    /// # Ok::<(), halocline::Error>(())
    /// ```
    pub fn allocate_on(device: &Device, layout: Layout) -> Result<Self, Error> {
        let span = layout.span();
        let bytes = (span.end - span.start) as usize;
        let memory = device.allocate(bytes.max(1))?;
        let place = memory.place();
        let home = OnDevice::new(device.clone(), place, false);
        let memory = Memory::on_device(home, (place.base, bytes), Arc::new(memory));
        if bytes > 0 {
            let stream = device.stream(Priority::Normal)?;
            // SAFETY: the memory has `bytes` bytes from `place.base` on, and nobody else knows it yet.
            unsafe { stream.clear(place.base, bytes) }?;
            stream.synchronise()?;
        }
        Ok(Self { memory, layout, offset: span.start.unsigned_abs(), domain: None, number: Number::next() })
    }

    /// Copies bytes into a field in memory of a device, lowest address first, gaps of the layout included: host memory with the same
    /// layout. Runs after all earlier work of the stream, and blocks until the copy is complete: [`DeviceArray::write`] for a field whose
    /// element type is known at run time only, or whose memory the library does not own.
    ///
    /// Fails with [`ArrayError::Bytes`] if their number is not the length of [`Layout::span`], with [`ArrayError::OnHost`] for a field in
    /// host memory, with [`Error::StreamDevice`] for a stream of another device, and otherwise as [`DeviceArray::write`] does.
    ///
    /// ```
    /// use halocline::device::{Priority, sim};
    /// use halocline::{ElementType, Field, Layout};
    ///
    /// // A simulated device; `device::cuda::device(0)?` opens a GPU.
    /// let world = sim::World::live(0, &sim::Options::default()).expect("a thread");
    /// let device = world.world().device(0)?;
    /// let stream = device.stream(Priority::Normal)?;
    /// let field = Field::allocate_on(&device, Layout::c_order(ElementType::U8, &[4])?)?;
    /// field.write_bytes(&stream, b"halo")?;
    /// let mut found = [0; 4];
    /// field.read_bytes(&stream, &mut found)?;
    /// assert_eq!(&found, b"halo");
    /// # Ok::<(), halocline::Error>(())
    /// ```
    pub fn write_bytes(&self, stream: &Stream, bytes: &[u8]) -> Result<(), Error> {
        let device = self.copied_by(stream, bytes.len())?;
        if bytes.is_empty() {
            return Ok(());
        }
        let staged = device.allocate_pinned(bytes.len().min(PIECE))?;
        let _held = self.hold(stream, true)?;
        for (piece, from) in bytes.chunks(PIECE).enumerate() {
            // SAFETY: nobody else knows the pinned memory, which the stream was through with.
            unsafe {
                staged.bytes_mut(0..from.len()).copy_from_slice(from);
                stream.copy(self.lowest(piece * PIECE), staged.at(0), from.len())?;
            }
            stream.synchronise()?;
        }
        Ok(())
    }

    /// Copies the bytes of a field in memory of a device to the host, lowest address first, gaps of the layout included. Runs after all
    /// earlier work of the stream, and blocks until the copy is complete. Fails as [`Field::write_bytes`] does; other threads may read
    /// the field at the same time.
    pub fn read_bytes(&self, stream: &Stream, bytes: &mut [u8]) -> Result<(), Error> {
        // SAFETY: `read_into` writes bytes, and leaves none uninitialised.
        let places = unsafe { &mut *(std::ptr::from_mut(bytes) as *mut [MaybeUninit<u8>]) };
        self.read_into(stream, places)
    }

    /// As [`Field::read_bytes`], to memory that may be uninitialised. If it succeeds, all of it is initialised.
    #[doc(hidden)]
    pub fn read_into(&self, stream: &Stream, places: &mut [MaybeUninit<u8>]) -> Result<(), Error> {
        let device = self.copied_by(stream, places.len())?;
        if places.is_empty() {
            return Ok(());
        }
        let staged = device.allocate_pinned(places.len().min(PIECE))?;
        let _held = self.hold(stream, false)?;
        for (piece, to) in places.chunks_mut(PIECE).enumerate() {
            // SAFETY: nobody else knows the pinned memory, which lives until the stream is through.
            unsafe { stream.copy(staged.at(0), self.lowest(piece * PIECE), to.len()) }?;
            stream.synchronise()?;
            // SAFETY: nobody writes the pinned memory any more; both have so many bytes.
            unsafe {
                let from = staged.bytes(0..to.len());
                from.as_ptr().copy_to_nonoverlapping(to.as_mut_ptr().cast(), to.len());
            }
        }
        Ok(())
    }

    /// Its device, if a stream can copy that many bytes from or to it.
    fn copied_by(&self, stream: &Stream, bytes: usize) -> Result<&Device, Error> {
        let Some(home) = &self.memory.device else {
            return Err(Error::Array(ArrayError::OnHost));
        };
        let (own, given) = (&home.device, stream.device());
        if given.space() != own.space() {
            let (device, devices) = (given.ordinal(), vec![own.ordinal()]);
            return Err(Error::StreamDevice { stream: 0, device, devices });
        }
        match self.layout.span().len() {
            expected if expected == bytes => Ok(own),
            expected => Err(Error::Array(ArrayError::Bytes { expected, found: bytes })),
        }
    }

    /// Guards it for copies in the order of a stream: no exchange of it is in flight, and none can begin.
    fn hold(&self, stream: &Stream, writes: bool) -> Result<Held<'_>, Error> {
        // An exchange that the stream waits for is over then.
        stream.synchronise()?;
        let memory = &self.memory;
        memory.state.guard_copy(writes)?;
        let held = Held { state: &memory.state, writes };
        // After the guard: a begin finds that, or is found here.
        let users = memory.device.as_ref().map_or_else(Vec::new, OnDevice::users);
        match users.iter().any(|user| user.is_in_flight_with(memory)) {
            true => Err(Error::Array(ArrayError::InFlight)),
            false => Ok(held),
        }
    }

    /// The address so many bytes above its lowest byte.
    fn lowest(&self, offset: usize) -> Address {
        let base = self.memory.segment.base().addr().get() + self.offset;
        base.wrapping_add_signed(self.layout.span().start) as Address + offset as Address
    }
}

impl<T: Element> DeviceArray<T> {
    /// A zeroed array in C order. Blocks until it is zeroed. Fails with [`Error::Layout`] for more bytes than an address space has, and
    /// with [`Error::Device`] if the device has no memory or refuses a call.
    pub fn zeros(device: &Device, extents: &[usize]) -> Result<Self, Error> {
        Self::with_layout(device, Layout::c_order(T::TYPE, extents)?)
    }

    /// A zeroed array of any layout whose elements are `T` and whose strides are whole elements; other layouts are
    /// [`ArrayError::Element`]. A layout without a name takes that of `T` ([`Element::RECORD`]). Blocks until it is zeroed. Fails with
    /// [`Error::Device`] as [`DeviceArray::zeros`] does.
    pub fn with_layout(device: &Device, layout: Layout) -> Result<Self, Error> {
        let field = Field::allocate_on(device, layout_of::<T>(layout)?)?;
        Ok(Self { field, element: PhantomData })
    }

    /// Number of elements, gaps of the layout included.
    pub fn len(&self) -> usize {
        self.field.memory.segment.len() / size_of::<T>()
    }

    /// The address of its lowest byte in the device's memory, for kernels and compiled programs. Their work on it is ordered with exchanges
    /// by streams.
    pub fn address(&self) -> Address {
        self.field.lowest(0)
    }

    /// True if it has no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies elements into it, lowest address first, after all earlier work of the stream. Blocks until the copy is
    /// complete. Fails if their number is not [`DeviceArray::len`]; with [`ArrayError::InFlight`] while an exchange of
    /// the array is in flight that the stream does not wait for ([`crate::Pending::schedule_wait`]); with
    /// [`ArrayError::Borrowed`] while another thread copies from or to it; with [`Error::StreamDevice`] for a stream of another device.
    pub fn write(&self, stream: &Stream, elements: &[T]) -> Result<(), Error> {
        if elements.len() != self.len() {
            let extents = self.field.layout.extents().to_vec();
            return Err(Error::Array(ArrayError::Length {
                extents,
                expected: self.len(),
                found: elements.len(),
            }));
        }
        // SAFETY: the bytes of `elements`, all of them initialised: `T` has no padding, by the contract of `Element`.
        let bytes =
            unsafe { std::slice::from_raw_parts(elements.as_ptr().cast::<u8>(), size_of_val(elements)) };
        self.field.write_bytes(stream, bytes)
    }

    /// Copies its elements to the host, lowest address first, after all earlier work of the stream. Blocks until the copy is
    /// complete. Fails as [`DeviceArray::write`] does; other threads may read it at the same time.
    pub fn read(&self, stream: &Stream) -> Result<Vec<T>, Error> {
        let mut elements = Vec::<T>::with_capacity(self.len());
        let places = &mut elements.spare_capacity_mut()[..self.len()];
        // SAFETY: the bytes of the borrowed places, which may be uninitialised; nothing uses the places meanwhile.
        let bytes = unsafe {
            let first = places.as_mut_ptr().cast::<MaybeUninit<u8>>();
            std::slice::from_raw_parts_mut(first, size_of_val(places))
        };
        self.field.read_into(stream, bytes)?;
        // SAFETY: the call has initialised all bytes of `len` elements; any bytes are a `T`, by the contract of `Element`.
        unsafe { elements.set_len(self.len()) };
        Ok(elements)
    }
}

/// A guard of the memory of an array.
struct Held<'a> {
    state: &'a State,
    writes: bool,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.state.unguard_copy(self.writes);
    }
}

impl<T> Deref for DeviceArray<T> {
    type Target = Field;

    fn deref(&self) -> &Field {
        &self.field
    }
}
