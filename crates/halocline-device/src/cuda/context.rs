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
        if now == self.context {
            return Ok(Current(None));
        }
        // SAFETY: the context is retained; popped by the drop.
        check(unsafe { (self.api.push)(self.context) })?;
        Ok(Current(Some(self.api)))
    }
}

impl Drop for Primary {
    fn drop(&mut self) {
        // SAFETY: retained once. At the end of the process the driver may be gone, which it says.
        unsafe { (self.api.release)(self.device) };
    }
}

fn check(result: c_int) -> Result<(), c_int> {
    if result == code::SUCCESS { Ok(()) } else { Err(result) }
}

pub(super) fn refused(api: &Api, device: u32, call: &'static str, result: c_int) -> DeviceError {
    DeviceError::Refused { device, call, code: result, what: api.text(result) }
}

/// While it lives, the device's context is the thread's current one.
pub(super) struct Current(Option<&'static Api>);

impl Drop for Current {
    fn drop(&mut self) {
        if let Some(api) = self.0 {
            let mut ours = 0;
            // SAFETY: pops what was pushed in this thread.
            unsafe { (api.pop)(&mut ours) };
        }
    }
}
