//! The receiver's side of a packet.

use super::copy::{Copying, Source, Target};
use super::header::{Header, HeaderError, Path, Reply};
use super::parts::PartsReceive;
use super::staged::StagedReceive;
use super::{Packet, PacketContext, PacketError, PacketTag, Step};
use crate::endpoint::Endpoint;
use crate::mappings::{Kind, Mapping};
use crate::memory_resource::{Buffer, MemoryError, MemoryKind, Reservation};
use std::time::Duration;

/// A packet that is being received: its header has come. Poll it until it is over.
pub struct PacketReceive {
    from: usize,
    tag: PacketTag,
    header: Header,
    metadata: Vec<u8>,
    payload: Option<Buffer>,
    is_ready: bool,
    is_taken: bool,
    state: State,
}

enum State {
    /// The payload is a message that has not come yet.
    Message,
    /// Waits for memory; the payload, if it is a message.
    Reserving {
        memory: Reservation,
        message: Option<Vec<u8>>,
    },
    /// The payload comes in parts.
    Parts(PartsReceive),
    /// The same for memory of a device, through the host.
    Staged(StagedReceive),
    /// This rank copies the payload from mapped memory of the host.
    Filling(Filling),
    /// A device copies the payload.
    Copying(Copying),
    Over,
}

/// A copy from mapped memory of the host, some bytes in each poll: others may wait for the lock of the operation.
struct Filling {
    mapping: Mapping,
    /// The payload, or pinned memory that is copied to it.
    target: Buffer,
    /// A payload on a device.
    beyond: Option<Buffer>,
    filled: usize,
}

/// The most bytes that the host copies in one poll: as many as take about a millisecond.
const FILL: usize = if cfg!(test) { 50_000 } else { 8 << 20 };

impl PacketReceive {
    /// The next packet of a channel from a rank, if its header has come. Never waits.
    pub fn next(context: &PacketContext, from: usize, tag: PacketTag) -> Result<Option<Self>, PacketError> {
        let inbox = context.comm().link().inbox();
        let Some(message) = inbox.take(tag.header(), Some(from)) else { return Ok(None) };
        let malformed = |error| PacketError::Malformed { from, what: "header of a packet", error };
        let (header, rest) = Header::read(&message.payload).map_err(malformed)?;
        let behind = message.payload.len() - rest.len();
        let mut metadata = message.payload;
        metadata.drain(..behind);
        let (payload, state) = match (header.payload, header.path) {
            (payload, Path::Nothing) => (payload.map(|_| Buffer::empty_of(context.resource())), State::Over),
            (_, Path::Message) => (None, State::Message),
            (length, _) => {
                let bytes = usize::try_from(length.unwrap_or(0)).unwrap_or(usize::MAX);
                (None, State::Reserving { memory: Reservation::new(bytes), message: None })
            }
        };
        let is_ready = matches!(state, State::Over);
        Ok(Some(Self { from, tag, header, metadata, payload, is_ready, is_taken: false, state }))
    }

    /// The sender.
    pub fn from(&self) -> usize {
        self.from
    }

    /// The kind of the packet within its operation.
    pub fn kind(&self) -> u8 {
        self.header.kind
    }

    /// The sender's words.
    pub fn words(&self) -> [u64; 4] {
        self.header.words
    }

    /// The sender's number of the packet.
    pub fn sequence(&self) -> u64 {
        self.header.sequence
    }

    /// The length of the payload, which may not have come yet; `None` if the packet has none.
    pub fn bytes(&self) -> Option<u64> {
        self.header.payload
    }

    /// The metadata.
    pub fn metadata(&self) -> &[u8] {
        &self.metadata
    }

    /// Whether the packet can be taken, or was.
    pub fn is_ready(&self) -> bool {
        self.is_ready
    }

    /// Whether this rank has no memory for the payload so far.
    pub fn is_short_of_memory(&self) -> bool {
        matches!(self.state, State::Reserving { .. })
    }

    /// Whether it cannot become ready without its sender: not if the bytes are here.
    pub fn needs_sender(&self) -> bool {
        match &self.state {
            State::Message | State::Parts(_) | State::Staged(_) | State::Filling(_) => true,
            State::Reserving { message, .. } => message.is_none(),
            State::Copying(copying) => matches!(copying.source, Source::Mapped(_)),
            State::Over => false,
        }
    }

    /// Whether this rank copies the payload.
    pub fn is_copying(&self) -> bool {
        matches!(self.state, State::Filling(_) | State::Copying(_))
    }

    /// Whether the packet was taken.
    pub fn is_taken(&self) -> bool {
        self.is_taken
    }

    /// Whether nothing of it is in flight any more.
    pub fn is_over(&self) -> bool {
        matches!(self.state, State::Over)
    }

    /// Takes the packet once it is ready. Keep polling until it is over.
    pub fn take(&mut self) -> Option<Packet> {
        if !self.is_ready || std::mem::replace(&mut self.is_taken, true) {
            return None;
        }
        Some(Packet { metadata: std::mem::take(&mut self.metadata), payload: self.payload.take() })
    }

    /// When to poll again although no message has come.
    pub fn due(&self, now: Duration) -> Option<Duration> {
        match &self.state {
            State::Reserving { memory, .. } => memory.due(),
            State::Parts(parts) => parts.is_settling().then_some(now),
            State::Staged(staged) => staged.due(now),
            // No bell rings when an event happens, which is soon.
            State::Filling(_) | State::Copying(_) => Some(now),
            State::Message | State::Over => None,
        }
    }

    /// Does what is possible now. Never waits. True once it is over. After an error the sender knows, and it can be dropped.
    pub fn poll(&mut self, context: &PacketContext) -> Result<bool, PacketError> {
        let polled = self.advance(context);
        if let Err(error) = &polled {
            self.refuse(context, &error.to_string());
        }
        polled
    }

    /// Tells the sender that this rank gives up, and withdraws what waits for the payload. A copy in flight goes on: keep
    /// polling until it is over.
    pub fn refuse(&mut self, context: &PacketContext, why: &str) {
        if let State::Copying(_) = self.state {
            return;
        }
        let tag = self.tag.payload(self.header.sequence);
        if matches!(self.header.path, Path::Mapped { .. } | Path::Parts { .. }) && !self.is_ready {
            // A sender that cannot be reached waits no more.
            let _ = self.reply(context, &Reply::Refused(why.to_owned()));
        }
        (self.is_ready, self.is_taken) = (true, true);
        self.state = match std::mem::replace(&mut self.state, State::Over) {
            State::Parts(parts) => {
                parts.withdraw(context, self.from, tag);
                State::Over
            }
            State::Staged(staged) => {
                staged.withdraw(context, self.from, tag);
                staged.into_payload().1.map_or(State::Over, State::Copying)
            }
            _ => State::Over,
        };
    }

    fn advance(&mut self, context: &PacketContext) -> Result<bool, PacketError> {
        loop {
            let step = match std::mem::replace(&mut self.state, State::Over) {
                State::Reserving { memory, message } => self.reserve(context, memory, message)?,
                State::Message => self.take_message(context)?,
                State::Parts(parts) => self.receive_parts(context, parts)?,
                State::Staged(staged) => self.receive_staged(context, staged)?,
                State::Filling(filling) => self.go_on_filling(context, filling)?,
                State::Copying(copying) => self.go_on_copying(context, copying)?,
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

    fn reserve(
        &mut self,
        context: &PacketContext,
        mut memory: Reservation,
        message: Option<Vec<u8>>,
    ) -> Result<Step<State>, PacketError> {
        let reserved = memory.poll(context.resource(), context.now(), context.waker());
        let Some(buffer) = reserved.map_err(|error| self.no_memory(error))? else {
            return Ok(Step::Wait(State::Reserving { memory, message }));
        };
        order(context, &buffer)?;
        let Some(message) = message else { return self.start(context, buffer).map(Step::Next) };
        let next = self.fill(context, buffer, &message)?;
        crate::buffers::put(message);
        Ok(Step::Next(next))
    }

    fn take_message(&mut self, context: &PacketContext) -> Result<Step<State>, PacketError> {
        let tag = self.tag.payload(self.header.sequence);
        let Some(message) = context.comm().link().inbox().take(tag, Some(self.from)) else {
            return Ok(Step::Wait(State::Message));
        };
        let (announced, found) = (self.header.payload, message.payload.len() as u64);
        if let Some(announced) = announced.filter(|announced| *announced != found) {
            return Err(PacketError::Length { from: self.from, announced, found });
        }
        Ok(Step::Next(match context.resource().adopt(message.payload) {
            Ok(payload) => self.ready(payload),
            Err(message) => {
                let memory = Reservation::new(message.len());
                State::Reserving { memory, message: Some(message) }
            }
        }))
    }

    fn receive_parts(
        &mut self,
        context: &PacketContext,
        mut parts: PartsReceive,
    ) -> Result<Step<State>, PacketError> {
        let tag = self.tag.payload(self.header.sequence);
        match parts.step(context, self.from, tag, || self.reply(context, &Reply::Ready)) {
            Ok(true) => Ok(Step::Next(self.ready(parts.into_buffer()))),
            Ok(false) => Ok(Step::Wait(State::Parts(parts))),
            Err(error) => {
                // `refuse` withdraws what is posted.
                self.state = State::Parts(parts);
                Err(error)
            }
        }
    }

    fn receive_staged(
        &mut self,
        context: &PacketContext,
        mut staged: StagedReceive,
    ) -> Result<Step<State>, PacketError> {
        let tag = self.tag.payload(self.header.sequence);
        match staged.step(context, self.from, tag, || self.reply(context, &Reply::Ready)) {
            Ok(true) => {
                let (payload, copying) = staged.into_payload();
                let over = self.ready(payload);
                Ok(Step::Next(copying.map_or(over, State::Copying)))
            }
            Ok(false) => Ok(Step::Wait(State::Staged(staged))),
            Err(error) => {
                // `refuse` withdraws what is posted.
                self.state = State::Staged(staged);
                Err(error)
            }
        }
    }

    fn go_on_filling(
        &mut self,
        context: &PacketContext,
        mut filling: Filling,
    ) -> Result<Step<State>, PacketError> {
        let Some(is_filled) = filling.step() else {
            return Err(self.unwritable(filling.target.len()));
        };
        if !is_filled {
            return Ok(Step::Wait(State::Filling(filling)));
        }
        drop(filling.mapping);
        self.reply(context, &Reply::Copied)?;
        Ok(Step::Next(match filling.beyond {
            Some(payload) => self.upload(context, filling.target, payload)?,
            None => self.ready(filling.target),
        }))
    }

    fn go_on_copying(
        &mut self,
        context: &PacketContext,
        copying: Copying,
    ) -> Result<Step<State>, PacketError> {
        if !copying.is_done()? {
            return Ok(Step::Wait(State::Copying(copying)));
        }
        let is_mapped = matches!(copying.source, Source::Mapped(_));
        let payload = copying.finish();
        if is_mapped {
            self.reply(context, &Reply::Copied)?;
        }
        Ok(Step::Next(payload.map_or(State::Over, |payload| self.ready(payload))))
    }

    fn no_memory(&self, error: MemoryError) -> PacketError {
        PacketError::Memory { from: self.from, bytes: self.header.payload.unwrap_or(0), error }
    }

    fn unwritable(&self, asked: usize) -> PacketError {
        let why = "it gave a buffer of the host that cannot be written".to_owned();
        self.no_memory(MemoryError::Faulty { asked, why })
    }

    fn ready(&mut self, payload: Buffer) -> State {
        (self.payload, self.is_ready) = (Some(payload), true);
        State::Over
    }

    /// Begins to receive into reserved memory.
    fn start(&mut self, context: &PacketContext, buffer: Buffer) -> Result<State, PacketError> {
        let Path::Mapped { token, offset, on_device } = self.header.path else {
            return Ok(self.in_parts(context, buffer));
        };
        let length = self.header.payload.unwrap_or(0);
        let mapping = context.mappings().resolve(self.from, token, offset, length)?;
        let is_host = mapping.kind().map(|kind| kind == Kind::Memfd);
        if is_host == Some(on_device) {
            let error = HeaderError::Field { field: "kind of memory", value: on_device.into() };
            return Err(PacketError::Malformed { from: self.from, what: "header of a packet", error });
        }
        if on_device && context.device() != mapping.device() {
            // The sender knows the device of an earlier operation.
            drop(mapping);
            self.reply(context, &Reply::Unmapped)?;
            return Ok(self.in_parts(context, buffer));
        }
        if on_device {
            return self.download(context, mapping, buffer);
        }
        let (target, beyond) = self.writable(context, buffer)?;
        Ok(State::Filling(Filling { mapping, target, beyond, filled: 0 }))
    }

    /// Memory that the host writes: the payload, or pinned memory and the payload on a device that it is copied to.
    fn writable(
        &self,
        context: &PacketContext,
        mut payload: Buffer,
    ) -> Result<(Buffer, Option<Buffer>), PacketError> {
        if payload.bytes_mut().is_some() {
            return Ok((payload, None));
        }
        let Some(device) = payload.device().cloned() else {
            return Err(self.unwritable(payload.len()));
        };
        let staging = context.copier(&device)?.stage(payload.len());
        Ok((staging.map_err(|error| self.no_memory(error))?, Some(payload)))
    }

    fn in_parts(&self, context: &PacketContext, buffer: Buffer) -> State {
        let part = match self.header.path {
            Path::Parts { part } => usize::try_from(part).unwrap_or(usize::MAX),
            // The sender has heard that its memory cannot be mapped.
            _ => context.part(),
        };
        match buffer.device().filter(|_| buffer.kind() == MemoryKind::Device).cloned() {
            Some(device) => State::Staged(StagedReceive::new(buffer, device, part)),
            None => State::Parts(PartsReceive::new(buffer, part)),
        }
    }

    /// Copies bytes of the host to the payload.
    fn fill(&mut self, context: &PacketContext, buffer: Buffer, bytes: &[u8]) -> Result<State, PacketError> {
        let (mut target, beyond) = self.writable(context, buffer)?;
        if let Some(to) = target.bytes_mut() {
            to.copy_from_slice(bytes);
        }
        match beyond {
            Some(payload) => self.upload(context, target, payload),
            None => Ok(self.ready(target)),
        }
    }

    /// Copies pinned memory to the payload on a device; the user gets that with the event of the copy.
    fn upload(
        &mut self,
        context: &PacketContext,
        staging: Buffer,
        buffer: Buffer,
    ) -> Result<State, PacketError> {
        let Some(device) = buffer.device() else { return Ok(self.ready(staging)) };
        // SAFETY: pinned memory and memory of the device of one length, both fresh; the state keeps them until the event has
        // happened, and the user reads the payload after the event.
        let event =
            unsafe { context.copier(device)?.copy(buffer.address(), staging.address(), buffer.len()) }?;
        let copying = Copying::new(event.clone(), Source::Own(vec![staging]), Target::Given(buffer.kept()));
        let _ = self.ready(buffer.with_event(event));
        Ok(State::Copying(copying))
    }

    /// Copies mapped memory of a device to the payload, wherever that lies.
    fn download(
        &mut self,
        context: &PacketContext,
        mapping: Mapping,
        buffer: Buffer,
    ) -> Result<State, PacketError> {
        let Some(device) = context.resource().device() else { return Ok(State::Over) };
        let copier = context.copier(device)?;
        let staging = match buffer.kind() {
            MemoryKind::Host => Some(copier.stage(buffer.len()).map_err(|error| self.no_memory(error))?),
            MemoryKind::Pinned | MemoryKind::Device => None,
        };
        let target = staging.as_ref().unwrap_or(&buffer).address();
        // SAFETY: the sender has pinned the mapping of so many bytes, and neither writes nor frees them until it gets the reply.
        // The target is fresh memory of the device or pinned memory. The state keeps both until the event has happened, and the
        // user reads the payload after the event.
        let event = unsafe { copier.copy(target, mapping.address(), buffer.len()) }?;
        let target = match (staging, buffer.kind()) {
            (Some(staging), _) => Target::Staged { staging, payload: buffer },
            (None, MemoryKind::Device) => {
                let kept = buffer.kept();
                let _ = self.ready(buffer.with_event(event.clone()));
                Target::Given(kept)
            }
            (None, _) => Target::Payload(buffer),
        };
        Ok(State::Copying(Copying::new(event, Source::Mapped(mapping), target)))
    }

    fn reply(&self, context: &PacketContext, reply: &Reply) -> Result<(), PacketError> {
        let tag = self.tag.reply(self.header.sequence);
        Ok(context.comm().send(self.from, tag, reply.encode())?)
    }
}

/// Orders copies to memory of a device after what its resource waits for: a former use of the memory.
fn order(context: &PacketContext, buffer: &Buffer) -> Result<(), PacketError> {
    match buffer.device() {
        Some(device) if buffer.waits() => Ok(context.copier(device)?.after(buffer)?),
        _ => Ok(()),
    }
}

impl Filling {
    /// Copies some bytes. True once all are copied; `None` if the host cannot write there.
    fn step(&mut self) -> Option<bool> {
        let from = std::ptr::with_exposed_provenance::<u8>(self.mapping.address() as usize);
        // SAFETY: the sender has pinned the mapping of as many bytes of host memory as the target has, and does not write them until
        // it gets the reply. `mapping` keeps them mapped here.
        let bytes = unsafe { std::slice::from_raw_parts(from, self.target.len()) };
        let part = self.filled..bytes.len().min(self.filled + FILL);
        self.target.bytes_mut()?.get_mut(part.clone())?.copy_from_slice(&bytes[part.clone()]);
        self.filled = part.end;
        Some(part.end == bytes.len())
    }
}
