//! A GPU's primary context: retained, and current during each call.

use super::api::{Api, WordOp, code};
use super::looks::Looks;
use crate::deferred_free;
use crate::error::DeviceError;
use std::collections::BTreeMap;
use std::ffi::{c_int, c_uint};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

/// A retained primary context, shared by all drivers of its GPU.
pub(super) struct Primary {
    pub(super) api: &'static Api,
    pub(super) ordinal: u32,
    pub(super) device: c_int,
    pub(super) context: usize,
    /// Returned streams of the library, with their priorities. Streams share hardware queues and are slow
    /// to create, so idle streams are reused and none is destroyed.
    idle: Mutex<Vec<(c_int, usize)>>,
    looks: OnceLock<Looks>,
}

static PRIMARIES: Mutex<BTreeMap<u32, Weak<Primary>>> = Mutex::new(BTreeMap::new());

const STREAM_NON_BLOCKING: c_uint = 1;

impl Primary {
    pub(super) fn retain(api: &'static Api, ordinal: u32) -> Result<Arc<Self>, DeviceError> {
        let mut known = PRIMARIES.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known.get(&ordinal).and_then(Weak::upgrade) {
            return Ok(found);
        }
        let made = Arc::new(Self::new(api, ordinal)?);
        known.insert(ordinal, Arc::downgrade(&made));
        Ok(made)
    }

    fn new(api: &'static Api, ordinal: u32) -> Result<Self, DeviceError> {
        let refused = |call, result| refused(api, ordinal, call, result);
        let (mut count, mut device, mut context) = (0, 0, 0);
        check((api.device_count)(&mut count)).map_err(|r| refused("cuDeviceGetCount", r))?;
        if i64::from(ordinal) >= i64::from(count) {
            return Err(DeviceError::NoDevice { device: ordinal, count: count.max(0) as u32 });
        }
        check((api.device)(&mut device, ordinal as c_int)).map_err(|r| refused("cuDeviceGet", r))?;
        check((api.retain)(&mut context, device)).map_err(|r| refused("cuDevicePrimaryCtxRetain", r))?;
        Ok(Self { api, ordinal, device, context, idle: Mutex::default(), looks: OnceLock::new() })
    }

    /// The reader of words in device memory. The context is current.
    pub(super) fn looks(&self) -> Result<&Looks, c_int> {
        if let Some(there) = self.looks.get() {
            return Ok(there);
        }
        // Serialises creation: a duplicate would have to be freed, which may wait for the device.
        static MAKING: Mutex<()> = Mutex::new(());
        let _alone = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
        match self.looks.get() {
            Some(there) => Ok(there),
            None => {
                let made = Looks::new(self.api)?;
                Ok(self.looks.get_or_init(|| made))
            }
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<(c_int, usize)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A stream that does not synchronise with the default stream: an idle returned one, or a new one.
    /// Fails with the call and its result. The context is current.
    pub(super) fn stream(&self, priority: c_int, looks: &Looks) -> Result<usize, (&'static str, c_int)> {
        let mut idle = self.idle();
        // SAFETY: `give_back` puts handles from `create_stream` into `idle`, and only the drop of `self` destroys them.
        let is_ready = |stream: usize| unsafe { (self.api.query)(stream) } == code::SUCCESS;
        if let Some(at) = idle.iter().position(|&(of, stream)| of == priority && is_ready(stream)) {
            return Ok(idle.swap_remove(at).1);
        }
        drop(idle);
        // Serialises creation and the first operation. Two streams that wait for each other must not share
        // a hardware queue, and the order of creation determines the queue of a stream.
        static MAKING: Mutex<()> = Mutex::new(());
        let _alone = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
        let mut stream = 0;
        let made = check((self.api.create_stream)(&mut stream, STREAM_NON_BLOCKING, priority));
        made.map_err(|result| ("cuStreamCreateWithPriority", result))?;
        let mut first = WordOp::write(looks.scratch(), 0);
        // SAFETY: `stream` was created above, and `first` is one operation that lives through the call. It writes
        // `Looks::scratch`, pinned memory of this `Primary` that streams alone access.
        let given = check(unsafe { (self.api.words)(stream, 1, &mut first, 0) });
        if given.is_err() {
            // SAFETY: `stream` was created above, and its handle is nowhere else.
            unsafe { (self.api.destroy_stream)(stream) };
        }
        given.map(|()| stream).map_err(|result| ("cuStreamBatchMemOp", result))
    }

    /// Takes back a stream that gets no more work.
    pub(super) fn give_back(&self, priority: c_int, stream: usize) {
        self.idle().push((priority, stream));
    }

    /// Makes the context current in this thread, unless it already is.
    pub(super) fn make_current(&self) -> Result<Current, c_int> {
        let mut now = 0;
        check((self.api.current)(&mut now))?;
        let mut current = Current { api: self.api, is_pushed: false, mode: None };
        if now != self.context {
            // SAFETY: `new` retained `self.context`, and only the drop of `self` releases it.
            check(unsafe { (self.api.push)(self.context) })?;
            current.is_pushed = true;
        }
        Ok(current)
    }

    /// As [`Primary::make_current`], for code that may make another context current: the former one is restored even then.
    pub(super) fn push_current(&self) -> Result<Current, c_int> {
        // SAFETY: `new` retained `self.context`, and only the drop of `self` releases it.
        check(unsafe { (self.api.push)(self.context) })?;
        Ok(Current { api: self.api, is_pushed: true, mode: None })
    }

    /// Whether the context is current in this thread.
    pub(super) fn is_current(&self) -> bool {
        let mut now = 0;
        check((self.api.current)(&mut now)).is_ok() && now == self.context
    }

    /// As [`Primary::make_current`], for calls that CUDA refuses during another thread's stream capture,
    /// and that would invalidate it (frees, queries, host waits). The calls here are independent of
    /// captured streams.
    pub(super) fn make_current_beside_captures(&self) -> Result<Current, c_int> {
        let mut current = self.make_current()?;
        let mut mode = CAPTURE_MODE_RELAXED;
        check((self.api.exchange_capture_mode)(&mut mode))?;
        current.mode = Some(mode);
        Ok(current)
    }
}

const CAPTURE_MODE_RELAXED: c_int = 2;

impl Drop for Primary {
    fn drop(&mut self) {
        for (_, stream) in std::mem::take(&mut *self.idle()) {
            // SAFETY: `idle` holds returned streams from `create_stream`, whose handles nothing uses any
            // more. If the process is exiting and the driver is shut down, the call returns an error.
            unsafe { (self.api.destroy_stream)(stream) };
        }
        // Freeing them may wait for the device, so it is deferred.
        if let Some(looks) = self.looks.take() {
            let &mut Self { api, ordinal, device, context, .. } = self;
            let last = Self { api, ordinal, device, context, idle: Mutex::default(), looks: OnceLock::new() };
            return deferred_free::queue(move || {
                if let Ok(_current) = last.make_current_beside_captures() {
                    looks.close(api);
                }
            });
        }
        // SAFETY: `new` retained the context once. It is released once: where there are `looks`, the `return` above
        // leaves that to `last`. Where the process ends and the driver is gone, the call returns an error.
        unsafe { (self.api.release)(self.device) };
    }
}

fn check(result: c_int) -> Result<(), c_int> {
    if result == code::SUCCESS { Ok(()) } else { Err(result) }
}

/// Describes a result that is no fault.
pub(super) fn refused(api: &Api, device: u32, call: &'static str, result: c_int) -> DeviceError {
    match result {
        code::OUT_OF_MEMORY => DeviceError::Exhausted { device, call },
        _ => DeviceError::Refused { device, call, code: result, what: api.text(result) },
    }
}

/// Keeps the device's context current in the thread.
pub(super) struct Current {
    api: &'static Api,
    is_pushed: bool,
    /// The previous capture mode of the thread, if it was changed.
    mode: Option<c_int>,
}

impl Drop for Current {
    fn drop(&mut self) {
        if let Some(mut mode) = self.mode {
            (self.api.exchange_capture_mode)(&mut mode);
        }
        if self.is_pushed {
            let mut ours = 0;
            (self.api.pop)(&mut ours);
        }
    }
}
