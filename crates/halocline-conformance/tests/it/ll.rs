//! Links of the LL protocol (data words that carry their epoch): which links use it, and how exchanges end whose words never arrive.
//! (`refused.rs` has ranks that exchange different sets.) Simulated devices; `HALOCLINE_SEED` runs one seed only.

use halocline::device::Priority;
use halocline::device::sim::{Options, World, explore};
use halocline::{
    BindOptions, Cause, Communicator, Device, Error, HaloExchange, LinkPath, Ll, ReduceOp, TestOptions,
};
use halocline_comm::Endpoint;
use halocline_conformance::device_fixtures::{DeviceFixture, devices, until_failure};
use halocline_conformance::ring::Ring;
use halocline_conformance::simulated::{options, run_ranks, run_ranks_apart};
use halocline_conformance::{Outcome, ensure, fail};
use std::sync::Arc;
use std::time::Duration;

fn limited() -> Options {
    Options { devices: 3, depth: 1024, steps: 2_000_000, ..options() }
}

/// Whether all links are of a way.
fn all_are(halo: &HaloExchange, path: LinkPath) -> bool {
    halo.links().all(|link| link.path == path)
}

/// In one launch, or not.
fn options_of(alone: bool) -> BindOptions {
    BindOptions::default().ll(Ll::UpTo(1 << 20)).for_tests(TestOptions { alone, ..TestOptions::default() })
}

/// Under seeds, in one launch on neither rank, on one, and on both.
fn under_seeds(rank: impl Fn(&World, &Communicator, &Device, &BindOptions) -> Outcome + Sync) {
    for alone in [[false, false], [true, false], [false, true], [true, true]] {
        explore(0..20, &limited(), |world| {
            run_ranks(world, 2, |comm| {
                let device = &devices(world, 1)?[0];
                rank(world, comm, device, &options_of(alone[comm.rank()]))
            });
        });
    }
}

/// Of 40 cells of 8 bytes each way, between processes.
#[test]
fn small_messages_use_the_ll_protocol_if_both_sides_want_it() {
    let options = Options { exports: true, ..limited() };
    explore(0..30, &options, |world| {
        run_ranks_apart(world, 2, |comm| {
            let device = world.device(comm.rank() as u32)?;
            let memory = Arc::new(device.allocate(Ring::BYTES)?);
            let ring = Ring::new(comm, &device, memory.at(0), memory)?;
            let inline = world.seed() % 2 == 0;
            let bind = |most: [usize; 2], stream_waits: bool| {
                let ll = Ll::UpTo(most[comm.rank()]);
                ring.bind(comm, &BindOptions::default().inline(inline).ll(ll).stream_waits(stream_waits))
            };
            let pushed = bind([639, 700], false)?;
            let why = "no LL protocol, which is for 1 B to 639 B";
            ensure!(
                all_are(&pushed, LinkPath::Push) && pushed.explain().contains(why),
                "{}",
                pushed.explain()
            );
            let waits = bind([700, 700], comm.rank() == 1)?;
            let why = ["no LL protocol: the peer takes none", "no LL protocol: streams wait here"];
            let text = waits.explain();
            ensure!(all_are(&waits, LinkPath::Push) && text.contains(why[comm.rank()]), "{text}");
            let halo = bind([640, 700], false)?;
            let text = halo.explain();
            ensure!(all_are(&halo, LinkPath::Ll), "{text}");
            for part in ["each exchange in one launch", "mapped by simulation, for messages of up to 640 B"] {
                ensure!(text.contains(part), "{part}: {text}");
            }
            comm.barrier()?;
            let calls = world.mapping_calls();
            comm.barrier()?;
            (1..=5).try_for_each(|step| ring.step(&halo, step))?;
            comm.barrier()?;
            ensure!(world.mapping_calls() == calls, "{:?} after {calls:?}", world.mapping_calls());
            (6..=7).try_for_each(|step| ring.step(&pushed, step))?;
            Ok(comm.barrier()?)
        });
    });
}

#[test]
fn steps_are_right_for_every_grouping_of_ranks_into_launches() {
    under_seeds(|world, comm, device, options| {
        let fixture = DeviceFixture::new(comm, &[6, 3], (1, 1, 3), |_| device)?;
        let halo = fixture.bind(comm, &[&[0], &[1, 2]], options)?;
        ensure!(all_are(&halo, LinkPath::Ll), "{}", halo.explain());
        ensure!(halo.explain().contains("in one launch\n") == options.tests().alone, "{}", halo.explain());
        let stream = device.stream(Priority::Normal)?;
        for step in 1..=6 {
            let (set, fields) = if step % 3 == 0 { (1, &[1, 2][..]) } else { (0, &[0][..]) };
            fixture.produce(world, fields, &stream, step)?;
            halo.begin().set(set).after(&[&stream]).schedule()?.schedule_wait(&stream)?;
            fixture.consume(world, fields, &stream, step)?;
        }
        Ok(stream.synchronise()?)
    });
}

#[test]
fn a_sender_runs_at_most_two_exchanges_ahead_of_a_late_receiver() {
    under_seeds(|world, comm, device, options| {
        let fixture = DeviceFixture::one_way(comm, 6, 1, device)?;
        let deadline = Some(Duration::from_millis(100));
        let halo = fixture.bind(comm, &[&[0]], &options.clone().deadline(deadline))?;
        let stream = device.stream(Priority::Normal)?;
        if comm.rank() == 0 {
            fixture.produce(world, &[0], &stream, 1)?;
            let failed = until_failure(&halo, &stream)?;
            ensure!(matches!(failed.cause, Cause::Deadline(_)), "it failed by {failed}");
            ensure!(failed.culprit == 1 && failed.epoch == 3, "it failed by {failed}");
        }
        Ok(comm.barrier()?)
    });
}

/// What never comes is awaited until the deadline, or until the peer is found to have gone; nothing of it is in the halo then.
#[test]
fn a_receiver_without_data_fails_and_keeps_its_halo() {
    for drops in [false, true] {
        under_seeds(|world, comm, device, options| {
            let fixture = DeviceFixture::one_way(comm, 6, 1, device)?;
            let deadline = (!drops).then_some(Duration::from_millis(100));
            let halo = fixture.bind(comm, &[&[0]], &options.clone().deadline(deadline))?;
            let stream = device.stream(Priority::Normal)?;
            fixture.produce(world, &[0], &stream, 1)?;
            halo.schedule_exchange(&[&stream])?.schedule_wait(&stream)?;
            fixture.consume(world, &[0], &stream, 1)?;
            stream.synchronise()?;
            comm.barrier()?;
            if comm.rank() == 0 {
                if drops {
                    drop(halo);
                }
                return Ok(comm.barrier()?);
            }
            let failed = match halo.schedule_exchange(&[&stream]).and_then(|pending| pending.wait()) {
                Err(Error::Failed(failed)) => failed,
                other => fail!("instead of a failure: {other:?}"),
            };
            match failed.cause {
                Cause::Dropped if drops => {}
                Cause::Deadline(_) if !drops => {}
                _ => fail!("it failed by {failed}"),
            }
            while !halo.reclaim() {
                comm.link().host().yield_now();
            }
            fixture.consume(world, &[0], &stream, 1)?;
            stream.synchronise()?;
            Ok(comm.barrier()?)
        });
    }
}

/// The exchange of the owner combines nothing, and sets the flags of exchanges.
#[test]
fn a_reduce_beside_an_exchange_of_the_owner_does_not_end_well() {
    under_seeds(|_, comm, device, options| {
        let fixture = DeviceFixture::one_way(comm, 6, 1, device)?;
        let deadline = Some(Duration::from_millis(100));
        let halo = fixture.bind(comm, &[&[0]], &options.clone().deadline(deadline))?;
        ensure!(all_are(&halo, LinkPath::Ll), "{}", halo.explain());
        let stream = device.stream(Priority::Normal)?;
        let ended = match comm.rank() {
            0 => halo.schedule_exchange(&[&stream]),
            _ => halo.schedule_reduce(ReduceOp::Sum, &[&stream]),
        };
        match (comm.rank(), ended.and_then(|pending| pending.wait())) {
            (0, Ok(())) | (_, Err(Error::Failed(_))) => {}
            (rank, other) => fail!("rank {rank}, instead of a failure: {other:?}"),
        }
        Ok(comm.barrier()?)
    });
}

/// The device of the sender fails while the receiver waits for its words.
#[test]
fn a_failed_device_of_a_sender_fails_its_receivers() {
    explore(0..60, &limited(), |world| {
        run_ranks(world, 2, |comm| {
            let device = &devices(world, 2)?[comm.rank()];
            let fixture = DeviceFixture::new(comm, &[6], (1, 1, 1), |_| device)?;
            let halo = fixture.bind(comm, &[&[0]], &options_of(true))?;
            let stream = device.stream(Priority::Normal)?;
            let begin = |step: u64| -> Result<(), Error> {
                // A device that has failed refuses.
                let _ = fixture.produce(world, &[0], &stream, step);
                halo.schedule_exchange(&[&stream])?.schedule_wait(&stream)
            };
            let begun = (1..=2).try_for_each(|step| {
                if (comm.rank(), step) == (1, 2) {
                    world.fail(device, "it was unplugged");
                }
                begin(step)
            });
            match begun.and_then(|()| halo.wait()) {
                Err(Error::Failed(failed)) => {
                    ensure!(failed.cause == Cause::Device && failed.culprit == 1, "it failed by {failed}");
                }
                other => fail!("instead of a lost device: {other:?}"),
            }
            while !halo.reclaim() {
                comm.link().host().yield_now();
            }
            if comm.rank() == 0 { Ok(stream.synchronise()?) } else { Ok(()) }
        });
    });
}
