//! Kernels: loading, lookup by name, launch.

use super::api::code;
use super::context::{Primary, refused};
use super::gpu::CudaDriver;
use super::nvrtc::Compiled;
use crate::deferred_free;
use crate::driver::RawStream;
use crate::error::DeviceError;
use std::ffi::{CString, c_void};
use std::sync::Arc;

/// A loaded module of kernels. All launches must be over when it is dropped.
pub struct Module {
    raw: usize,
    primary: Arc<Primary>,
}

/// A kernel of a [`Module`], valid while that exists.
#[derive(Debug, Clone, Copy)]
pub struct Function(usize);

impl Module {
    /// Loads compiled code on a device. Waits for the device. Fails with [`DeviceError::NewerKernels`] if
    /// the driver refuses it because NVRTC is newer.
    pub fn load(driver: &CudaDriver, compiled: &Compiled) -> Result<Self, DeviceError> {
        let _current = driver.enter_beside_captures()?;
        // PTX must end with a zero byte; a cubin contains its length.
        let code = [compiled.code(), &[0]].concat();
        let mut raw = 0;
        // SAFETY: `code` is a cubin or PTX that NVRTC has made: `Compiler::compile` alone makes a `Compiled`. It ends
        // with a zero and lives through the call.
        let result = unsafe { (driver.primary().api.load_module)(&mut raw, code.as_ptr().cast()) };
        if code::is_of_kernels(result) {
            let (nvrtc, supported) = (compiled.nvrtc, driver.version()?);
            if nvrtc > supported {
                let (device, what) = (driver.primary().ordinal, driver.primary().api.text(result));
                return Err(DeviceError::NewerKernels { device, nvrtc, driver: supported, what });
            }
        }
        driver.check("cuModuleLoadData", result)?;
        Ok(Self { raw, primary: Arc::clone(driver.primary()) })
    }

    /// Looks up and loads a kernel. (Otherwise CUDA would load it at its first launch, and wait for all
    /// work of the device.)
    pub fn function(&self, name: &str) -> Result<Function, DeviceError> {
        let none = |what: String| DeviceError::NoKernels {
            why: format!("device {}: {name}: {what}", self.primary.ordinal),
        };
        let name = CString::new(name).map_err(|_| none("there is a zero byte in the name".to_owned()))?;
        let mut function = 0;
        // SAFETY: `self` holds the module loaded. `name` ends with a zero and lives through the call.
        match unsafe { (self.primary.api.function)(&mut function, self.raw, name.as_ptr()) } {
            code::SUCCESS => {}
            other => return Err(none(self.primary.api.text(other))),
        }
        let Some(load) = self.primary.api.load_function else { return Ok(Function(function)) };
        let _current = self
            .primary
            .make_current_beside_captures()
            .map_err(|result| none(self.primary.api.text(result)))?;
        // SAFETY: CUDA has just found the function in the module, which `self` holds loaded.
        match unsafe { load(function) } {
            code::SUCCESS => Ok(Function(function)),
            code::OUT_OF_MEMORY => {
                Err(refused(self.primary.api, self.primary.ordinal, "cuFuncLoad", code::OUT_OF_MEMORY))
            }
            other => Err(none(self.primary.api.text(other))),
        }
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // Unloading may wait for the device, so it is deferred.
        let (raw, primary) = (self.raw, Arc::clone(&self.primary));
        deferred_free::queue(move || {
            if let Ok(_current) = primary.make_current_beside_captures() {
                // SAFETY: `load` loaded the module, and only this drop unloads it. Callers of `launch`
                // promise that the launch is over. If the device has failed or the process is exiting, the
                // call returns an error.
                unsafe { (primary.api.unload_module)(raw) };
            }
        });
    }
}

impl Function {
    /// Handle for messages.
    pub(super) fn handle(self) -> usize {
        self.0
    }

    /// Launches the kernel on a stream of the device (`cuLaunchKernel`): blocks, threads per block, and the
    /// address of each argument's value.
    ///
    /// # Safety
    /// The module is not dropped before the launch is over. The stream is a stream of the driver's device that lives.
    /// `arguments` are the addresses of the kernel's arguments, in its order and of its types. What the kernel does
    /// with them is sound.
    pub unsafe fn launch(
        self,
        driver: &CudaDriver,
        stream: RawStream,
        blocks: [u32; 3],
        threads: [u32; 3],
        arguments: &[*mut c_void],
    ) -> Result<(), DeviceError> {
        let _current = driver.enter()?;
        let ([x, y, z], [tx, ty, tz]) = (blocks, threads);
        // SAFETY: the caller promises that the module and the stream live and that `arguments` are those of the kernel,
        // which CUDA reads during the call.
        let result = unsafe {
            let (arguments, none) = (arguments.as_ptr(), std::ptr::null());
            (driver.primary().api.launch)(self.0, x, y, z, tx, ty, tz, 0, stream.0, arguments, none)
        };
        driver.check("cuLaunchKernel", result)
    }
}
