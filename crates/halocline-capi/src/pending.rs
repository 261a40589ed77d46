//! Exchanges in flight, of bound objects and of links of patterns.

use crate::call::{call, call_for};
use crate::object::{Handle, Pinned};
use crate::pattern_links::Links;
use crate::pointer::{CheckedOut, OutPtr};
use crate::status::{Refusal, Status};
use halocline::{Error, HaloExchange, Pending, Stream};
use std::sync::Arc;

/// `halocline_pending`: an exchange of an object.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct PendingExchange {
    pub(crate) exchange: u64,
    pub(crate) epoch: u64,
}

impl PendingExchange {
    #[inline]
    fn halo(self) -> Result<Pinned<HaloExchange>, Refusal> {
        Handle::from_number(self.exchange).pin()
    }

    /// The exchange, of a bound object or of links.
    pub(crate) fn find(self) -> Result<Pending, Refusal> {
        let links = Handle::<Links>::from_number(self.exchange);
        let found = match links.is_of_kind() {
            true => links.pin()?.pending_at(self.epoch),
            false => self.halo()?.pending_at(self.epoch),
        };
        found.ok_or_else(|| self.not_begun())
    }

    #[cold]
    fn not_begun(self) -> Refusal {
        let epoch = self.epoch;
        Refusal::argument(format!("the object has begun no exchange {epoch}; pass what a begin has stored"))
    }
}

/// Stores the pending exchange, if the caller wants it.
#[inline]
pub(crate) fn begun(
    exchange: u64,
    pending: CheckedOut<'_, PendingExchange>,
    started: Result<u64, Error>,
) -> Result<(), Refusal> {
    pending.set(PendingExchange { exchange, epoch: started? });
    Ok(())
}

/// The exchange that was begun last.
#[unsafe(no_mangle)]
extern "C" fn halocline_latest(halo: Handle<HaloExchange>, pending: OutPtr<'_, PendingExchange>) -> Status {
    call_for(pending, "pending", || {
        let latest = halo.pin()?.pending().map(|latest| latest.epoch());
        Ok(latest.map_or(PendingExchange { exchange: 0, epoch: 0 }, |epoch| PendingExchange {
            exchange: halo.number(),
            epoch,
        }))
    })
}

/// Blocks until the halo is filled.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn halocline_wait(pending: PendingExchange) -> Status {
    call(|| {
        let halo = Handle::<HaloExchange>::from_number(pending.exchange);
        if halo.is_of_kind() {
            let halo = halo.pin()?;
            return match halo.has_begun(pending.epoch) {
                true => Ok(halo.wait_epoch(pending.epoch)?),
                false => Err(pending.not_begun()),
            };
        }
        Ok(pending.find()?.wait()?)
    })
}

/// Whether a wait would return at once.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn halocline_is_ready(pending: PendingExchange, ready: OutPtr<'_, i32>) -> Status {
    call_for(ready, "ready", || Ok(i32::from(pending.find()?.is_ready()?)))
}

/// Makes later work of a stream wait for an exchange.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn halocline_schedule_wait(
    pending: PendingExchange,
    stream: Handle<Arc<Stream>>,
) -> Status {
    call(|| Ok(pending.find()?.schedule_wait(&*stream.pin()?)?))
}
