//! One drive of a service: receives messages, carries out the effects of the protocol, frees memory.

use super::{DeferredFree, Open, RELEASE_WITHIN, Service, State, TAG, lock};
use crate::mappings::host::refusal;
use crate::mappings::message::{Descriptor, Message, MessageError};
use crate::mappings::protocol::{Answer, Effect, Unmap};
use crate::segment::Segment;
use crate::transport::{PeerState, Transport};
use halocline_device::Address;
use halocline_device::remote::{Allocation, Export, Provider, Refusal, once_nothing_waits};
use rustix::io::Errno;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

impl Service {
    /// Does all work that is possible now, or leaves it to a thread that drives: then false. Blocks only for driver calls that
    /// open or close.
    pub(in crate::mappings) fn drive(&self, transport: &dyn Transport) -> bool {
        let mut is_done = false;
        let owes = || transport.own_bell().demand(transport.host());
        self.claim.turn(owes, || {
            is_done = true;
            let mut has_changed = false;
            loop {
                let departed = self.departed(transport);
                let mut is_busy = !departed.is_empty();
                // All messages of a rank are in the inbox before its departure shows.
                while let Some(message) = transport.inbox().take(TAG, None) {
                    self.receive(transport, message);
                    is_busy = true;
                }
                departed.into_iter().for_each(|rank| self.with(|protocol| protocol.is_gone(rank)));
                while let Some(effect) = self.with(|protocol| protocol.out.pop_front()) {
                    self.carry_out(transport, effect);
                    is_busy = true;
                }
                if !is_busy {
                    break;
                }
                has_changed = true;
            }
            self.free(transport);
            if has_changed || self.rings.swap(false, Ordering::AcqRel) {
                transport.own_bell().changed(transport.host());
            }
        });
        is_done
    }

    /// Makes the next drive ring, even if it changes nothing.
    pub(in crate::mappings) fn ring(&self) {
        self.rings.store(true, Ordering::Release);
    }

    /// Frees memory that no rank has mapped, or that ranks have not unmapped in time: the driver keeps it until they close it.
    fn free(&self, transport: &dyn Transport) {
        let mut state = self.lock();
        let State { freeing, protocol, .. } = &mut *state;
        if freeing.is_empty() {
            return;
        }
        let now = transport.host().now();
        let is_due = |deferred: &mut DeferredFree| match protocol.unmap_state(&deferred.entries) {
            Unmap::InUse => false,
            Unmap::Unmapping => now >= *deferred.until.get_or_insert(now + RELEASE_WITHIN),
            Unmap::Over => true,
        };
        let due: Vec<DeferredFree> = freeing.extract_if(.., |deferred| is_due(deferred)).collect();
        let holders: Vec<Vec<usize>> =
            due.iter().map(|deferred| protocol.holders(&deferred.entries)).collect();
        drop(state);
        for (deferred, ranks) in due.iter().zip(holders).filter(|(_, ranks)| !ranks.is_empty()) {
            tracing::warn!(
                "rank {}: {:?}: ranks {ranks:?} have it mapped {RELEASE_WITHIN:?} after it was dropped; it is freed once they \
                 close it",
                transport.rank(),
                deferred.freeing
            );
        }
    }

    /// Ranks that have ended or died, if there may be new ones.
    fn departed(&self, transport: &dyn Transport) -> Vec<usize> {
        let now = transport.departures();
        if std::mem::replace(&mut self.lock().departures, now) == now {
            return Vec::new();
        }
        let is_over = |rank: &usize| matches!(transport.state(*rank), PeerState::Ended | PeerState::Dead);
        (0..transport.size()).filter(is_over).collect()
    }

    fn receive(&self, transport: &dyn Transport, message: crate::inbox::Message) {
        let from = message.source;
        let mut state = self.lock();
        let decoded = Message::decode(&message.payload);
        let now = transport.host().now();
        let attached = message.missing.map_or(Ok(message.segments), |why| Err(refusal(&why)));
        let taken = decoded.and_then(|decoded| state.protocol.receive(from, decoded, attached, now));
        let Err(error) = taken else { return };
        tracing::error!(
            "rank {}: a message about mappings from rank {from} is refused: {error}; run the same version of Halocline on all \
             ranks",
            transport.rank()
        );
        state.malformed += 1;
        if let MessageError::Wire(_) = error {
            // Its content is lost: neither side waits for it.
            state.protocol.is_gone(from);
            state.protocol.out.push_back(Effect::Post { to: from, message: Message::Gone });
        }
    }

    fn carry_out(&self, transport: &dyn Transport, effect: Effect) {
        match effect {
            Effect::Post { to, message } => self.post(transport, to, &message, &[]),
            Effect::Offer { entry, target, allocation } => match self.export(&allocation) {
                Ok(Export { handle, descriptors }) => {
                    let descriptor = Descriptor { process: self.process, allocation, handle };
                    let message = Message::Offer { entry, device: target.device, descriptor };
                    let attached: Vec<_> =
                        descriptors.into_iter().map(|fd| Segment::handle(None, fd)).collect();
                    self.post(transport, target.rank, &message, &attached);
                }
                Err(why) => self.with(|protocol| protocol.failed(entry, target, why)),
            },
            Effect::Open { token, device, descriptor, attached } => {
                let provider = self.lock().provider(device);
                let outcome = provider
                    .ok_or(Refusal::NoDevice)
                    .and_then(|provider| self.open(token, provider, &descriptor, &attached?));
                self.with(|protocol| protocol.opened(token, outcome));
            }
            Effect::Close { token } => {
                let opened = self.lock().opened.remove(&token);
                let (state, weak) = (Arc::clone(&self.state), Weak::clone(&self.transport));
                close(transport.rank(), opened, move |is_here| {
                    lock(&state).protocol.closed(token);
                    if !is_here && let Some(transport) = weak.upgrade() {
                        // `UNMAPPED` is to be sent, and a thread may wait for this.
                        transport.own_bell().demand(transport.host());
                        transport.own_bell().changed(transport.host());
                    }
                });
            }
            Effect::Answer { request, answer } => {
                let mut state = self.lock();
                if state.awaited.contains(&request) {
                    state.answers.insert(request, answer);
                } else if let Answer::Mapped { entry, .. } = answer {
                    state.protocol.unpin(entry, transport.host().now());
                }
            }
            Effect::Arrived(arrival) => self.lock().arrivals.push_back(arrival),
        }
    }

    fn post(&self, transport: &dyn Transport, to: usize, message: &Message, attached: &[Arc<Segment>]) {
        {
            let mut state = self.lock();
            state.contacted.insert(to);
            state.messages += 1;
        }
        if let Err(error) = transport.post(to, TAG, message.encode(), attached) {
            tracing::error!(
                "rank {}: a message about mappings to rank {to} is lost: {error}",
                transport.rank()
            );
            self.with(|protocol| protocol.is_gone(to));
        }
    }

    /// The export is not cached: a descriptor would keep freed memory alive.
    fn export(&self, allocation: &Allocation) -> Result<Export, Refusal> {
        let provider = self.lock().provider(allocation.device).ok_or(Refusal::NoDevice)?;
        let found = provider.find(allocation.base, allocation.bytes);
        if found != Some(*allocation) {
            // The memory was freed after the request; the address has been reused.
            return Err(Refusal::BadHandle);
        }
        provider.export(allocation)
    }

    fn open(
        &self,
        token: u64,
        provider: Arc<dyn Provider>,
        descriptor: &Descriptor,
        attached: &[Arc<Segment>],
    ) -> Result<Address, Refusal> {
        let Descriptor { process, allocation, handle } = descriptor;
        if *process == self.process {
            return provider.adopt(allocation).map(|()| allocation.base);
        }
        let copies = attached
            .iter()
            .filter_map(|segment| segment.descriptor())
            .map(|fd| rustix::io::fcntl_dupfd_cloexec(fd, 0));
        let descriptors = copies.collect::<Result<_, Errno>>()?;
        let opened = provider.open(allocation, Export { handle: handle.clone(), descriptors })?;
        let address = opened.address;
        self.lock().opened.insert(token, Open { provider, kind: allocation.kind, opened });
        Ok(address)
    }
}

/// Closes a mapping, then calls `then`: in this call, or in another thread if closing waits for device work.
pub(super) fn close(rank: usize, open: Option<Open>, then: impl FnOnce(bool) + Send + 'static) {
    let Some(Open { provider, opened, .. }) = open else { return then(true) };
    let waits = provider.close_waits(&opened);
    let close = move || {
        // SAFETY: this provider opened the mapping, and `opened` is taken out of `State::opened`, so that it is closed
        // once. The protocol closes only mappings without a pin, and code that uses an address of a mapping holds a pin.
        if let Err(why) = unsafe { provider.close(opened) } {
            tracing::error!("rank {rank}: a mapping cannot be closed: {why}");
        }
        then(!waits);
    };
    if waits { once_nothing_waits(close) } else { close() }
}
