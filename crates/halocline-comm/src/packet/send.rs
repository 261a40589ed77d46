//! The sender's side of a packet.

use super::header::{Header, Path, Reply, SEQUENCES, SMALL};
use super::parts::PartsSend;
use super::staged::StagedSend;
use super::{Packet, PacketContext, PacketError, PacketTag, Step};
use crate::communicator::Communicator;
use crate::endpoint::Endpoint;
use crate::mappings::{DeviceId, MappingError, Pinned, Requested, Target};
use crate::memory_resource::{Buffer, MemoryKind, Reservation};
use crate::transport::Post;
use halocline_device::Event;
use halocline_device::remote::Refusal;
use std::sync::Arc;
use std::time::Duration;

/// A packet on its way to a rank. Poll it until it is over; then the payload's memory was given back.
///
/// The header is sent once the payload's event has happened, or earlier work of a payload of a device. Packets of one channel
/// arrive in the order in which their headers are sent: poll the next one once [`PacketSend::is_posted`].
pub struct PacketSend {
    to: usize,
    /// This rank, once it was polled.
    from: usize,
    tag: PacketTag,
    header: Header,
    metadata: Vec<u8>,
    /// The length of the payload, which is moved to the transport.
    bytes: u64,
    device: Option<DeviceId>,
    is_posted: bool,
    copied: Copied,
    is_withdrawn: bool,
    /// At the last poll the content was not there yet. Whether it is there now says nothing about the next poll.
    awaits_content: bool,
    state: State,
}

/// Where the payload was copied, so that the receiver may reach it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Copied {
    Nowhere,
    /// To memory of its device that can be mapped.
    ToDevice,
    ToHost,
}

enum State {
    /// Its content is not there yet.
    Waiting(Option<Buffer>),
    /// Waits for memory of the library, to which it is copied.
    Staging {
        payload: Buffer,
        memory: Reservation,
    },
    /// A device copies it to memory of the library.
    Copying {
        payload: Buffer,
        copy: Buffer,
        event: Arc<Event>,
    },
    /// The receiver maps it.
    Mapping {
        payload: Buffer,
        requested: Requested,
    },
    /// The receiver copies it.
    Mapped {
        payload: Buffer,
        pinned: Pinned,
    },
    /// The receiver asks for one part after the other.
    Parts(PartsSend),
    /// The same from a device, through the host.
    Staged(StagedSend),
    Over,
}

impl PacketSend {
    /// A packet for a rank. Sends nothing yet.
    pub fn new(to: usize, tag: PacketTag, packet: Packet) -> Self {
        let Packet { metadata, payload } = packet;
        let bytes = payload.as_ref().map_or(0, |payload| payload.len() as u64);
        let length = payload.as_ref().map(|_| bytes);
        let header = Header { kind: 0, sequence: 0, words: [0; 4], payload: length, path: Path::Nothing };
        let (device, state) = (None, State::Waiting(payload));
        let (is_posted, is_withdrawn, awaits_content) = (false, false, false);
        let (from, copied) = (to, Copied::Nowhere);
        Self {
            to,
            from,
            tag,
            header,
            metadata,
            bytes,
            device,
            is_posted,
            copied,
            is_withdrawn,
            awaits_content,
            state,
        }
    }

    /// Sets the kind of the packet within its operation, and words of the operation. The receiver gets both.
    pub fn with_words(mut self, kind: u8, words: [u64; 4]) -> Self {
        (self.header.kind, self.header.words) = (kind, words);
        self
    }

    /// The number of the packet, below 2^59: unique among the packets of the operation between these two ranks that are in
    /// flight at once.
    pub fn numbered(mut self, sequence: u64) -> Self {
        self.header.sequence = sequence & (SEQUENCES - 1);
        self
    }

    /// The receiver's [`PacketContext::device`]. Without it, payloads of devices are staged through the host.
    pub fn to_device(mut self, device: Option<DeviceId>) -> Self {
        self.device = device;
        self
    }

    /// The receiver.
    pub fn to(&self) -> usize {
        self.to
    }

    /// The length of the payload.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether the header was sent, so that later packets of the channel may be.
    pub fn is_posted(&self) -> bool {
        self.is_posted
    }

    /// Whether nothing of it is in flight any more.
    pub fn is_over(&self) -> bool {
        matches!(self.state, State::Over)
    }

    /// Whether it can be dropped at once: the receiver does not know of it, and no device writes or copies its payload.
    pub fn is_withdrawable(&self) -> bool {
        self.is_over() || !self.is_posted && !self.is_in_use()
    }

    /// Whether a device still writes the payload, or copies it.
    fn is_in_use(&self) -> bool {
        match &self.state {
            State::Waiting(Some(payload)) => payload.is_ready() == Ok(false),
            State::Copying { .. } => true,
            State::Staged(staged) => staged.is_copying(),
            _ => false,
        }
    }

    /// Cancels a packet whose header was not sent yet; any other is sent as usual. Poll it until it is over: a
    /// device may be writing or copying it.
    pub fn withdraw(&mut self) {
        if !self.is_posted {
            self.abandon();
        }
    }

    /// Gives up a packet whose receiver has died, or has said that it copies nothing any more. Poll it until it is over.
    pub fn abandon(&mut self) {
        match self.is_in_use() {
            true => self.is_withdrawn = true,
            false => self.state = State::Over,
        }
    }

    /// When to poll again although no message has come: by what the last poll has found.
    pub fn due(&self, now: Duration) -> Option<Duration> {
        match &self.state {
            // No bell rings when an event happens. A copy of the library's is over soon.
            State::Waiting(_) => self.awaits_content.then_some(now + EVENT_POLL),
            State::Mapping { requested, .. } => Some(requested.due()),
            State::Staging { memory, .. } => memory.due(),
            State::Copying { .. } => Some(now),
            State::Staged(staged) => staged.due(now),
            State::Parts(parts) => parts.due(now),
            State::Mapped { .. } | State::Over => None,
        }
    }

    /// Does what is possible now. Never waits. True once it is over. After an error, drop it.
    pub fn poll(&mut self, context: &PacketContext) -> Result<bool, PacketError> {
        self.from = context.comm().rank();
        loop {
            let step = match std::mem::replace(&mut self.state, State::Over) {
                State::Waiting(payload) => self.await_content(context, payload)?,
                State::Staging { payload, memory } => self.await_memory(context, payload, memory)?,
                State::Copying { payload, copy, event } => self.await_copy(payload, copy, event)?,
                State::Mapping { payload, mut requested } => match requested.poll() {
                    Some(outcome) => Step::Next(self.mapped(context, payload, outcome)?),
                    None => Step::Wait(State::Mapping { payload, requested }),
                },
                State::Mapped { payload, pinned } => match self.reply(context)? {
                    Some(Reply::Copied) => Step::Next(State::Over),
                    // It cannot map what the header named.
                    Some(Reply::Unmapped) => Step::Next(parts_of(payload, context.part())),
                    Some(other) => return Err(self.unexpected(other)),
                    None => Step::Wait(State::Mapped { payload, pinned }),
                },
                State::Parts(parts) => self.send_parts(context, parts)?,
                State::Staged(mut staged) => match self.advance_staged(context, &mut staged)? {
                    true => Step::Next(State::Over),
                    false => Step::Wait(State::Staged(staged)),
                },
                State::Over => return Ok(true),
            };
            match step {
                Step::Next(state) => self.state = state,
                Step::Wait(state) => {
                    self.state = state;
                    return Ok(false);
                }
            }
        }
    }

    fn await_content(
        &mut self,
        context: &PacketContext,
        payload: Option<Buffer>,
    ) -> Result<Step<State>, PacketError> {
        let is_there = payload.as_ref().map_or(Ok(true), Buffer::is_ready)?;
        if !is_there {
            self.awaits_content = true;
            return Ok(Step::Wait(State::Waiting(payload)));
        }
        if self.is_withdrawn {
            return Ok(Step::Next(State::Over));
        }
        self.start(context, payload).map(Step::Next)
    }

    fn await_memory(
        &mut self,
        context: &PacketContext,
        payload: Buffer,
        mut memory: Reservation,
    ) -> Result<Step<State>, PacketError> {
        Ok(match self.staged(context, &payload, &mut memory)? {
            Some(copy) => Step::Next(State::Waiting(Some(copy))),
            None => Step::Wait(State::Staging { payload, memory }),
        })
    }

    fn await_copy(
        &self,
        payload: Buffer,
        copy: Buffer,
        event: Arc<Event>,
    ) -> Result<Step<State>, PacketError> {
        Ok(match event.query()? {
            true if self.is_withdrawn => Step::Next(State::Over),
            true => Step::Next(State::Waiting(Some(copy))),
            false => Step::Wait(State::Copying { payload, copy, event }),
        })
    }

    fn send_parts(&self, context: &PacketContext, mut parts: PartsSend) -> Result<Step<State>, PacketError> {
        let is_asked = !parts.is_lending()
            && match self.reply(context)? {
                Some(Reply::Ready) => true,
                Some(other) => return Err(self.unexpected(other)),
                None => false,
            };
        let tag = self.tag.payload(self.header.sequence);
        Ok(match parts.step(context, self.to, tag, is_asked)? {
            true => Step::Next(State::Over),
            false => Step::Wait(State::Parts(parts)),
        })
    }

    /// Chooses the path of the payload, which is there.
    fn start(&mut self, context: &PacketContext, payload: Option<Buffer>) -> Result<State, PacketError> {
        context.check_rank(self.to)?;
        let (found, most) = (self.metadata.len(), Packet::MOST_METADATA);
        if found > most {
            return Err(PacketError::Metadata { to: self.to, found, most });
        }
        let Some(payload) = payload.filter(|payload| !payload.is_empty()) else {
            self.post(context, Path::Nothing)?;
            return Ok(State::Over);
        };
        let on_host = payload.kind() != MemoryKind::Device;
        if on_host && self.bytes <= SMALL {
            let tag = self.tag.payload(self.header.sequence);
            let header = Post { tag: self.tag.header(), payload: self.written(context, Path::Message)? };
            context.comm().send_pair(self.to, [header, Post { tag, payload: into_message(payload) }])?;
            self.is_posted = true;
            return Ok(State::Over);
        }
        let device = if on_host { Some(DeviceId::HOST) } else { self.device };
        let target = device.map(|device| Target { rank: self.to, device });
        match target.filter(|_| context.shares_memory(self.to)) {
            Some(target) => {
                let requested = context.mappings().request(target, payload.address(), self.bytes);
                match requested {
                    Ok(requested) => Ok(State::Mapping { payload, requested }),
                    Err(error) => self.mapped(context, payload, Err(error)),
                }
            }
            None if on_host || !context.shares_memory(self.to) => self.in_parts(context, payload),
            None => self.stage(context, payload, Copied::ToHost),
        }
    }

    /// Names the mapping to the receiver, or takes another path.
    fn mapped(
        &mut self,
        context: &PacketContext,
        payload: Buffer,
        outcome: Result<Pinned, MappingError>,
    ) -> Result<State, PacketError> {
        match outcome {
            Ok(pinned) => {
                let on_device = payload.kind() == MemoryKind::Device;
                let (token, offset) = (pinned.token(), pinned.offset());
                self.post(context, Path::Mapped { token, offset, on_device })?;
                Ok(State::Mapped { payload, pinned })
            }
            Err(MappingError::Refused { why, .. })
                if is_of_memory(why)
                    && self.copied == Copied::Nowhere
                    && payload.kind() == MemoryKind::Device =>
            {
                self.stage(context, payload, Copied::ToDevice)
            }
            Err(MappingError::Refused { .. } | MappingError::Apart { .. }) => match self.copied {
                Copied::Nowhere | Copied::ToDevice => self.stage(context, payload, Copied::ToHost),
                Copied::ToHost => self.in_parts(context, payload),
            },
            Err(error) => Err(error.into()),
        }
    }

    /// True once all parts are sent, or after a withdrawal. An error waits for the copies in flight.
    fn advance_staged(&self, context: &PacketContext, staged: &mut StagedSend) -> Result<bool, PacketError> {
        if self.is_withdrawn {
            return Ok(!staged.look_for_copies());
        }
        let reply = if staged.copy(context)? { self.reply(context) } else { Ok(None) };
        let is_asked = match reply {
            Ok(Some(Reply::Ready)) => Ok(true),
            Ok(Some(other)) => Err(self.unexpected(other)),
            Ok(None) => Ok(false),
            Err(error) => Err(error),
        };
        let tag = self.tag.payload(self.header.sequence);
        is_asked.and_then(|is_asked| staged.step(context, self.to, tag, is_asked)).or_else(|error| {
            staged.fail(error);
            Ok(false)
        })
    }

    /// One part travels while a device copies the next one.
    fn in_parts(&mut self, context: &PacketContext, payload: Buffer) -> Result<State, PacketError> {
        let part = match payload.kind() {
            MemoryKind::Device => context.staged_part(),
            MemoryKind::Host | MemoryKind::Pinned => context.part(),
        };
        self.post(context, Path::Parts { part: part as u64 })?;
        Ok(parts_of(payload, part))
    }

    /// Begins a copy to memory that peers may reach.
    fn stage(
        &mut self,
        context: &PacketContext,
        payload: Buffer,
        copied: Copied,
    ) -> Result<State, PacketError> {
        let Some(device) = payload.device().filter(|_| payload.kind() == MemoryKind::Device) else {
            return Ok(State::Staging { memory: Reservation::new(payload.len()), payload });
        };
        let (from, bytes) = (self.from, self.bytes);
        let copier = context.copier(device)?;
        let copy = match copied {
            Copied::ToDevice => copier.mailbox(payload.len()),
            Copied::Nowhere | Copied::ToHost => copier.stage(payload.len()),
        };
        let copy = copy.map_err(|error| PacketError::Memory { from, bytes, error })?;
        // SAFETY: the content of the payload is there, and fresh memory of its length is the target. The state keeps both until the
        // event has happened.
        let event = unsafe { copier.copy(copy.address(), payload.address(), payload.len()) }?;
        self.copied = copied;
        Ok(State::Copying { payload, copy, event })
    }

    /// A copy in memory that peers may reach.
    fn staged(
        &mut self,
        context: &PacketContext,
        payload: &Buffer,
        memory: &mut Reservation,
    ) -> Result<Option<Buffer>, PacketError> {
        // The resource of the operation is for what it receives. If copies of what two ranks send each other took its limit, each
        // would wait for the other to give memory back.
        let reserved = memory.poll(context.host(), context.now(), context.waker());
        let from = context.comm().rank();
        let no_memory = |error| PacketError::Memory { from, bytes: self.bytes, error };
        let Some(mut copy) = reserved.map_err(no_memory)? else { return Ok(None) };
        if let (Some(to), Some(bytes)) = (copy.bytes_mut(), payload.bytes()) {
            to.copy_from_slice(bytes);
        }
        self.copied = Copied::ToHost;
        Ok(Some(copy))
    }

    fn post(&mut self, context: &PacketContext, path: Path) -> Result<(), PacketError> {
        let message = self.written(context, path)?;
        context.comm().send(self.to, self.tag.header(), message)?;
        self.is_posted = true;
        Ok(())
    }

    /// The header message.
    fn written(&mut self, context: &PacketContext, path: Path) -> Result<Vec<u8>, PacketError> {
        self.header.path = path;
        let metadata = std::mem::take(&mut self.metadata);
        let mut message = context.message(Header::length(&metadata))?;
        self.header.write(&metadata, &mut message);
        Ok(message)
    }

    fn reply(&self, context: &PacketContext) -> Result<Option<Reply>, PacketError> {
        let tag = self.tag.reply(self.header.sequence);
        let Some(message) = context.comm().link().inbox().take(tag, Some(self.to)) else { return Ok(None) };
        let malformed = |error| PacketError::Malformed { from: self.to, what: "reply to a packet", error };
        Reply::decode(&message.payload).map(Some).map_err(malformed)
    }

    fn unexpected(&self, reply: Reply) -> PacketError {
        let why = match reply {
            Reply::Refused(why) => why,
            other => {
                format!("it replied {other:?} out of turn; run the same version of Halocline on all ranks")
            }
        };
        PacketError::Refused { to: self.to, from: self.from, bytes: self.bytes, why }
    }
}

/// Whether other memory of the same device may be mapped.
fn is_of_memory(why: Refusal) -> bool {
    use Refusal as R;
    matches!(
        why,
        R::Private | R::DefaultPool | R::NoHandleType | R::TooManyPieces | R::TooLarge | R::AlreadyOpen
    )
}

/// How often an event, or a buffer that the transport borrows, is polled.
pub(super) const EVENT_POLL: Duration = Duration::from_micros(20);

/// Sends a payload from where it lies, in parts that the receiver asks for.
fn parts_of(payload: Buffer, part: usize) -> State {
    match payload.device().filter(|_| payload.kind() == MemoryKind::Device).cloned() {
        Some(device) => State::Staged(StagedSend::new(payload, device, part)),
        None => State::Parts(PartsSend::new(payload, part)),
    }
}

/// The bytes as a message: the vector itself, or a copy.
fn into_message(mut payload: Buffer) -> Vec<u8> {
    payload.take_vec().unwrap_or_else(|| {
        let bytes = payload.bytes().unwrap_or_default();
        let mut message = crate::buffers::take(bytes.len() + Communicator::SPARE);
        message.extend_from_slice(bytes);
        message
    })
}
