//! Ranks that share no memory, as on different nodes.

use super::provoked::on_two_ranks;
use halocline::{BindError, BindOptions, Decomposed, Error, LinkChoice, PatternLinks, RegularGrid};
use halocline_comm::mappings::{DeviceId, MappingError, Mappings, Target};
use halocline_conformance::tampered::apart;

#[test]
fn links_through_shared_memory_are_refused() {
    on_two_ranks(|comm| {
        let comm = apart(comm);
        let peer = 1 - comm.rank();
        let pattern = RegularGrid::new([4]).decompose(2).unwrap().pattern(&comm, 1).unwrap();
        let options = BindOptions::default().link(LinkChoice::Mailbox);
        let error = PatternLinks::new_with(&comm, &[&pattern], &options).unwrap_err();
        assert!(
            matches!(error, Error::Bind(BindError::NoSharedMemory { peer: named }) if named == peer),
            "{error}"
        );
        comm.barrier().unwrap();
    });
}

#[test]
fn memory_is_not_mapped() {
    on_two_ranks(|comm| {
        let comm = apart(comm);
        let peer = 1 - comm.rank();
        let bytes = [0u8; 8];
        let target = Target { rank: peer, device: DeviceId::HOST };
        let error = Mappings::of(&comm).map(target, bytes.as_ptr().addr() as u64, 8).err().unwrap();
        assert!(matches!(error, MappingError::Apart { rank } if rank == peer), "{error}");
        comm.barrier().unwrap();
    });
}
