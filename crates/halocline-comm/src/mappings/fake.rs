//! A driver of maps and counters, for tests: it reuses addresses soon after a free, refuses what CUDA
//! refuses, fails on request, and records every violation of the rules for the mapping cache.

use halocline_device::Address;
use halocline_device::remote::{Allocation, DeviceId, Export, Kind, Opened, Provider, Refusal};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// All processes and all memory.
#[derive(Clone, Default)]
pub(super) struct World(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    memory: BTreeMap<u64, Memory>,
    opened: BTreeMap<u64, Open>,
    next: u64,
    exports: usize,
    opens: usize,
    closes: usize,
    asked: Asked,
    wrongs: Vec<String>,
}

/// Queries about allocations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Asked {
    /// For the one around an address.
    pub(super) finds: usize,
    /// For whether one still exists.
    pub(super) stills: usize,
}

/// Physical memory: exists until it is freed and no process has it open.
struct Memory {
    process: usize,
    allocation: Allocation,
    is_freed: bool,
}

struct Open {
    process: usize,
    device: DeviceId,
    id: u64,
    address: Address,
}

/// Addresses of mappings are far from those of allocations.
const MAPPED: Address = 1 << 40;

impl World {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Allocates memory of a process at a free address.
    pub(super) fn allocate(&self, process: usize, device: DeviceId, base: Address, bytes: u64) -> Allocation {
        let mut inner = self.lock();
        inner.next += 1;
        let allocation = Allocation { base, bytes, id: inner.next, device, kind: Kind::Legacy };
        let here = inner.memory.values().filter(|memory| memory.process == process && !memory.is_freed);
        assert!(
            here.into_iter().all(|memory| !memory.allocation.overlaps(&allocation)),
            "the test's own mistake"
        );
        inner.memory.insert(allocation.id, Memory { process, allocation, is_freed: false });
        allocation
    }

    pub(super) fn free(&self, id: u64) {
        let mut inner = self.lock();
        if let Some(memory) = inner.memory.get_mut(&id) {
            memory.is_freed = true;
        }
        inner.reclaim();
    }

    /// A process dies: the driver frees all that it had.
    pub(super) fn kill(&self, process: usize) {
        let mut inner = self.lock();
        let before = inner.opened.len();
        inner.opened.retain(|_, open| open.process != process);
        inner.closes += before - inner.opened.len();
        inner.memory.values_mut().filter(|memory| memory.process == process).for_each(|m| m.is_freed = true);
        inner.reclaim();
    }

    /// The memory, and the offset in it, that a process sees at an address.
    pub(super) fn look(&self, process: usize, address: Address) -> Option<(u64, u64)> {
        let inner = self.lock();
        let here = inner.opened.values().filter(|open| open.process == process);
        let opened = here.map(|open| (open.address, open.id));
        let own = inner.memory.values().filter(|memory| memory.process == process && !memory.is_freed);
        let own = own.map(|memory| (memory.allocation.base, memory.allocation.id));
        opened.chain(own).find_map(|(base, id)| {
            let bytes = inner.memory.get(&id)?.allocation.bytes;
            (base..base + bytes).contains(&address).then(|| (id, address - base))
        })
    }
}

impl World {
    /// Open mappings of memory of one process.
    pub(super) fn open_of(&self, process: usize) -> usize {
        let inner = self.lock();
        inner.opened.values().filter(|open| inner.memory[&open.id].process == process).count()
    }

    /// Memory that was freed and still exists.
    pub(super) fn held(&self) -> usize {
        self.lock().memory.values().filter(|memory| memory.is_freed).count()
    }

    /// Whether some memory was not freed yet.
    pub(super) fn is_there(&self, id: u64) -> bool {
        self.lock().memory.get(&id).is_some_and(|memory| !memory.is_freed)
    }

    /// Whether some memory was freed and still exists.
    pub(super) fn is_held(&self, id: u64) -> bool {
        self.lock().memory.get(&id).is_some_and(|memory| memory.is_freed)
    }

    /// The numbers of exports, opens and closes so far.
    pub(super) fn calls(&self) -> (usize, usize, usize) {
        let inner = self.lock();
        (inner.exports, inner.opens, inner.closes)
    }

    /// The queries so far.
    pub(super) fn asked(&self) -> Asked {
        self.lock().asked
    }

    /// Violations of the rules.
    pub(super) fn wrongs(&self) -> Vec<String> {
        self.lock().wrongs.clone()
    }
}

impl Inner {
    fn reclaim(&mut self) {
        let opened: Vec<u64> = self.opened.values().map(|open| open.id).collect();
        self.memory.retain(|id, memory| !memory.is_freed || opened.contains(id));
    }
}

/// The driver of one device in one process.
pub(super) struct Fake {
    pub(super) world: World,
    pub(super) process: usize,
    pub(super) device: DeviceId,
    /// Results of the next calls of `open`.
    pub(super) refusals: Mutex<Vec<Refusal>>,
    /// Calls of `open` that have begun.
    pub(super) opening: AtomicUsize,
    /// Results of the next calls of `export`.
    pub(super) private: Mutex<Vec<Refusal>>,
    /// Closing waits until nothing waits on a device, as with CUDA's legacy handles.
    pub(super) close_waits: AtomicBool,
}

impl Fake {
    pub(super) fn new(world: &World, process: usize, device: DeviceId) -> Arc<Self> {
        Arc::new(Self {
            world: world.clone(),
            process,
            device,
            refusals: Mutex::default(),
            opening: AtomicUsize::default(),
            private: Mutex::default(),
            close_waits: AtomicBool::default(),
        })
    }
}

// SAFETY: its addresses are numbers that nobody follows.
unsafe impl Provider for Fake {
    fn device(&self) -> DeviceId {
        self.device
    }

    fn find(&self, address: Address, _bytes: u64) -> Option<Allocation> {
        let mut inner = self.world.lock();
        inner.asked.finds += 1;
        let is_here = |memory: &&Memory| {
            let allocation = memory.allocation;
            let is_ours = memory.process == self.process && allocation.device == self.device;
            is_ours && !memory.is_freed && (allocation.base..allocation.end()).contains(&address)
        };
        inner.memory.values().find(is_here).map(|memory| memory.allocation)
    }

    fn still(&self, allocation: &Allocation) -> bool {
        let mut inner = self.world.lock();
        inner.asked.stills += 1;
        inner.memory.get(&allocation.id).is_some_and(|memory| {
            let is_ours = memory.process == self.process && allocation.device == self.device;
            is_ours && !memory.is_freed && memory.allocation == *allocation
        })
    }

    fn export(&self, allocation: &Allocation) -> Result<Export, Refusal> {
        self.world.lock().exports += 1;
        if let Some(refusal) = self.private.lock().unwrap_or_else(PoisonError::into_inner).pop() {
            return Err(refusal);
        }
        Ok(Export { handle: allocation.id.to_le_bytes().to_vec(), descriptors: Vec::new() })
    }

    fn open(&self, allocation: &Allocation, export: Export) -> Result<Opened, Refusal> {
        self.opening.fetch_add(1, Ordering::Relaxed);
        if let Some(refusal) = self.refusals.lock().unwrap_or_else(PoisonError::into_inner).pop() {
            return Err(refusal);
        }
        let inner = &mut *self.world.lock();
        let id = u64::from_le_bytes(export.handle.try_into().map_err(|_| Refusal::BadHandle)?);
        let memory = inner.memory.get(&id).filter(|memory| !memory.is_freed).ok_or(Refusal::BadHandle)?;
        if memory.allocation != *allocation {
            return Err(Refusal::BadHandle);
        }
        if memory.process == self.process {
            inner.wrongs.push(format!("process {} opens its own memory {id}", self.process));
        }
        for open in inner.opened.values().filter(|open| open.process == self.process) {
            let other = &inner.memory[&open.id];
            if (open.id, open.device) == (id, self.device) {
                inner.wrongs.push(format!("process {} opens memory {id} twice", self.process));
            }
            if open.id != id && other.process == memory.process && other.allocation.overlaps(allocation) {
                inner.wrongs.push(format!("memory {id} is offered while memory {} is open", open.id));
                return Err(Refusal::AlreadyOpen);
            }
        }
        inner.next += 1;
        inner.opens += 1;
        let (key, address) = (inner.next, MAPPED + (inner.next << 24));
        inner.opened.insert(key, Open { process: self.process, device: self.device, id, address });
        Ok(Opened { address, key })
    }

    unsafe fn close(&self, opened: Opened) -> Result<(), Refusal> {
        let inner = &mut *self.world.lock();
        match inner.opened.remove(&opened.key) {
            Some(open) if (open.process, open.device) == (self.process, self.device) => inner.closes += 1,
            Some(_) => inner.wrongs.push(format!("mapping {} is closed on another device", opened.key)),
            None => inner.wrongs.push(format!("mapping {} is closed twice", opened.key)),
        }
        inner.reclaim();
        Ok(())
    }

    fn close_waits(&self, _opened: &Opened) -> bool {
        self.close_waits.load(Ordering::Relaxed)
    }

    fn adopt(&self, allocation: &Allocation) -> Result<(), Refusal> {
        let inner = self.world.lock();
        let known = inner.memory.get(&allocation.id).filter(|memory| memory.allocation == *allocation);
        known.map(drop).ok_or(Refusal::BadHandle)
    }
}
