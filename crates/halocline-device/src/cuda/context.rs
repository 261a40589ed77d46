//! A GPU's primary context, retained, and current for as long as a call needs it.

use super::api::{Api, code};
use crate::error::DeviceError;
use std::ffi::c_int;
use std::sync::Arc;

/// A primary context that we have retained.
pub(super) struct Primary {
    pub(super) api: &'static Api,
    pub(super) ordinal: u32,
    pub(super) device: c_int,
    pub(super) context: usize,
}

impl Primary {
    pub(super) fn retain(api: &'static Api, ordinal: u32) -> Result<Arc<Self>, DeviceError> {
        let refused = |call, result| refused(api, ordinal, call, result);
        let (mut count, mut device, mut context) = (0, 0, 0);
        // SAFETY: each writes a number.
        check(unsafe { (api.device_count)(&mut count) }).map_err(|r| refused("cuDeviceGetCount", r))?;
        if i64::from(ordinal) >= i64::from(count) {
            return Err(DeviceError::NoDevice { device: ordinal, count: count.max(0) as u32 });
        }
        // SAFETY: as above.
        check(unsafe { (api.device)(&mut device, ordinal as c_int) })
            .map_err(|r| refused("cuDeviceGet", r))?;
        // SAFETY: as above; released once, by the drop.
        check(unsafe { (api.retain)(&mut context, device) })
            .map_err(|r| refused("cuDevicePrimaryCtxRetain", r))?;
        Ok(Arc::new(Self { api, ordinal, device, context }))
    }

    /// Makes the context current in this thread, unless it is.
    pub(super) fn make_current(&self) -> Result<Current, c_int> {
        let mut now = 0;
        // SAFETY: writes a number.
        check(unsafe { (self.api.current)(&mut now) })?;
        let mut current = Current { api: self.api, is_pushed: false, mode: None };
        if now != self.context {
            // SAFETY: the context is retained; popped by the drop.
            check(unsafe { (self.api.push)(self.context) })?;
            current.is_pushed = true;
        }
        Ok(current)
    }

    /// The same for calls that CUDA refuses while any thread captures a stream, unless that lets it, and which end that capture
    /// (frees, queries, waits of the host). Ours have nothing to do with it.
    pub(super) fn make_current_beside_captures(&self) -> Result<Current, c_int> {
        let mut current = self.make_current()?;
        let mut mode = CAPTURE_MODE_RELAXED;
        // SAFETY: the mode of this thread, put back by the drop.
        check(unsafe { (self.api.exchange_capture_mode)(&mut mode) })?;
        current.mode = Some(mode);
        Ok(current)
    }
}

const CAPTURE_MODE_RELAXED: c_int = 2;

impl Drop for Primary {
    fn drop(&mut self) {
        // SAFETY: retained once. At the end of the process the driver may be gone, which it says.
        unsafe { (self.api.release)(self.device) };
    }
}

fn check(result: c_int) -> Result<(), c_int> {
    if result == code::SUCCESS { Ok(()) } else { Err(result) }
}

/// What a result that is no fault says.
pub(super) fn refused(api: &Api, device: u32, call: &'static str, result: c_int) -> DeviceError {
    match result {
        code::OUT_OF_MEMORY => DeviceError::Exhausted { device, call },
        _ => DeviceError::Refused { device, call, code: result, what: api.text(result) },
    }
}

/// While it lives, the device's context is the thread's current one.
pub(super) struct Current {
    api: &'static Api,
    is_pushed: bool,
    /// The thread's mode of captures before, if that was changed.
    mode: Option<c_int>,
}

impl Drop for Current {
    fn drop(&mut self) {
        if let Some(mut mode) = self.mode {
            // SAFETY: the mode of before.
            unsafe { (self.api.exchange_capture_mode)(&mut mode) };
        }
        if self.is_pushed {
            let mut ours = 0;
            // SAFETY: pops what was pushed in this thread.
            unsafe { (self.api.pop)(&mut ours) };
        }
    }
}
