//! Ranks that share no memory, as on different nodes.

use super::provoked::{errors_of_two, on_two_ranks};
use halocline::{
    Array, BindError, BindOptions, Cause, CommError, Decomposed, Error, HaloExchange, LinkChoice,
    PatternLinks, RegularGrid,
};
use halocline_comm::mappings::{DeviceId, MappingError, Mappings, Target};
use halocline_conformance::tampered::{apart, apart_until};
use std::sync::{Arc, OnceLock};

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
fn an_exchange_over_a_transport_that_has_failed_names_its_own_rank() {
    let errors = errors_of_two(|comm| {
        let broken = Arc::new(OnceLock::new());
        let comm = &apart_until(comm.clone(), Arc::clone(&broken));
        let pattern = RegularGrid::new([4]).decompose(2)?.pattern(comm, 1)?;
        let array = Array::<u64>::zeros(comm, &[4])?;
        let halo = HaloExchange::bind(comm, [(&pattern, &array)])?;
        comm.barrier()?;
        if comm.rank() == 1 {
            return Ok(());
        }
        broken.set(CommError::OutOfMemory(7)).unwrap();
        halo.exchange()?.wait()
    });
    let Some(Error::Failed(failure)) = &errors[0] else { panic!("{errors:?}") };
    assert_eq!((failure.cause, failure.culprit), (Cause::Transport, 0), "{failure}");
    assert_eq!(failure.report, Some(CommError::OutOfMemory(7).to_string()));
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
