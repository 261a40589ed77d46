//! Index lists on GPUs: the kernels of folder `lists`, and their launches.
//!
//! CUB has single-pass scans and sorts that read less, but its headers would have to be found beside NVRTC at run time. These kernels need
//! none. `docs/internals/device-engine.md` compares them with CuPy, which calls CUB.

mod pass;

#[cfg(test)]
mod on_host;

use super::gpu::CudaDriver;
use super::module::{Function, Module};
use crate::driver::{Driver, RawStream};
use crate::error::DeviceError;
use crate::lists::ListSpec;
use pass::{Kernel, Plan, Shape};
use std::ffi::c_void;

/// The loaded kernels, by [`Kernel::number`], with their module.
pub(super) struct ListKernels {
    functions: Vec<Function>,
    _module: Module,
}

impl CudaDriver {
    fn list_plan(&self, spec: &ListSpec<'_>) -> Result<Plan, DeviceError> {
        let bytes = spec.bytes(self.ordinal)?;
        Ok(Plan::new(spec, bytes, &Shape::GPU, self.multiprocessors))
    }

    /// [`Driver::list_scratch`].
    pub(super) fn scratch_of_list(&self, spec: &ListSpec<'_>) -> Result<usize, DeviceError> {
        Ok(self.list_plan(spec)?.scratch())
    }

    /// [`Driver::find_list`].
    ///
    /// # Safety
    /// The caller keeps the contract of [`Driver::find_list`] for the stream and the memory of `spec`.
    pub(super) unsafe fn list(&self, stream: RawStream, spec: &ListSpec<'_>) -> Result<(), DeviceError> {
        let plan = self.list_plan(spec)?;
        let ranges =
            [(spec.keys, plan.key_bytes), (spec.target, plan.target_bytes), (spec.scratch, plan.scratch())];
        let mut used = ranges.into_iter().filter(|(_, bytes)| *bytes > 0);
        used.try_for_each(|(address, bytes)| self.reach(address, bytes))?;
        let function = self.list_functions()?;
        // SAFETY: the caller promises that the stream lives, and that nothing else uses the scratch.
        unsafe { self.clear(stream, spec.scratch, plan.cleared()) }?;
        for mut launch in plan.launches(spec) {
            let arguments: [*mut c_void; 1] = [(&raw mut launch.split).cast()];
            // SAFETY: all kernels of the module take a `Split`, which CUDA copies during the call. The module is loaded as long as the
            // driver is. The caller promises that the stream and the memory live, and `reach` has found as much memory as the plan has.
            unsafe {
                let (blocks, threads) = ([launch.blocks, 1, 1], [Shape::GPU.threads, 1, 1]);
                function(launch.kernel).launch(self, stream, blocks, threads, &arguments)?;
            }
        }
        Ok(())
    }

    fn list_functions(&self) -> Result<impl Fn(Kernel) -> Function, DeviceError> {
        let mut loaded = self.lists.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if loaded.is_none() {
            let module = self.compile("cuda/lists", super::LIST_KERNELS, &[])?;
            let functions = Kernel::ALL.map(|kernel| module.function(&kernel.name()));
            let functions = functions.into_iter().collect::<Result<_, _>>()?;
            *loaded = Some(ListKernels { functions, _module: module });
        }
        let functions = loaded.as_ref().map_or_else(Vec::new, |kernels| kernels.functions.clone());
        Ok(move |kernel: Kernel| functions[kernel.number()])
    }
}
