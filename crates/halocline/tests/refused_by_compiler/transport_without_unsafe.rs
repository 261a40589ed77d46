//! What a transport allocates is given out as slices: one that returns the same memory twice gives two `&mut` to one address. Only an
//! `unsafe impl` can promise that it does not.
#![forbid(unsafe_code)]

use halocline_comm::{CommError, Cores, Doorbell, Host, Inbox, PeerState, Segment, Tag, Transport};
use std::sync::Arc;

struct Liar(Arc<Segment>);

impl Transport for Liar {
    fn name(&self) -> &'static str {
        "liar"
    }

    fn rank(&self) -> usize {
        0
    }

    fn size(&self) -> usize {
        1
    }

    fn post(&self, _: usize, _: Tag, _: Vec<u8>, _: &[Arc<Segment>]) -> Result<(), CommError> {
        Ok(())
    }

    fn inbox(&self) -> &Inbox {
        todo!()
    }

    fn allocate(&self, _: usize) -> Result<Arc<Segment>, CommError> {
        Ok(Arc::clone(&self.0))
    }

    fn reach(&self, _: usize, _: &Segment) -> Result<(), String> {
        Ok(())
    }

    fn bell(&self, _: usize) -> Option<&Doorbell> {
        None
    }

    fn leave(&self) {}

    fn own_bell(&self) -> &Doorbell {
        todo!()
    }

    fn state(&self, _: usize) -> PeerState {
        PeerState::Present
    }

    fn departures(&self) -> u64 {
        0
    }

    fn host(&self) -> &dyn Host {
        todo!()
    }

    fn cores(&self) -> Cores {
        Cores::OnePerRank
    }
}

fn main() {}
