//! Opens and closes memory that another process exported. The other process's data is untrusted.

use super::{
    CudaMemory, Open, POOL_MOST, POSIX, PoolName, RANGE_SIZE, RANGE_START, Table, check, check_close, refusal,
};
use crate::cuda::api::{Access, code};
use crate::driver::Address;
use crate::remote::{Allocation, Export, Refusal};
use rustix::fd::{AsRawFd, OwnedFd};

impl CudaMemory {
    pub(super) fn open_vmm(&self, allocation: &Allocation, export: &Export) -> Result<Open, Refusal> {
        let (words, rest) = export.handle.as_chunks::<8>();
        let sizes: Vec<usize> = words.iter().map(|word| u64::from_le_bytes(*word) as usize).collect();
        let total = sizes.iter().try_fold(0usize, |sum, size| sum.checked_add(*size));
        let total = total.filter(|total| *total as u64 == allocation.bytes).ok_or(Refusal::BadHandle)?;
        if sizes.len() != export.descriptors.len() || !rest.is_empty() {
            return Err(Refusal::BadHandle);
        }
        let mut base = 0;
        check((self.api().reserve)(&mut base, total, 0, 0, 0))?;
        let mut at = 0;
        let mapped = sizes.iter().zip(&export.descriptors).try_for_each(|(size, fd)| {
            let mut memory = 0;
            let os_handle = std::ptr::without_provenance_mut(fd.as_raw_fd() as usize);
            // SAFETY: `os_handle` is a descriptor that `export` holds open, and CUDA checks what it is. CUDA writes one
            // handle to `memory`.
            check(unsafe { (self.api().import_memory)(&mut memory, os_handle, POSIX) })?;
            // SAFETY: the addresses are within the `total` that `reserve` gave at `base`, behind those that are mapped
            // already: the sizes add up to `total`. `memory` was imported above, and CUDA refuses a size that is not
            // its own.
            let mapped = unsafe { (self.api().map)(base + at as u64, *size, 0, memory, 0) };
            // SAFETY: `memory` was imported above and is not used afterwards; the mapping keeps the physical memory.
            unsafe { (self.api().release_memory)(memory) };
            at += if mapped == code::SUCCESS { *size } else { 0 };
            check(mapped)
        });
        let open = mapped.and_then(|()| {
            let access = Access::of(self.driver.ordinal);
            // SAFETY: all of `base` to `base + total` is mapped. `access` is one `CUmemAccessDesc` and lives through
            // the call.
            check(unsafe { (self.api().set_access)(base, total, &access, 1) })
        });
        match open {
            Ok(()) => Ok(Open::Vmm(base, total)),
            Err(why) => {
                // Unmaps what was mapped; a further failure changes nothing.
                let _ = self.close_vmm(base, at, total);
                Err(why)
            }
        }
    }

    fn close_vmm(&self, base: Address, mapped: usize, reserved: usize) -> Result<(), Refusal> {
        let unmapped = if mapped == 0 {
            Ok(())
        } else {
            // SAFETY: `open_vmm` mapped this many bytes at `base`. Either it failed and did not return
            // them, or the caller of `close` promises that nothing uses them.
            check_close(unsafe { (self.api().unmap)(base, mapped) })
        };
        // SAFETY: `open_vmm` reserved so many addresses at `base`, and nothing is mapped there any more.
        unmapped.and_then(|()| check_close(unsafe { (self.api().free_addresses)(base, reserved) }))
    }

    pub(super) fn open_pool(&self, bytes: u64, export: &Export) -> Result<Open, Refusal> {
        if bytes > POOL_MOST {
            return Err(Refusal::TooLarge);
        }
        let (data, name) = export.handle.split_first_chunk::<64>().ok_or(Refusal::BadHandle)?;
        let name: PoolName = name.try_into().map_err(|_| Refusal::BadHandle)?;
        let mut table = self.opened();
        let pool = match table.pools.get(&name) {
            Some((pool, _)) => *pool,
            None => {
                let pool = self.import_pool(export.descriptors.first().ok_or(Refusal::BadHandle)?)?;
                table.pools.insert(name, (pool, 0));
                pool
            }
        };
        let (mut address, mut data) = (0, *data);
        // SAFETY: `pool` was imported and is kept in `table.pools` as long as it counts open pointers. `data` has the
        // 64 bytes of a `CUmemPoolPtrExportData`, which CUDA checks. CUDA writes one address to `address`.
        let imported = unsafe { (self.api().import_pointer)(&mut address, pool, (&raw mut data).cast()) };
        if imported == code::SUCCESS
            && let Some((_, count)) = table.pools.get_mut(&name)
        {
            *count += 1;
            return Ok(Open::Pool(address, name));
        }
        self.drop_pool(&mut table, name);
        Err(refusal(imported))
    }

    fn import_pool(&self, fd: &OwnedFd) -> Result<usize, Refusal> {
        let mut pool = 0;
        let os_handle = std::ptr::without_provenance_mut(fd.as_raw_fd() as usize);
        // SAFETY: `os_handle` is a descriptor that the caller holds open, and CUDA checks what it is. CUDA writes one
        // handle to `pool`.
        check(unsafe { (self.api().import_pool)(&mut pool, os_handle, POSIX, 0) })?;
        let access = Access::of(self.driver.ordinal);
        // SAFETY: `pool` was imported just now. `access` is one `CUmemAccessDesc` and lives through the call.
        check(unsafe { (self.api().set_pool_access)(pool, &access, 1) }).inspect_err(|_| {
            // SAFETY: `pool` was imported above, nothing of it is open, and it was not returned.
            unsafe { (self.api().destroy_pool)(pool) };
        })?;
        Ok(pool)
    }

    /// Whether the memory has as many bytes as announced, according to the driver.
    pub(super) fn holds(&self, open: &Open, bytes: u64) -> bool {
        let address = match *open {
            Open::Legacy(address) | Open::Pool(address, _) => address,
            // The pieces were mapped with the announced sizes, and the driver refuses sizes that exceed the
            // memory.
            Open::Vmm(_, mapped) => return mapped as u64 == bytes,
        };
        let range = self.ask(address, [RANGE_START, RANGE_SIZE]);
        range.is_some_and(|[start, length]| {
            address
                .checked_sub(start)
                .and_then(|offset| length.checked_sub(offset))
                .is_some_and(|left| bytes <= left)
        })
    }

    /// Closes a mapping; the context is current, and nothing uses it.
    pub(super) fn close_open(&self, open: Open) -> Result<(), Refusal> {
        match open {
            // SAFETY: `open_ipc` returned `address`; the holder of an `Open` closes it once, and the caller
            // of `close` promises that nothing uses the memory.
            Open::Legacy(address) => check_close(unsafe { (self.api().close_ipc)(address) }),
            Open::Vmm(base, bytes) => self.close_vmm(base, bytes, bytes),
            Open::Pool(address, name) => {
                // SAFETY: `open_pool` imported the pointer at `address`; the holder of an `Open` closes it
                // once, and the caller of `close` promises that nothing uses the memory.
                let freed = check_close(unsafe { (self.api().free)(address) });
                let mut table = self.opened();
                if let Some((_, count)) = table.pools.get_mut(&name) {
                    *count -= 1;
                }
                self.drop_pool(&mut table, name);
                freed
            }
        }
    }

    /// Releases a pool without open pointers.
    fn drop_pool(&self, table: &mut Table, name: PoolName) {
        if let Some((pool, 0)) = table.pools.get(&name).copied() {
            table.pools.remove(&name);
            // SAFETY: `import_pool` gave `pool`, which was in the table until now, and its count says that all pointers
            // of it were freed.
            unsafe { (self.api().destroy_pool)(pool) };
        }
    }
}
