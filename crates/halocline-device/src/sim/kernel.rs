//! Kernels of a simulated device: closures that declare which bytes they read and write.

use super::memory::Spot;
use super::report::{Operation, Report};
use super::state::State;
use crate::driver::Address;
use std::fmt;

type Body = Box<dyn FnOnce(&mut KernelMemory<'_>) + Send>;

/// A kernel for [`super::World::launch`]. What it declares is accessed from its begin to its end; its body runs at
/// some moment between.
pub struct Kernel {
    pub(super) name: &'static str,
    /// What it declares: address, bytes, whether it writes.
    pub(super) declared: Vec<(Address, usize, bool)>,
    /// The same, found.
    pub(super) spots: Vec<(Spot, usize, bool)>,
    pub(super) body: Body,
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kernel({})", self.name)
    }
}

impl Kernel {
    /// A kernel that does nothing, with its name in reports.
    pub fn new(name: &'static str) -> Self {
        Self { name, declared: Vec::new(), spots: Vec::new(), body: Box::new(|_| {}) }
    }

    /// It reads these bytes.
    pub fn reads(mut self, address: Address, bytes: usize) -> Self {
        self.declared.push((address, bytes, false));
        self
    }

    /// It writes these bytes, and may read them.
    pub fn writes(mut self, address: Address, bytes: usize) -> Self {
        self.declared.push((address, bytes, true));
        self
    }

    /// What it does.
    pub fn body(mut self, body: impl FnOnce(&mut KernelMemory<'_>) + Send + 'static) -> Self {
        self.body = Box::new(body);
        self
    }
}

/// The memory that a kernel has declared.
pub struct KernelMemory<'a> {
    pub(super) state: &'a mut State,
    pub(super) declared: &'a [(Spot, usize, bool)],
    pub(super) by: Operation,
}

impl fmt::Debug for KernelMemory<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KernelMemory({})", self.by)
    }
}

impl KernelMemory<'_> {
    /// The 64-bit word at an address; a report, and 0, if the kernel has not declared that it reads it.
    pub fn read(&mut self, address: Address) -> u64 {
        match self.find(address, 8, false) {
            Some(spot) => {
                let mut word = [0; 8];
                word.copy_from_slice(self.state.memories.slice(spot, 8));
                u64::from_le_bytes(word)
            }
            None => 0,
        }
    }

    /// Writes the 64-bit word at an address; a report, and nothing else, if the kernel has not declared it.
    pub fn write(&mut self, address: Address, value: u64) {
        if let Some(spot) = self.find(address, 8, true) {
            self.state.memories.slice_mut(spot, 8).copy_from_slice(&value.to_le_bytes());
        }
    }

    /// Bytes that the kernel writes; a report, and none, if it has not declared them.
    pub fn bytes_mut(&mut self, address: Address, bytes: usize) -> &mut [u8] {
        match self.find(address, bytes, true) {
            Some(spot) => self.state.memories.slice_mut(spot, bytes),
            None => &mut [],
        }
    }

    fn find(&mut self, address: Address, bytes: usize, writes: bool) -> Option<Spot> {
        let found = self.state.memories.find(address, bytes).ok();
        let found = found.filter(|spot| {
            self.declared.iter().any(|&(declared, len, may_write)| {
                let range = declared.offset..declared.offset + len;
                declared.region == spot.region
                    && range.start <= spot.offset
                    && spot.offset + bytes <= range.end
                    && (may_write || !writes)
            })
        });
        if found.is_none() {
            let by = self.by.clone();
            self.state.report(Report::Undeclared { by, address, bytes });
        }
        found
    }
}
