//! Custom kernels: CUDA C++ compiled for a GPU on demand and launched on its streams.

use super::gpu::CudaDriver;
use super::module::{Function, Module};
use super::nvrtc::Compiler;
use crate::device::{Device, Stream};
use crate::driver::Driver;
use crate::error::DeviceError;
use std::any::Any;
use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;

/// The kernels of one file, loaded on a GPU. Clones refer to the same program. All launches must be over
/// when the last clone and [`Kernel`] are dropped.
#[derive(Clone)]
pub struct Program(Arc<Loaded>);

struct Loaded {
    name: String,
    module: Module,
    device: Device,
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Program({}, device {})", self.0.name, self.0.device.ordinal())
    }
}

impl Program {
    /// Compiles a file for a GPU with NVRTC, or takes cached code ([`Compiler::compile`]), and loads it.
    /// `name` appears in messages; `options` are passed to NVRTC. Blocks for seconds, and waits for the
    /// device.
    ///
    /// Errors: [`DeviceError::NoKernels`] if the device is not a GPU, if NVRTC is not found, or if the file
    /// does not compile. The error contains what was tried and the compiler's log.
    pub fn compile(device: &Device, name: &str, source: &str, options: &[&str]) -> Result<Self, DeviceError> {
        let driver = cuda(device, name)?;
        let compiler = Compiler::load_for(driver.version()?)?;
        let compiled = compiler.compile(name, source, options, driver.capability()?)?;
        let module = Module::load(driver, &compiled)?;
        Ok(Self(Arc::new(Loaded { name: name.to_owned(), module, device: device.clone() })))
    }

    /// Looks up a kernel, an `extern "C"` function, by name. Fails with [`DeviceError::NoKernels`] if it
    /// does not exist.
    pub fn kernel(&self, name: &str) -> Result<Kernel, DeviceError> {
        Ok(Kernel { function: self.0.module.function(name)?, program: self.clone() })
    }
}

/// A kernel of a [`Program`].
#[derive(Debug, Clone)]
pub struct Kernel {
    function: Function,
    program: Program,
}

impl Kernel {
    /// Launches the kernel on a stream of the same device: blocks along each axis, and threads per block.
    /// The kernel takes one argument by value, copied at the call. Never waits for the device, unless the
    /// stream is full ([`Driver`]).
    ///
    /// # Safety
    /// `A` has the layout of the kernel's argument. The kernel is sound for it, and all memory that it uses
    /// stays valid until the stream has executed it. This kernel or its [`Program`] outlives the launch.
    pub unsafe fn launch<A: Copy>(
        &self,
        stream: &Stream,
        blocks: [u32; 3],
        threads: [u32; 3],
        argument: &A,
    ) -> Result<(), DeviceError> {
        let Loaded { name, device, .. } = &*self.program.0;
        let given = stream.device();
        if device.driver().machine() != given.driver().machine() {
            return Err(DeviceError::OtherMachine { what: "kernel" });
        }
        if device != given {
            let (handle, actual, device) = (self.function.handle(), device.ordinal(), given.ordinal());
            return Err(DeviceError::OtherDevice { what: "kernel", handle, actual, device });
        }
        // CUDA only reads it.
        let arguments: [*mut c_void; 1] = [std::ptr::from_ref(argument).cast_mut().cast()];
        // SAFETY: `self.program` holds the module, and the caller keeps it, or a clone, until the launch is over.
        // `stream` lives and is of the same device, as was checked. The kernel takes one argument, laid out as `A`, and
        // the caller promises that what it does is sound.
        unsafe { self.function.launch(cuda(device, name)?, stream.raw(), blocks, threads, &arguments) }
    }
}

/// The CUDA driver of a device.
fn cuda<'a>(device: &'a Device, program: &str) -> Result<&'a CudaDriver, DeviceError> {
    let driver: &dyn Driver = device.driver();
    (driver as &dyn Any).downcast_ref().ok_or_else(|| DeviceError::NoKernels {
        why: format!("{program}: {} is no GPU; give a device of CUDA", driver.name()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim;

    #[test]
    fn a_device_that_is_no_gpu_compiles_nothing() {
        sim::explore(0..1, &sim::Options::default(), |world| {
            let device = world.device(0).expect("there is one");
            let refused = Program::compile(&device, "empty.cu", "", &[]).expect_err("it is simulated");
            let text = refused.to_string();
            assert!(text.contains("empty.cu") && text.contains("no GPU"), "{text}");
        });
    }
}
