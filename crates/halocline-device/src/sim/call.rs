//! What each call to a simulated device begins with: the caller's turn, the device's health, the streams and events that
//! handles name.

use super::kernel::Kernel;
use super::report::Report;
use super::state::{State, Waits};
use super::stream::Op;
use super::{Guard, World};
use crate::driver::{RawEvent, RawStream};
use crate::error::DeviceError;

/// First handle of streams and of events, in separate ranges so that they cannot be confused.
pub(super) const STREAMS: usize = 0x10_0000;
pub(super) const EVENTS: usize = 0x20_0000;

/// One device of a world.
pub(super) struct SimDriver {
    pub(super) world: World,
    pub(super) device: u32,
}

/// A call: the world, and the calling thread.
pub(super) struct Call<'a> {
    pub(super) state: Guard<'a>,
    pub(super) me: usize,
}

impl SimDriver {
    pub(super) fn new(world: World, device: u32) -> Self {
        Self { world, device }
    }

    /// Begins a call: other tasks may run first.
    pub(super) fn call(&self, giving_way: bool) -> Result<Call<'_>, DeviceError> {
        let Some(me) = self.world.me() else {
            let what = "the calling thread is not of this world".to_owned();
            return Err(DeviceError::Lost { device: self.device, what });
        };
        let state = self.world.turn(self.world.lock(), me, giving_way);
        state.check(self.device)?;
        Ok(Call { state, me })
    }

    /// Begins a call that cannot fail.
    pub(super) fn last_call(&self) -> Option<Call<'_>> {
        let me = self.world.me()?;
        Some(Call { state: self.world.turn(self.world.lock(), me, false), me })
    }

    pub(super) fn stream(&self, state: &State, stream: RawStream) -> Result<usize, DeviceError> {
        if stream.0 == 0 {
            return Ok(self.device as usize);
        }
        let index = stream.0.wrapping_sub(STREAMS);
        match state.streams.get(index) {
            Some(found) if found.alive && found.device == self.device => Ok(index),
            Some(found) if found.alive => Err(DeviceError::OtherDevice {
                what: "stream",
                handle: stream.0,
                actual: found.device,
                device: self.device,
            }),
            _ => Err(DeviceError::NoStream { stream: stream.0 }),
        }
    }

    pub(super) fn event(&self, state: &State, event: RawEvent) -> Result<usize, DeviceError> {
        let index = event.0.wrapping_sub(EVENTS);
        let found = state.events.get(index).filter(|event| event.alive);
        found.map(|_| index).ok_or(DeviceError::NoEvent { event: event.0 })
    }

    /// Issues an operation to a stream, once the stream has a free slot.
    pub(super) fn give<'a>(
        &'a self,
        mut call: Call<'a>,
        stream: usize,
        op: Op,
    ) -> Result<Call<'a>, DeviceError> {
        let Some(op) = call.state.captured(stream, op) else { return Ok(call) };
        if call.state.streams[stream].len() >= call.state.options.depth {
            call.state = self.world.wait(call.state, call.me, Waits::Slot(stream));
            call.state.check(self.device)?;
        }
        let host = call.state.threads[call.me].actor;
        let seen = call.state.seen(host).clone();
        call.state.given += 1;
        let given = call.state.given;
        call.state.streams[stream].push(op, seen, given);
        call.state.tick(host);
        Ok(call)
    }

    pub(super) fn launch_kernel(&self, stream: RawStream, mut kernel: Kernel) -> Result<(), DeviceError> {
        let call = self.call(false)?;
        let stream = self.stream(&call.state, stream)?;
        for &(address, bytes, writes) in &kernel.declared {
            kernel.spots.push((self.reach(&call.state, address, bytes)?, bytes, writes));
        }
        self.give(call, stream, Op::Kernel(Some(kernel))).map(drop)
    }
}

impl Call<'_> {
    pub(super) fn not_recorded(&mut self, event: RawEvent, what: &'static str) {
        let host = self.state.threads[self.me].actor;
        let op = self.state.begin_op(host, what);
        let by = self.state.operation(op);
        self.state.report(Report::EventNotRecorded { by, event: event.0 });
    }
}
