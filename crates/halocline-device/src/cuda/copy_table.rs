//! Copy tables in the memory of a GPU, and their launches.

use super::api::code;
use super::gpu::CudaDriver;
use super::module::Function;
use super::table::{Argument, Bases, Cut, Kind, THREADS};
use crate::deferred_free;
use crate::driver::{
    Address, Base, Driver, Epoch, MOST_COUNTED_BLOCKS, MemorySpace, RawStream, RawTable, TableSpec,
};
use crate::error::DeviceError;
use std::ffi::{c_uint, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// An uploaded table.
pub(super) struct CopyTable {
    device: u32,
    /// Its memory on the device.
    pub(super) base: Address,
    /// Of each work, with the blocks of a launch.
    works: Vec<(Argument, c_uint)>,
    bases: Vec<Base>,
    /// For an epoch that the launch gives, and for one that a counter gives.
    kernels: [Function; 2],
    pub(super) waiting_blocks: u32,
    launches: AtomicUsize,
}

impl CopyTable {
    /// Writes a table to the memory of a device, whose context is current.
    pub(super) fn upload(driver: &CudaDriver, works: &[TableSpec<'_>]) -> Result<Self, DeviceError> {
        let tuning = driver.tuning();
        let of = (driver.multiprocessors, &tuning);
        let cut = |at| Cut::of_work((works, at), of, |address, bytes| driver.reach(address, bytes));
        let cuts = (0..works.len()).map(cut).collect::<Result<Vec<_>, _>>()?;
        let kernels = match cuts[0].kind() {
            Kind::Plain => driver.kernels()?.plain,
            Kind::Ll => driver.kernels()?.ll,
            Kind::Based => driver.based_kernels()?,
            Kind::Combining(types) => driver.combining_kernels(types)?,
        };
        let blocks: Vec<c_uint> = cuts.iter().map(Cut::blocks).collect();
        let waiting_blocks = cuts.iter().map(Cut::waiting_blocks).max().unwrap_or(0);
        let (size, mut base) = (cuts.iter().map(Cut::size).sum::<usize>(), 0);
        let result = (driver.api.allocate)(&mut base, size.max(1));
        driver.check_allocation("cuMemAlloc", result, MemorySpace::Device(driver.ordinal), size)?;
        let (bytes, arguments) = Cut::lay_out(cuts, base);
        assert!(bytes.len() <= size, "a table of {} bytes in {size}", bytes.len());
        let table = Self {
            device: driver.ordinal,
            base,
            works: arguments.into_iter().zip(blocks).collect(),
            bases: works[0].bases.to_vec(),
            kernels,
            waiting_blocks,
            launches: AtomicUsize::new(0),
        };
        // SAFETY: `cuMemAlloc` returned `size` bytes at `base`, and `bytes` has no more. Nothing else uses
        // them yet.
        if let Err(error) = unsafe { driver.fill(base, &bytes) } {
            let primary = Arc::clone(&driver.primary);
            deferred_free::queue(move || {
                if let Ok(_current) = primary.make_current_beside_captures() {
                    // SAFETY: `cuMemAlloc` returned `base`, and nothing else uses it. `fill` has waited for
                    // its copy, unless the device has failed and executes nothing. The result of the call
                    // is ignored, because the failure of `fill` is returned.
                    unsafe { (primary.api.free)(base) };
                }
            });
            return Err(error);
        }
        Ok(table)
    }

    /// A handle of the table, which lives until [`CopyTable::from_handle`].
    pub(super) fn into_handle(self) -> RawTable {
        RawTable(Box::into_raw(Box::new(self)).expose_provenance())
    }

    /// # Safety
    /// [`CopyTable::into_handle`] returned the handle, and nothing uses it afterwards.
    pub(super) unsafe fn from_handle(handle: RawTable) -> Box<Self> {
        // SAFETY: the caller promises that `into_handle` returned the handle, as `Box::into_raw` of a table, and that nothing
        // uses it afterwards.
        unsafe { Box::from_raw(std::ptr::with_exposed_provenance_mut(handle.0)) }
    }

    /// # Safety
    /// [`CopyTable::into_handle`] returned the handle, and [`CopyTable::from_handle`] does not get it while the result lives.
    pub(super) unsafe fn at<'a>(handle: RawTable) -> &'a Self {
        // SAFETY: the caller promises that `into_handle` returned the handle, which is the address of a table in a `Box`, and that
        // `from_handle`, which alone frees it, does not get it while the result lives.
        unsafe { &*std::ptr::with_exposed_provenance(handle.0) }
    }

    /// Launches the table on a stream of a device, whose context is current.
    ///
    /// # Safety
    /// The stream, the table, its memories, the counter and the bases are as [`crate::driver::Driver::launch`] wants them, which
    /// its caller promises.
    pub(super) unsafe fn launch(
        &self,
        driver: &CudaDriver,
        stream: RawStream,
        epoch: Epoch,
        bases: &[Address],
    ) -> Result<(), DeviceError> {
        let handle = std::ptr::from_ref(self).addr();
        if self.device != driver.ordinal {
            let (actual, device) = (self.device, driver.ordinal);
            return Err(DeviceError::OtherDevice { what: "copy table", handle, actual, device });
        }
        let (of, kernel) = match epoch {
            Epoch::Given(epoch) => ((epoch % self.works.len() as u64) as usize, self.kernels[0]),
            Epoch::Counted(_) | Epoch::Read(_) => (0, self.kernels[1]),
        };
        let (argument, blocks) = self.works[of];
        if blocks == 0 {
            return Ok(());
        }
        let mut epoch = match epoch {
            Epoch::Given(epoch) => epoch,
            Epoch::Counted(counter) | Epoch::Read(counter) => {
                driver.reach_flag(counter)?;
                self.check_counted(driver.ordinal)?;
                // The kernel's sign that a later launch counts the epoch.
                counter | u64::from(matches!(epoch, Epoch::Read(_)))
            }
        };
        let fits =
            bases.len() == self.bases.len() && self.bases.iter().zip(bases).all(|(base, &at)| base.fits(at));
        if !fits {
            let what = format!("copy table {handle:#x} has other bases than {bases:x?}");
            let (call, code, device) = ("cuLaunchKernel", code::INVALID_VALUE, driver.ordinal);
            return Err(DeviceError::Refused { device, call, code, what });
        }
        let launch = self.launches.fetch_add(1, Ordering::Relaxed);
        let mut argument = argument.of_launch(launch);
        let mut bases = Bases::new(&self.bases, bases);
        let arguments: [*mut c_void; 3] =
            [(&raw mut argument).cast(), (&raw mut epoch).cast(), (&raw mut bases).cast()];
        // SAFETY: the kernel takes an `Argument`, an epoch or the address of a counter, and bases if its table has some, at which
        // `arguments` points; CUDA copies them during the call. `reach_flag` has checked that this device reaches the counter, which the
        // caller keeps valid. The addresses in the argument are those of `self.base`, which the caller keeps until the launch is over, and
        // of the memory of the table, which the caller keeps valid until then. The module of the kernel is held by `driver.kernels`.
        unsafe { kernel.launch(driver, stream, [blocks, 1, 1], [THREADS, 1, 1], &arguments) }
    }

    /// Whether a counter can give the epoch of a launch.
    fn check_counted(&self, device: u32) -> Result<(), DeviceError> {
        let refused = |what| {
            let (call, code) = ("cuLaunchKernel", code::INVALID_VALUE);
            Err(DeviceError::Refused { device, call, code, what })
        };
        let (argument, blocks) = self.works[0];
        if blocks > MOST_COUNTED_BLOCKS {
            return refused(format!(
                "a counter of epochs counts {MOST_COUNTED_BLOCKS} blocks at most, not {blocks}"
            ));
        }
        if self.works.len() > 1 && !argument.has_odd() {
            return refused(
                "a launch in a graph needs works of one shape for even and odd epochs".to_owned(),
            );
        }
        Ok(())
    }
}
