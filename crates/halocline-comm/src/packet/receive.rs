//! The receiver's side of a packet.

use super::header::{Header, Reply, Way};
use super::parts::PartsReceive;
use super::send::EVENT_POLL;
use super::{Packet, PacketContext, PacketError, PacketTag};
use crate::endpoint::Endpoint;
use crate::memory_resource::{Buffer, MemoryError, Reservation};
use std::time::Duration;

/// A packet that is being received: its header has come. Poll it until it is over.
pub struct PacketReceive {
    from: usize,
    tag: PacketTag,
    header: Header,
    metadata: Vec<u8>,
    payload: Option<Buffer>,
    state: State,
}

enum State {
    /// Waits for memory.
    Reserving(Reservation),
    /// Has memory; the payload is the next message.
    Message(Buffer),
    /// The payload comes in parts.
    Parts(PartsReceive),
    /// The payload is there.
    Ready,
    /// The packet was taken.
    Taken,
}

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
        let (payload, state) = match (header.payload, header.way) {
            (payload, Way::Nothing) => (payload.map(|_| Buffer::default()), State::Ready),
            (length, _) => {
                let bytes = usize::try_from(length.unwrap_or(0)).unwrap_or(usize::MAX);
                (None, State::Reserving(Reservation::new(bytes)))
            }
        };
        Ok(Some(Self { from, tag, header, metadata, payload, state }))
    }

    /// The sender.
    pub fn from(&self) -> usize {
        self.from
    }

    /// What the operation means by the packet.
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
        matches!(self.state, State::Ready | State::Taken)
    }

    /// Whether the packet was taken.
    pub fn is_taken(&self) -> bool {
        matches!(self.state, State::Taken)
    }

    /// Whether nothing of it is in flight any more.
    pub fn is_over(&self) -> bool {
        self.is_ready()
    }

    /// Takes the packet once it is ready. Keep polling until it is over.
    pub fn take(&mut self) -> Option<Packet> {
        let State::Ready = self.state else { return None };
        self.state = State::Taken;
        Some(Packet { metadata: std::mem::take(&mut self.metadata), payload: self.payload.take() })
    }

    /// When to poll again although no message has come.
    pub fn due(&self, now: Duration) -> Option<Duration> {
        match &self.state {
            State::Reserving(memory) => memory.due(),
            State::Parts(parts) => parts.is_lending().then_some(now + EVENT_POLL),
            _ => None,
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

    /// Tells the sender that this rank gives up, and withdraws what waits for the payload.
    pub fn refuse(&mut self, context: &PacketContext, why: &str) {
        if let State::Parts(parts) = &self.state {
            parts.withdraw(context, self.tag.payload(self.header.sequence));
        }
        let is_awaited = matches!(self.header.way, Way::Mapped { .. } | Way::Parts) && !self.is_ready();
        if is_awaited {
            // A sender that cannot be reached waits no more.
            let _ = self.reply(context, &Reply::Refused(why.to_owned()));
        }
        self.state = State::Taken;
    }

    fn advance(&mut self, context: &PacketContext) -> Result<bool, PacketError> {
        loop {
            match &mut self.state {
                State::Reserving(memory) => {
                    let reserved = memory.poll(context.resource(), context.now(), context.waker());
                    let bytes = self.header.payload.unwrap_or(0);
                    let no_memory =
                        |error: MemoryError| PacketError::Memory { from: self.from, bytes, error };
                    let Some(buffer) = reserved.map_err(no_memory)? else { return Ok(false) };
                    self.state = self.start(context, buffer)?;
                }
                State::Message(buffer) => {
                    let tag = self.tag.payload(self.header.sequence);
                    let inbox = context.comm().link().inbox();
                    let Some(message) = inbox.take(tag, Some(self.from)) else { return Ok(false) };
                    let (announced, found) = (buffer.len() as u64, message.payload.len() as u64);
                    if announced != found {
                        return Err(PacketError::Length { from: self.from, announced, found });
                    }
                    if let Some(to) = buffer.bytes_mut() {
                        to.copy_from_slice(&message.payload);
                    }
                    crate::buffers::put(message.payload);
                    self.payload = Some(std::mem::take(buffer));
                    self.state = State::Ready;
                }
                State::Parts(parts) => {
                    let tag = self.tag.payload(self.header.sequence);
                    let (to, ready) = (self.from, self.tag.reply(self.header.sequence));
                    let ready = || Ok(context.comm().send(to, ready, Reply::Ready.encode())?);
                    if !parts.step(context, self.from, tag, ready)? {
                        return Ok(false);
                    }
                    let State::Parts(parts) = std::mem::replace(&mut self.state, State::Ready) else {
                        return Ok(false);
                    };
                    self.payload = Some(parts.into_buffer());
                }
                State::Ready | State::Taken => return Ok(true),
            }
        }
    }

    /// Begins to receive into reserved memory.
    fn start(&mut self, context: &PacketContext, mut buffer: Buffer) -> Result<State, PacketError> {
        match self.header.way {
            Way::Message | Way::Nothing => Ok(State::Message(buffer)),
            Way::Parts => Ok(State::Parts(PartsReceive::new(buffer))),
            Way::Mapped { token, offset, on_device } => {
                let length = self.header.payload.unwrap_or(0);
                let mapping = context.mappings().resolve(self.from, token, offset, length);
                let mapping = match mapping {
                    Ok(mapping) if !on_device => mapping,
                    Ok(_) => {
                        self.reply(context, &Reply::Unmapped)?;
                        return Ok(State::Parts(PartsReceive::new(buffer)));
                    }
                    Err(error) => return Err(error.into()),
                };
                if let Some(to) = buffer.bytes_mut() {
                    let from = std::ptr::with_exposed_provenance::<u8>(mapping.address() as usize);
                    // SAFETY: the sender has pinned the mapping of `to.len()` bytes and does not write them until it gets
                    // the reply. `mapping` keeps them mapped here, and `to` is memory of this rank.
                    unsafe { to.as_mut_ptr().copy_from_nonoverlapping(from, to.len()) };
                }
                drop(mapping);
                self.reply(context, &Reply::Copied)?;
                self.payload = Some(buffer);
                Ok(State::Ready)
            }
        }
    }

    fn reply(&self, context: &PacketContext, reply: &Reply) -> Result<(), PacketError> {
        let tag = self.tag.reply(self.header.sequence);
        Ok(context.comm().send(self.from, tag, reply.encode())?)
    }
}
