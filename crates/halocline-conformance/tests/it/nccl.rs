//! Links whose messages NCCL carries, between simulated devices that have a stand-in for it.

use halocline::device::sim::{Live, Options, World, explore};
use halocline::device::{Memory, Priority, ValueOp};
use halocline::{BindError, Cause, Communicator, Device, DeviceError, Error, LinkChoice, PatternLinks};
use halocline_comm::Endpoint;
use halocline_conformance::device_fixtures::{DeviceFixture, Rig, devices};
use halocline_conformance::holding::Held;
use halocline_conformance::nccl::{aborted, bound_between, by_nccl, exchanged, step};
use halocline_conformance::simulated::{options, run_ranks, run_ranks_apart};
use halocline_conformance::{Outcome, Trouble, fail};
use std::time::Duration;

const RANKS: usize = 3;

fn limited() -> Options {
    Options { devices: 4, depth: 4096, steps: 400_000, ..options() }
}

fn own_device(world: &World, comm: &Communicator) -> Result<Device, Trouble> {
    Ok(devices(world, 4)?.swap_remove(comm.rank()))
}

#[test]
fn sets_narrower_halos_and_objects_share_a_communicator() {
    for (inline, checked) in [(false, false), (true, false), (false, true)] {
        explore(0..60, &limited(), |world| {
            run_ranks(world, RANKS, |comm| {
                exchanged(world, comm, &own_device(world, comm)?, (inline, checked))
            });
        });
    }
}

#[test]
fn a_bind_of_connected_ranks_sends_nothing() {
    explore(0..60, &limited(), |world| {
        run_ranks(world, 2, |comm| bound_between(world, comm, &own_device(world, comm)?));
    });
}

/// A rank without fields takes no part.
fn beside_a_rank_without_fields(world: &World, comm: &Communicator) -> Outcome {
    let part = comm.split(usize::from(comm.rank() == 2), 0)?;
    let part = part.ok_or_else(|| Trouble::new("every rank has a part"))?;
    let device = own_device(world, comm)?;
    // First a communicator of two ranks, then one of one.
    let fixture = DeviceFixture::new(&part, &[4 * part.size()], (1, 1, 1), |_| &device)?;
    let halo = fixture.bind(&part, &[&[0]], &by_nccl())?;
    let stream = device.stream(Priority::Normal)?;
    (1..=2).try_for_each(|round| step(world, (&fixture, 0), &halo, (&stream, round)))?;
    Ok(stream.synchronise()?)
}

#[test]
fn ranks_of_a_split_communicator_have_one_of_their_own() {
    explore(0..60, &limited(), |world| {
        run_ranks(world, RANKS, |comm| beside_a_rank_without_fields(world, comm));
    });
}

#[test]
fn an_abort_fails_the_other_objects_and_the_next_bind_connects_again() {
    explore(0..60, &limited(), |world| {
        run_ranks(world, 2, |comm| aborted(world, comm, &own_device(world, comm)?, Duration::from_millis(1)))
    });
}

/// Rank 0 waits for a gate, rank 1 fails: nothing waits for ever.
fn device_fails(world: &World, comm: &Communicator) -> Outcome {
    let device = own_device(world, comm)?;
    let fixture = DeviceFixture::new(comm, &[4 * comm.size()], (1, 1, 1), |_| &device)?;
    let halo = fixture.bind(comm, &[&[0]], &by_nccl())?;
    let stream = device.stream(Priority::Normal)?;
    let gate: Memory = device.allocate_pinned(8)?;
    if comm.rank() == 1 {
        // SAFETY: only the stream and the store below access the word, which lives until the stream is synchronised.
        unsafe { stream.values(&[ValueOp::Wait { address: gate.at(0), at_least: 1 }]) }?;
    }
    let pending = halo.schedule_exchange(&[&stream])?;
    comm.barrier()?;
    if comm.rank() == 1 {
        world.fail(&device, "it was unplugged");
    }
    match pending.wait() {
        Err(Error::Failed(failure)) if failure.cause == Cause::Device && failure.culprit == 1 => {}
        other => fail!("instead of a lost device: {other:?}"),
    }
    while !halo.reclaim() {
        comm.link().host().yield_now();
    }
    // A device that has failed does nothing more.
    if comm.rank() == 0 { Ok(stream.synchronise()?) } else { Ok(()) }
}

#[test]
fn a_device_that_fails_ends_the_messages_of_its_peers() {
    explore(0..60, &limited(), |world| run_ranks(world, 2, |comm| device_fails(world, comm)));
}

#[test]
fn what_nccl_cannot_connect_is_refused_on_all_ranks() {
    let shared = |world: &World, comm: &Communicator, place: &dyn Fn(usize) -> usize, domains: usize| {
        let devices = devices(world, 4)?;
        let at = |domain: usize| &devices[place(2 * comm.rank() + domain)];
        let fixture = DeviceFixture::new(comm, &[4 * comm.size()], (domains, 1, 1), at)?;
        Ok::<_, Trouble>(fixture.bind(comm, &[&[0]], &by_nccl()).err())
    };
    explore(0..20, &limited(), |world| {
        run_ranks(world, 2, |comm| match shared(world, comm, &|number| number, 2)? {
            Some(Error::Bind(BindError::NcclDevices { devices: 2 })) => Ok(()),
            other => fail!("two devices on each rank: {other:?}"),
        });
    });
    let is_shared = |world: &World, comm: &Communicator| -> Outcome {
        let pair = (comm.rank(), 1 - comm.rank());
        match shared(world, comm, &|_| 0, 1)? {
            Some(Error::Bind(BindError::NcclShared { rank, peer })) if (rank, peer) == pair => Ok(()),
            other => fail!("one device for both ranks: {other:?}"),
        }
    };
    explore(0..20, &limited(), |world| run_ranks(world, 2, |comm| is_shared(world, comm)));
    let exported = Options { exports: true, ..limited() };
    explore(0..20, &exported, |world| run_ranks_apart(world, 2, |comm| is_shared(world, comm)));
    explore(0..20, &limited(), |world| {
        run_ranks(world, 2, |comm| {
            let device = own_device(world, comm)?;
            let fixture = DeviceFixture::new(comm, &[4 * comm.size()], (1, 1, 1), |_| &device)?;
            match PatternLinks::on_device(comm, &[&fixture.pattern], &device, &by_nccl()) {
                Err(Error::Bind(BindError::DirectWithoutFields { choice: LinkChoice::Nccl })) => Ok(()),
                other => fail!("fields that are given to each exchange: {:?}", other.err()),
            }
        });
    });
}

/// Devices whose driver has no NCCL.
#[test]
fn a_device_without_nccl_says_so() {
    let devices = Held::get().unwrap_or_else(|trouble| panic!("{trouble}")).devices();
    let comm = Communicator::single();
    let fixture = DeviceFixture::new(&comm, &[6], (1, 1, 1), |_| &devices[0])
        .unwrap_or_else(|trouble| panic!("{trouble}"));
    match fixture.bind(&comm, &[&[0]], &by_nccl()) {
        Err(Error::Device(DeviceError::NoMessages { device: 0, why })) => {
            assert!(why.contains("this kind of device"), "{why}")
        }
        other => panic!("instead of a device without NCCL: {:?}", other.err()),
    }
}

/// Simulated devices of two worlds, which exchange no messages.
#[test]
fn devices_of_different_worlds_do_not_connect() {
    let options = Options { devices: 1, depth: 1024, ordered_threads: true, ..Options::default() };
    let worlds: Vec<Live> = [1, 2].map(|seed| World::live(seed, &options).expect("threads")).into();
    let ranks = Communicator::threads(2).into_iter().zip(&worlds);
    std::thread::scope(|threads| {
        let ranks: Vec<_> = ranks
            .map(|(comm, live)| {
                threads.spawn(move || -> Outcome {
                    let device = live.world().device(0)?;
                    let fixture = DeviceFixture::new(&comm, &[8], (1, 1, 1), |_| &device)?;
                    match fixture.bind(&comm, &[&[0]], &by_nccl()).err() {
                        Some(Error::Device(DeviceError::Messages { what, .. }))
                            if what.contains("worlds") =>
                        {
                            Ok(())
                        }
                        Some(Error::Elsewhere { message, .. }) if message.contains("worlds") => Ok(()),
                        other => fail!("instead of devices of two worlds: {other:?}"),
                    }
                })
            })
            .collect();
        ranks.into_iter().for_each(|rank| rank.join().unwrap().unwrap_or_else(|trouble| panic!("{trouble}")));
    });
}
