//! Devices follow the addresses that a provider returns: only an `unsafe impl` can promise that memory is there.
#![deny(unsafe_op_in_unsafe_fn)]

use halocline::device::Address;
use halocline::device::remote::{Allocation, DeviceId, Export, Opened, Provider, Refusal};

struct Liar;

impl Provider for Liar {
    fn device(&self) -> DeviceId {
        DeviceId::HOST
    }

    fn find(&self, base: Address, bytes: u64) -> Option<Allocation> {
        let kind = halocline::device::remote::Kind::Memfd;
        Some(Allocation { base, bytes, id: 1, device: DeviceId::HOST, kind })
    }

    fn export(&self, _: &Allocation) -> Result<Export, Refusal> {
        Ok(Export { handle: Vec::new(), descriptors: Vec::new() })
    }

    fn open(&self, _: &Allocation, _: Export) -> Result<Opened, Refusal> {
        Ok(Opened { address: 4096, key: 0 })
    }

    unsafe fn close(&self, _: Opened) -> Result<(), Refusal> {
        Ok(())
    }

    fn adopt(&self, _: &Allocation) -> Result<(), Refusal> {
        Ok(())
    }
}

fn main() {}
