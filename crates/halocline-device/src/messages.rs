//! Messages between devices, of any process, in the order of streams: NCCL, which each device's driver loads.

use crate::device::{Device, Stream};
use crate::driver::{Address, RawStream};
use crate::error::DeviceError;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Identifies a communicator among all processes: `ncclUniqueId`. One rank makes it, and all ranks join with it.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct UniqueId(pub [u8; 128]);

impl fmt::Debug for UniqueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UniqueId")
    }
}

/// A handle of one rank's part of a communicator (`ncclComm_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawCommunicator(pub usize);

/// A message to or from another rank of a communicator, in memory of the rank's device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message {
    /// The other rank.
    pub peer: u32,
    /// Whether this rank sends it.
    pub sends: bool,
    /// Its first byte.
    pub address: Address,
    /// Its length. The same on both ranks.
    pub bytes: usize,
}

/// The functions of NCCL for one device.
///
/// # Safety
/// A library that returns from [`MessageLibrary::abort`] or [`MessageLibrary::destroy`] does not access the communicator's memory of
/// the host any more.
pub unsafe trait MessageLibrary: Send + Sync {
    /// Its name and version, for reports.
    fn name(&self) -> String;

    /// A new identifier (`ncclGetUniqueId`).
    fn unique_id(&self) -> Result<UniqueId, DeviceError>;

    /// Begins to join a communicator as `rank` of `ranks`; [`MessageLibrary::is_ready`] says when all have joined (`ncclCommInitRank`, on
    /// a thread of its own).
    fn join(&self, id: &UniqueId, rank: u32, ranks: u32) -> Result<RawCommunicator, DeviceError>;

    /// Whether no [`MessageLibrary::join`] or [`MessageLibrary::connect`] is under way on this rank. Fails if that, or the communicator, has
    /// failed (`ncclCommGetAsyncError`).
    ///
    /// # Safety
    /// [`MessageLibrary::join`] returned the communicator, and it was neither aborted nor destroyed.
    unsafe fn is_ready(&self, communicator: RawCommunicator) -> Result<bool, DeviceError>;

    /// Gives messages to a stream, as one grouped call (`ncclGroupStart`, `ncclSend`, `ncclRecv`, `ncclGroupEnd`). They begin after the
    /// stream's earlier work, and its later work begins once all are over on this rank: what was sent may be overwritten, what was
    /// received is there. The messages from one rank to another match in the order of the calls on both. Blocks until both ranks have made
    /// their first call, unless [`MessageLibrary::connect`] has connected them.
    ///
    /// # Safety
    /// [`MessageLibrary::join`] returned the communicator, which is ready, and was neither aborted nor destroyed. `stream` is 0, or a stream
    /// of the device that has not been destroyed. Memory of messages stays valid until the stream has done them. Meanwhile nothing writes
    /// what is sent or accesses what is received, and messages of the call do not overlap.
    unsafe fn exchange(
        &self,
        communicator: RawCommunicator,
        stream: RawStream,
        messages: &[Message],
    ) -> Result<(), DeviceError>;

    /// As [`MessageLibrary::exchange`], but never blocks: [`MessageLibrary::is_ready`] says when the stream has the messages. Until then
    /// nothing else is given to the stream.
    ///
    /// # Safety
    /// The contract of [`MessageLibrary::exchange`] holds.
    unsafe fn connect(
        &self,
        communicator: RawCommunicator,
        stream: RawStream,
        messages: &[Message],
    ) -> Result<(), DeviceError> {
        // SAFETY: the caller keeps the contract.
        unsafe { self.exchange(communicator, stream, messages) }
    }

    /// Ends all messages of this rank, complete or not, and frees its part of the communicator (`ncclCommAbort`). Streams go on soon
    /// afterwards.
    ///
    /// # Safety
    /// [`MessageLibrary::join`] returned the communicator, which nothing uses any more.
    unsafe fn abort(&self, communicator: RawCommunicator);

    /// Frees this rank's part of a communicator whose messages are over (`ncclCommDestroy`).
    ///
    /// # Safety
    /// [`MessageLibrary::join`] returned the communicator, which nothing uses any more.
    unsafe fn destroy(&self, communicator: RawCommunicator);
}

/// This rank's part of a communicator. It ends with an abort, or when it is dropped.
///
/// ```
/// use halocline_device::{DeviceCommunicator, Message, Priority, sim};
///
/// // Simulated devices of two ranks, here in one thread; `cuda::device(0)?` opens a GPU.
/// let world = sim::World::live(0, &sim::Options::default()).expect("a thread");
/// let devices = [world.world().device(0)?, world.world().device(1)?];
/// let id = devices[0].messages()?.unique_id()?;
/// let first = DeviceCommunicator::join(&devices[0], &id, 0, 2)?;
/// assert!(!first.is_ready()?); // until the other rank has joined
/// let second = DeviceCommunicator::join(&devices[1], &id, 1, 2)?;
///
/// let (source, target) = (devices[0].allocate(64)?, devices[1].allocate(64)?);
/// let streams = [devices[0].stream(Priority::Normal)?, devices[1].stream(Priority::Normal)?];
/// let sent = Message { peer: 1, sends: true, address: source.at(0), bytes: 64 };
/// let received = Message { peer: 0, sends: false, address: target.at(0), bytes: 64 };
/// // SAFETY: nothing else uses the memory before the streams are synchronised.
/// unsafe {
///     first.exchange(&streams[0], &[sent])?;
///     second.exchange(&streams[1], &[received])?;
/// }
/// streams.iter().try_for_each(|stream| stream.synchronise())?;
/// # Ok::<(), halocline_device::DeviceError>(())
/// ```
pub struct DeviceCommunicator {
    device: Device,
    library: Arc<dyn MessageLibrary>,
    raw: RawCommunicator,
    /// The calls that use it now, and [`ABORTED`].
    users: AtomicU64,
    /// The library has ended it.
    is_ended: AtomicBool,
    /// Ranks that this one has connected with: their numbers, and whether this one sends.
    connected: Mutex<BTreeSet<(u32, bool)>>,
}

/// In [`DeviceCommunicator::users`]: it is to be aborted, by the last call that uses it. Set before the library aborts: whatever ended by
/// that is seen as aborted.
const ABORTED: u64 = 1 << 63;

impl fmt::Debug for DeviceCommunicator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceCommunicator({}, {:?})", self.library.name(), self.device)
    }
}

impl DeviceCommunicator {
    /// Begins to join a communicator as `rank` of `ranks`. Use it once [`DeviceCommunicator::is_ready`] has returned true.
    pub fn join(device: &Device, id: &UniqueId, rank: u32, ranks: u32) -> Result<Self, DeviceError> {
        let library = device.messages()?;
        let raw = library.join(id, rank, ranks)?;
        let (users, is_ended, connected) = (AtomicU64::new(0), AtomicBool::new(false), Mutex::default());
        Ok(Self { device: device.clone(), library, raw, users, is_ended, connected })
    }

    /// Its device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The library's name and version.
    pub fn library(&self) -> String {
        self.library.name()
    }

    /// Whether no [`DeviceCommunicator::join`] or [`DeviceCommunicator::connect`] is under way on this rank. Fails if that, or the
    /// communicator, has failed, and after an abort.
    pub fn is_ready(&self) -> Result<bool, DeviceError> {
        let _used = self.enter()?;
        // SAFETY: it is neither aborted nor destroyed while it is used.
        unsafe { self.library.is_ready(self.raw) }
    }

    /// Gives messages to a stream of its device: [`MessageLibrary::exchange`].
    ///
    /// # Safety
    /// The communicator is ready. Memory of messages stays valid until the stream has done them. Meanwhile nothing writes what is sent or
    /// accesses what is received, and messages of the call do not overlap.
    pub unsafe fn exchange(&self, stream: &Stream, messages: &[Message]) -> Result<(), DeviceError> {
        let _used = self.enter()?;
        // SAFETY: the communicator is neither aborted nor destroyed while it is used, and the stream lives as long as the reference. The
        // caller keeps the rest of the contract.
        unsafe { self.library.exchange(self.raw, stream.raw(), messages) }
    }

    /// The same for the first messages between two ranks, without blocking: [`MessageLibrary::connect`].
    ///
    /// # Safety
    /// The contract of [`DeviceCommunicator::exchange`] holds. The stream lives until [`DeviceCommunicator::is_ready`] returns true or fails,
    /// and nothing else is given to it before.
    pub unsafe fn connect(&self, stream: &Stream, messages: &[Message]) -> Result<(), DeviceError> {
        let _used = self.enter()?;
        // SAFETY: the communicator is neither aborted nor destroyed while it is used. The caller keeps the rest of the contract.
        unsafe { self.library.connect(self.raw, stream.raw(), messages) }
    }

    /// Whether [`DeviceCommunicator::set_connected`] was told of an equal peer and direction.
    pub fn is_connected(&self, message: &Message) -> bool {
        let connected = self.connected.lock().unwrap_or_else(PoisonError::into_inner);
        connected.contains(&(message.peer, message.sends))
    }

    /// Keeps that these messages have connected this rank with others, once they are over on all ranks.
    pub fn set_connected(&self, messages: &[Message]) {
        let mut connected = self.connected.lock().unwrap_or_else(PoisonError::into_inner);
        connected.extend(messages.iter().map(|message| (message.peer, message.sends)));
    }

    /// Ends all its messages on this rank; other ranks' messages with this one do not end by that. Later calls fail. Never waits for
    /// calls of other threads: if some use it, the last of them ends it.
    pub fn abort(&self) {
        if self.users.fetch_or(ABORTED, Ordering::SeqCst) == 0 {
            self.end();
        }
    }

    /// Whether it was aborted. Asked after a message is over, it says whether an abort may have ended it.
    pub fn is_aborted(&self) -> bool {
        self.users.load(Ordering::SeqCst) & ABORTED != 0
    }

    fn enter(&self) -> Result<Used<'_>, DeviceError> {
        let before = self.users.fetch_add(1, Ordering::SeqCst);
        let used = Used(self);
        if before & ABORTED == 0 { Ok(used) } else { Err(self.aborted()) }
    }

    /// Ends an aborted communicator that nothing uses.
    fn end(&self) {
        if !self.is_ended.swap(true, Ordering::SeqCst) {
            // SAFETY: `join` has made it. Calls that enter from now on see that it was aborted and leave it alone, and it ends once.
            unsafe { self.library.abort(self.raw) };
        }
    }

    fn aborted(&self) -> DeviceError {
        let what = "the communicator was aborted, because an exchange over it failed".to_owned();
        DeviceError::Messages { device: self.device.ordinal(), call: "ncclCommAbort", what }
    }
}

/// A call that uses a communicator.
struct Used<'a>(&'a DeviceCommunicator);

impl Drop for Used<'_> {
    fn drop(&mut self) {
        if self.0.users.fetch_sub(1, Ordering::SeqCst) == ABORTED + 1 {
            self.0.end();
        }
    }
}

impl Drop for DeviceCommunicator {
    fn drop(&mut self) {
        if !*self.is_ended.get_mut() {
            // SAFETY: `join` has made it, and nothing else can use it any more.
            unsafe { self.library.destroy(self.raw) };
        }
    }
}
