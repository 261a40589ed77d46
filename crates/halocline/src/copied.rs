//! Exchanges of copies in memory of a device.

use crate::error::Error;
use crate::exchange::{HaloExchange, Pending};
use crate::lock::lock;
use halocline_device::{Address, Device, Event, EventPool, Stream};
use halocline_plan::ReduceOp;
use std::collections::VecDeque;
use std::sync::Mutex;

/// Calls that may be in flight: as many as exchanges of one object.
const IN_FLIGHT: usize = crate::stream::IN_FLIGHT as usize;

/// The buffers of an exchange whose callers have other arrays in each call, such as compiled functions of JAX. A call copies its arrays into
/// the buffers, exchanges or reduces those, and copies them into its results: all as work of its stream. Calls follow one another,
/// whatever their streams are.
#[doc(hidden)]
#[derive(Debug)]
pub struct CopiedExchange {
    device: Device,
    /// Each buffer's address and bytes, in the order of the bind.
    buffers: Vec<(Address, usize)>,
    calls: Mutex<Calls>,
}

#[derive(Debug)]
struct Calls {
    events: EventPool,
    /// Where the last call ends, and the [`Stream::id`] of its stream.
    last: Option<(Option<u64>, Event)>,
    in_flight: VecDeque<Pending>,
}

impl CopiedExchange {
    /// Of buffers in memory of one device.
    pub fn new(device: &Device, buffers: Vec<(Address, usize)>) -> Self {
        let calls = Calls { events: device.events(), last: None, in_flight: VecDeque::new() };
        Self { device: device.clone(), buffers, calls: Mutex::new(calls) }
    }

    /// The device of the buffers.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// An exchange, or a reduce, of copies. `halo` binds the buffers. `arrays`: an argument and a result for each of them. The host waits
    /// for no device, unless 64 calls are in flight: then for the oldest. Errors: those of [`HaloExchange::schedule_exchange`] and
    /// [`Pending::wait`].
    ///
    /// # Safety
    /// Each array has the bytes of its buffer, in memory that the device reaches. They stay valid until the stream has done the call's
    /// work, and the stream orders everything else that uses them.
    pub unsafe fn call(
        &self,
        halo: &HaloExchange,
        op: Option<ReduceOp>,
        arrays: &[(Address, Address)],
        stream: &Stream,
    ) -> Result<(), Error> {
        let Calls { events, last, in_flight } = &mut *lock(&self.calls);
        if in_flight.len() == IN_FLIGHT
            && let Some(oldest) = in_flight.pop_front()
        {
            oldest.wait()?;
        }
        let id = stream.id();
        if let Some((before, event)) = last
            && (before.is_none() || *before != id)
        {
            stream.wait(event)?;
        }
        let end = events.take()?;
        let copy = |target: Address, source: Address, bytes: usize| {
            // SAFETY: the caller says so of arrays. The buffers are those of the exchange, which the stream is ordered with: its work is
            // over before this call's first copy, or follows it, and so is that of other calls.
            unsafe { stream.copy(target, source, bytes) }
        };
        let run = || {
            let pairs = self.buffers.iter().zip(arrays);
            pairs.clone().try_for_each(|(&(buffer, bytes), &(argument, _))| copy(buffer, argument, bytes))?;
            let pending = match op {
                Some(op) => halo.schedule_reduce(op, &[stream]),
                None => halo.schedule_exchange(&[stream]),
            }?;
            pending.schedule_wait(stream)?;
            pairs.into_iter().try_for_each(|(&(buffer, bytes), &(_, result))| copy(result, buffer, bytes))?;
            Ok(pending)
        };
        let outcome: Result<Pending, Error> = run();
        // Also after an error: part of the work may have been given.
        stream.record(&end)?;
        *last = Some((id, end));
        in_flight.push_back(outcome?);
        Ok(())
    }
}
