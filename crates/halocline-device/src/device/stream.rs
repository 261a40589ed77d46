//! Streams of a device.

use super::*;

/// A stream of a device, created by the library or foreign.
///
/// ```
/// use halocline_device::{Priority, sim};
///
/// // A simulated device; `cuda::device(0)?` opens a GPU.
/// let world = sim::World::live(0, &sim::Options::default()).expect("a thread");
/// let device = world.world().device(0)?;
/// let [first, second] = [device.stream(Priority::Normal)?, device.stream(Priority::Normal)?];
///
/// // Work of the second stream runs after that of the first one.
/// let event = device.events().take()?;
/// first.record(&event)?;
/// second.wait(&event)?;
/// second.synchronise()?;
/// assert!(first.query()?);
/// # Ok::<(), halocline_device::DeviceError>(())
/// ```
#[derive(Debug)]
pub struct Stream {
    pub(super) device: Device,
    pub(super) raw: RawStream,
    pub(super) owned: bool,
}

impl Stream {
    /// The device of the stream.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Its handle.
    pub fn raw(&self) -> RawStream {
        self.raw
    }

    /// An identifier that no other stream of its device ever has, if known: [`Driver::stream_id`]. Queried
    /// each time, because a foreign handle may have been reused.
    pub fn id(&self) -> Option<u64> {
        // SAFETY: the stream is created and destroyed by `self`, or the caller of `borrow_stream` keeps it as long as
        // `self`.
        unsafe { self.device.0.stream_id(self.raw) }
    }

    /// Records all earlier work of the stream in `event`, which must be of the same device.
    #[inline]
    pub fn record(&self, event: &Event) -> Result<(), DeviceError> {
        self.device.check_machine("event", event.driver())?;
        // SAFETY: the stream is created and destroyed by `self`, or the caller of `borrow_stream` keeps it as long as
        // `self`. `event` is of the same machine and holds the pool that destroys it.
        unsafe { self.device.0.record(event.raw(), self.raw) }
    }

    /// Orders later work of the stream after the work recorded in `event`, of any device.
    #[inline]
    pub fn wait(&self, event: &Event) -> Result<(), DeviceError> {
        self.device.check_machine("event", event.driver())?;
        // SAFETY: the stream is created and destroyed by `self`, or the caller of `borrow_stream` keeps it as long as
        // `self`. `event` is of the same machine and holds the pool that destroys it.
        unsafe { self.device.0.wait_event(self.raw, event.raw()) }
    }

    /// Executes operations on flags, in order.
    ///
    /// # Safety
    /// The contract of [`Driver::values`] holds for the words.
    #[inline]
    pub unsafe fn values(&self, ops: &[ValueOp]) -> Result<(), DeviceError> {
        // SAFETY: the stream lives as long as `self`, and the caller keeps the contract of `Driver::values`.
        unsafe { self.device.0.values(self.raw, ops) }
    }

    /// Copies bytes between any two memories. 0 bytes may have any address.
    ///
    /// # Safety
    /// The contract of [`Driver::copy`] holds for both ranges.
    #[inline]
    pub unsafe fn copy(&self, target: Address, source: Address, bytes: usize) -> Result<(), DeviceError> {
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: the stream lives as long as `self`, and the caller keeps the contract of `Driver::copy`.
        unsafe { self.device.0.copy(self.raw, target, source, bytes) }
    }

    /// Zeroes bytes, at the latest when the stream is synchronised.
    ///
    /// # Safety
    /// The contract of [`Driver::clear`] holds for the range.
    pub unsafe fn clear(&self, base: Address, bytes: usize) -> Result<(), DeviceError> {
        // SAFETY: the stream lives as long as `self`, and the caller keeps the contract of `Driver::clear`.
        unsafe { self.device.0.clear(self.raw, base, bytes) }
    }

    /// Executes a copy table of the same device for an epoch.
    ///
    /// # Safety
    /// The contract of [`Driver::launch`] holds for the table and its memory.
    #[inline]
    pub unsafe fn launch(&self, table: &CopyTable, epoch: u64) -> Result<(), DeviceError> {
        // SAFETY: the caller keeps the contract of `Driver::launch`.
        unsafe { self.launch_on(table, Epoch::Given(epoch), &[]) }
    }

    /// As [`Stream::launch`], for the epoch after those that a counter has counted ([`Epoch::Counted`]).
    ///
    /// # Safety
    /// The contract of [`Driver::launch`] holds for the table, its memory and the counter.
    pub unsafe fn launch_counted(&self, table: &CopyTable, counter: Address) -> Result<(), DeviceError> {
        // SAFETY: the caller keeps the contract of `Driver::launch`.
        unsafe { self.launch_on(table, Epoch::Counted(counter), &[]) }
    }

    /// Executes a copy table of the same device for an epoch, on memory at these bases ([`TableSpec::bases`](crate::TableSpec::bases)).
    ///
    /// # Safety
    /// The contract of [`Driver::launch`] holds for the table, its memory, the counter and the bases.
    #[inline]
    pub unsafe fn launch_on(
        &self,
        table: &CopyTable,
        epoch: Epoch,
        bases: &[Address],
    ) -> Result<(), DeviceError> {
        // SAFETY: the stream lives as long as `self`, and the caller keeps the contract of `Driver::launch`.
        unsafe { self.device.0.launch(self.raw, table.raw, epoch, bases) }
    }

    /// Makes an index list: which cells each of some ranks owns, or the sorted unique ids of an array ([`Driver::find_list`]).
    ///
    /// # Safety
    /// The contract of [`Driver::find_list`] holds for the memory.
    pub unsafe fn find_list(&self, spec: &ListSpec<'_>) -> Result<(), DeviceError> {
        // SAFETY: the stream lives as long as `self`, and the caller keeps the contract of `Driver::find_list`.
        unsafe { self.device.0.find_list(self.raw, spec) }
    }

    /// The value of a word at some moment after the call, if available soon. The stream waits for nothing.
    ///
    /// # Safety
    /// The contract of [`Driver::peek`] holds for the word.
    pub unsafe fn peek(&self, word: Address) -> Result<Option<u64>, DeviceError> {
        // SAFETY: the stream lives as long as `self`, and the caller keeps the contract of `Driver::peek`.
        unsafe { self.device.0.peek(self.raw, word) }
    }

    /// The capture that the stream takes part in ([`Driver::capture_of`]).
    #[inline]
    pub fn capture(&self) -> Result<Option<Capture>, DeviceError> {
        // SAFETY: the stream is created and destroyed by `self`, or the caller of `borrow_stream` keeps it as long as
        // `self`.
        unsafe { self.device.0.capture_of(self.raw) }
    }

    /// Whether all its work is done.
    pub fn query(&self) -> Result<bool, DeviceError> {
        // SAFETY: the stream is created and destroyed by `self`, or the caller of `borrow_stream` keeps it as long as
        // `self`.
        unsafe { self.device.0.query(self.raw) }
    }

    /// Blocks until all its work is done.
    pub fn synchronise(&self) -> Result<(), DeviceError> {
        // SAFETY: the stream is created and destroyed by `self`, or the caller of `borrow_stream` keeps it as long as
        // `self`.
        unsafe { self.device.0.synchronise(self.raw) }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.owned {
            // SAFETY: `Device::stream` created the stream with this driver, and `self` alone owns it.
            unsafe { self.device.0.destroy_stream(self.raw) };
        }
    }
}
