//! A range of bytes on the host or a device that gives its memory back when it is dropped.

use super::account::Charge;
use super::{MemoryError, MemoryKind, MemoryResource};
use halocline_device::{Address, Device, DeviceError, Event, Stream};
use std::any::Any;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

/// Bytes of host or device memory, given back when dropped. It may be empty.
///
/// A buffer whose content comes from a stream ([`Buffer::ready_after`], received device payloads) may be read after its event: on
/// the host once [`Buffer::is_ready`] says so, on a device in the order of a stream that [`Buffer::order`] was called for.
/// The memory is reused after the drop: device work that uses it must be over by then.
///
/// ```
/// use halocline_comm::memory_resource::{Buffer, HostMemory, MemoryError, MemoryKind, MemoryResource};
/// use halocline_comm::Communicator;
///
/// // From a vector, without a copy.
/// let row = Buffer::from(vec![1, 2, 3]);
/// assert_eq!((row.len(), row.kind()), (3, MemoryKind::Host));
///
/// // From a memory resource.
/// let mut buffer = HostMemory::of(&Communicator::single()).allocate(3)?;
/// let bytes = buffer.bytes_mut().expect("a buffer of the host that nothing else uses");
/// bytes.copy_from_slice(&[4, 5, 6]);
/// assert_eq!(buffer.to_vec(), Some(vec![4, 5, 6]));
/// # Ok::<(), MemoryError>(())
/// ```
pub struct Buffer {
    address: Address,
    len: usize,
    /// Bytes behind the buffer that belong to it, for the trailer of a transport.
    spare: usize,
    kind: MemoryKind,
    device: Option<Device>,
    ready: Option<Arc<Event>>,
    is_writable: bool,
    held: Arc<Held>,
}

/// The owner of a buffer's memory, then the accounts that count it: memory is free before it counts as free.
struct Held {
    owner: Owner,
    charges: Vec<Charge>,
}

enum Owner {
    Vec(Vec<u8>),
    #[expect(dead_code, reason = "held for its drop")]
    Other(Box<dyn Any + Send + Sync>),
}

/// Keeps the memory of a buffer, without access to it.
#[derive(Clone)]
pub(crate) struct Kept(Arc<Held>);

impl Kept {
    /// The same as the owner of a borrowed buffer.
    pub(crate) fn into_owner(self) -> Arc<dyn Any + Send + Sync> {
        self.0
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Owner::Vec(vec) = &mut self.owner {
            crate::buffers::put(std::mem::take(vec));
        }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes of {} memory)", self.len, self.kind)
    }
}

impl Default for Buffer {
    fn default() -> Self {
        Vec::new().into()
    }
}

impl From<Vec<u8>> for Buffer {
    fn from(vec: Vec<u8>) -> Self {
        let (address, len) = (vec.as_ptr().expose_provenance() as Address, vec.len());
        let held = Arc::new(Held { owner: Owner::Vec(vec), charges: Vec::new() });
        let (kind, device, ready) = (MemoryKind::Host, None, None);
        Self { address, len, spare: 0, kind, device, ready, is_writable: true, held }
    }
}

impl Buffer {
    /// Host memory of another owner, for reading.
    ///
    /// # Safety
    /// The bytes are initialised, valid for reads and not written as long as `owner` is held.
    pub unsafe fn foreign(first: NonNull<u8>, len: usize, owner: impl Any + Send + Sync) -> Self {
        let address = first.as_ptr().expose_provenance() as Address;
        Self::of_owner(address, len, MemoryKind::Host, Box::new(owner))
    }

    /// Host memory of another owner that a memory resource of the program has allocated, to be written and read.
    ///
    /// # Safety
    /// The bytes are initialised and valid for reads and writes as long as `owner` is held, and nothing else accesses them.
    pub unsafe fn foreign_mut(first: NonNull<u8>, len: usize, owner: impl Any + Send + Sync) -> Self {
        // SAFETY: the caller promises more.
        Self { is_writable: true, ..unsafe { Self::foreign(first, len, owner) } }
    }

    /// Memory of a device that has another owner. Call [`Buffer::ready_after`] if a stream still writes it.
    ///
    /// # Safety
    /// The bytes are memory that `device` can access, valid as long as `owner` is held. Nothing but the stream of
    /// [`Buffer::ready_after`] writes them before the buffer is dropped.
    pub unsafe fn foreign_device(
        address: Address,
        len: usize,
        device: &Device,
        owner: impl Any + Send + Sync,
    ) -> Self {
        Self {
            device: Some(device.clone()),
            ..Self::of_owner(address, len, MemoryKind::Device, Box::new(owner))
        }
    }

    /// A buffer without bytes, of the kind that a resource allocates. Calls nothing that allocates.
    pub fn empty_of(resource: &dyn MemoryResource) -> Self {
        Self { kind: resource.kind(), device: resource.device().cloned(), ..Self::default() }
    }

    fn of_owner(address: Address, len: usize, kind: MemoryKind, owner: Box<dyn Any + Send + Sync>) -> Self {
        let held = Arc::new(Held { owner: Owner::Other(owner), charges: Vec::new() });
        let (spare, device, ready) = (0, None, None);
        Self { address, len, spare, kind, device, ready, is_writable: false, held }
    }

    /// Host memory with some spare bytes behind it.
    ///
    /// # Safety
    /// The bytes and the spare ones are initialised and valid for reads and writes as long as `owner` is held, and nothing
    /// else accesses them.
    pub(super) unsafe fn owned(
        address: Address,
        (len, spare): (usize, usize),
        kind: MemoryKind,
        owner: Box<dyn Any + Send + Sync>,
    ) -> Self {
        Self { spare, is_writable: true, ..Self::of_owner(address, len, kind, owner) }
    }

    /// The same with a device, whose memory it is or for which it is pinned.
    pub(super) fn on(self, device: Device) -> Self {
        Self { device: Some(device), ..self }
    }

    /// Counts the buffer in an account until it is dropped. Only for a new buffer.
    pub(super) fn charged(mut self, mut charge: Charge) -> Self {
        if let Some(held) = Arc::get_mut(&mut self.held) {
            charge.count();
            held.charges.push(charge);
        }
        self
    }

    /// The first byte. For device memory, an address of that device.
    pub fn address(&self) -> Address {
        self.address
    }

    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if it has no byte.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The kind of its memory.
    pub fn kind(&self) -> MemoryKind {
        self.kind
    }

    /// The device of its memory, or the one for which it is pinned.
    pub fn device(&self) -> Option<&Device> {
        self.device.as_ref()
    }

    /// Makes the content depend on the work that `stream` has now: it is read, or sent, after that.
    pub fn ready_after(mut self, stream: &Stream) -> Result<Self, DeviceError> {
        let event = stream.device().events().take()?;
        stream.record(&event)?;
        self.ready = Some(Arc::new(event));
        Ok(self)
    }

    pub(crate) fn with_event(self, event: Arc<Event>) -> Self {
        Self { ready: Some(event), ..self }
    }

    /// Whether an event comes before its use.
    pub(crate) fn waits(&self) -> bool {
        self.ready.is_some()
    }

    /// Whether its content is there. Never blocks. Fails if the device has failed.
    pub fn is_ready(&self) -> Result<bool, DeviceError> {
        self.ready.as_ref().map_or(Ok(true), |event| event.query())
    }

    /// Orders later work of `stream` after the content is there. Never blocks.
    pub fn order(&self, stream: &Stream) -> Result<(), DeviceError> {
        self.ready.as_ref().map_or(Ok(()), |event| stream.wait(event))
    }

    /// The bytes, if they lie on the host and are there.
    pub fn bytes(&self) -> Option<&[u8]> {
        if self.len == 0 {
            return Some(&[]);
        }
        let is_there = self.kind != MemoryKind::Device && self.is_ready() == Ok(true);
        self.note_access(is_there, false);
        // SAFETY: memory of the host, initialised and held by `self.held`, as the constructors require. Its device writes it
        // no more.
        is_there.then(|| unsafe { std::slice::from_raw_parts(self.pointer(), self.len) })
    }

    /// The bytes for writing, if they lie on the host, are there, and belong to this buffer alone.
    pub fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        if self.len == 0 {
            return Some(&mut []);
        }
        let is_there = self.kind != MemoryKind::Device && self.is_ready() == Ok(true) && self.is_writable;
        let is_mine = is_there && Arc::get_mut(&mut self.held).is_some();
        self.note_access(is_mine, true);
        // SAFETY: memory of the host, initialised and held by `self.held`, as the constructors require. No transfer holds it,
        // and a writable buffer is accessed through this value alone.
        is_mine.then(|| unsafe { std::slice::from_raw_parts_mut(self.pointer(), self.len) })
    }

    /// Simulated devices check the order of accesses to pinned memory.
    fn note_access(&self, is_allowed: bool, writes: bool) {
        if let Some(device) = self.device.as_ref().filter(|_| is_allowed) {
            device.driver().host_access(self.address, self.len, writes);
        }
    }

    fn pointer(&self) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.address as usize)
    }

    /// A copy of the bytes, if [`Buffer::bytes`] gives them.
    pub fn to_vec(&self) -> Option<Vec<u8>> {
        self.bytes().map(<[u8]>::to_vec)
    }

    /// Keeps the memory beyond the drop of the buffer.
    pub(crate) fn kept(&self) -> Kept {
        Kept(Arc::clone(&self.held))
    }

    /// Spare bytes behind it.
    pub(crate) fn spare(&self) -> usize {
        self.spare
    }

    /// Whether nothing else accesses it, so that a transport can borrow it.
    pub(crate) fn is_exclusive(&self) -> bool {
        self.is_writable && Arc::strong_count(&self.held) == 1
    }

    /// The vector that it was made from, if it was.
    pub(crate) fn take_vec(&mut self) -> Option<Vec<u8>> {
        match &mut Arc::get_mut(&mut self.held)?.owner {
            Owner::Vec(vec) => {
                self.len = 0;
                Some(std::mem::take(vec))
            }
            Owner::Other(_) => None,
        }
    }

    /// The error of a resource that gave another length, or memory of the host that cannot be written.
    pub(crate) fn checked(mut self, asked: usize) -> Result<Self, MemoryError> {
        let why = match self.len == asked {
            false => format!("it gave a buffer of {} bytes", self.len),
            true if asked > 0 && self.kind() != MemoryKind::Device && self.bytes_mut().is_none() => {
                "it gave a buffer of the host that cannot be written: make it by `Buffer::foreign_mut`"
                    .to_owned()
            }
            true => return Ok(self),
        };
        Err(MemoryError::Faulty { asked, why })
    }
}
