//! Kernels of a simulated device: closures that declare the bytes that they read and write.

use super::memory::Spot;
use super::report::{Operation, Report};
use super::state::State;
use crate::driver::Address;
use std::fmt;
use std::sync::Arc;

type Body = Arc<dyn Fn(&mut KernelMemory<'_>) + Send + Sync>;

/// A kernel for [`super::World::launch`]. It accesses the declared bytes from its start to its end; its
/// body runs at some moment in between. A clone does the same.
#[derive(Clone)]
pub struct Kernel {
    pub(super) name: &'static str,
    /// Declared accesses: address, bytes, whether it writes.
    pub(super) declared: Vec<(Address, usize, bool)>,
    /// The declared accesses, resolved.
    pub(super) spots: Vec<(Spot, usize, bool)>,
    pub(super) body: Body,
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kernel({})", self.name)
    }
}

impl Kernel {
    /// A kernel without effect; `name` appears in reports.
    pub fn new(name: &'static str) -> Self {
        Self { name, declared: Vec::new(), spots: Vec::new(), body: Arc::new(|_| {}) }
    }

    /// Declares bytes that the kernel reads.
    pub fn reads(mut self, address: Address, bytes: usize) -> Self {
        self.declared.push((address, bytes, false));
        self
    }

    /// Declares bytes that the kernel writes and may read.
    pub fn writes(mut self, address: Address, bytes: usize) -> Self {
        self.declared.push((address, bytes, true));
        self
    }

    /// Sets the body. In a graph it runs at each launch.
    pub fn body(mut self, body: impl Fn(&mut KernelMemory<'_>) + Send + Sync + 'static) -> Self {
        self.body = Arc::new(body);
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
    /// The 64-bit word at an address. Without a declaration, reports it and returns 0.
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

    /// A copy of bytes that the kernel reads. Without a declaration, reports it and returns no bytes.
    pub(super) fn bytes(&mut self, address: Address, bytes: usize) -> Vec<u8> {
        let found = self.find(address, bytes, false);
        found.map_or_else(Vec::new, |spot| self.state.memories.slice(spot, bytes).to_vec())
    }

    /// Writes the 64-bit word at an address. Without a declaration, only reports it.
    pub fn write(&mut self, address: Address, value: u64) {
        if let Some(spot) = self.find(address, 8, true) {
            self.state.memories.slice_mut(spot, 8).copy_from_slice(&value.to_le_bytes());
        }
    }

    /// Bytes that the kernel writes. Without a declaration, reports it and returns no bytes.
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
