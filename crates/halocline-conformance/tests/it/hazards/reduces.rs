//! Reduces with one ordering constraint removed.

use super::*;
use halocline::ReduceOp;
use halocline::device::sim::Kernel;

/// A kernel of the program that reads all cells, halo included.
fn read(world: &World, fixture: &DeviceFixture, stream: &Stream) -> Outcome {
    for piece in fixture.pieces(&[0]) {
        let array = piece.array();
        world.launch(stream, Kernel::new("read").reads(array.address(), array.len() * size_of::<u64>()))?;
    }
    Ok(())
}

/// Two reduces between two exchanges: one puts back what the first exchange has brought, the other finds a cleared halo. The program reads
/// the halo before and after each.
fn reduces(world: &World, comm: &Communicator, setting: Setting) -> Outcome {
    let (stream, fixture) = begin(world, comm, setting)?;
    let halo = fixture.bind(comm, &[&[0]], &bound(setting))?;
    for step in 1..=4 {
        fixture.produce(world, &[0], &stream, step)?;
        halo.schedule_exchange(&[&stream])?.schedule_wait(&stream)?;
        for op in [ReduceOp::Replace, ReduceOp::Or] {
            read(world, &fixture, &stream)?;
            halo.schedule_reduce(op, &[&stream])?.schedule_wait(&stream)?;
        }
        read(world, &fixture, &stream)?;
        halo.schedule_exchange(&[&stream])?.schedule_wait(&stream)?;
        fixture.consume(world, &[0], &stream, step)?;
    }
    Ok(stream.synchronise()?)
}

#[test]
fn a_halo_combined_before_it_is_complete() {
    check("a halo combined before it is complete", Cut::Complete, LinkChoice::Auto, reduces);
    check_with("the same in one launch", Cut::Complete, (LinkChoice::Auto, false, true), reduces);
}

#[test]
fn going_on_before_the_halo_is_combined() {
    check("going on before the halo is combined", Cut::Cleared, LinkChoice::Auto, reduces);
    check_with("the same in one launch", Cut::Cleared, (LinkChoice::Auto, false, true), reduces);
}

/// Reduces alone: the owned cells, which the halo leaves as they are, are written before each.
fn reduces_alone(world: &World, comm: &Communicator, setting: Setting) -> Outcome {
    let (stream, fixture) = begin(world, comm, setting)?;
    reduce_often(world, comm, setting, (&stream, &fixture))
}

/// The same where one rank has halos and the other one owns their cells: nothing but the links' own order holds the first one back.
fn one_way_reduces(world: &World, comm: &Communicator, setting: Setting) -> Outcome {
    let devices = devices(world, 2)?;
    let device = &devices[if setting.apart { comm.rank() } else { 0 }];
    let fixture = DeviceFixture::one_way(comm, 6, 1, device)?;
    reduce_often(world, comm, setting, (&device.stream(Priority::Normal)?, &fixture))
}

fn reduce_often(
    world: &World,
    comm: &Communicator,
    setting: Setting,
    (stream, fixture): (&Stream, &DeviceFixture),
) -> Outcome {
    let halo = fixture.bind(comm, &[&[0]], &bound(setting))?;
    for step in 1..=5 {
        fixture.produce(world, &[0], stream, step)?;
        halo.schedule_reduce(ReduceOp::Or, &[stream])?.schedule_wait(stream)?;
    }
    Ok(stream.synchronise()?)
}

/// The object goes while its only reduce is in flight.
fn dropped_reduce(world: &World, comm: &Communicator, setting: Setting) -> Outcome {
    let (stream, fixture) = begin(world, comm, setting)?;
    let halo = fixture.bind(comm, &[&[0]], &bound(setting))?;
    fixture.produce(world, &[0], &stream, 1)?;
    let pending = halo.schedule_reduce(ReduceOp::Or, &[&stream])?;
    pending.schedule_wait(&stream)?;
    drop((pending, halo));
    Ok(stream.synchronise()?)
}

/// The orders that reduces share with exchanges, in one launch and where streams wait.
#[test]
fn hazards_of_reduces() {
    let hazards: [(Cut, Program); 3] =
        [(Cut::Producer, reduces_alone), (Cut::Consumer, reduces_alone), (Cut::Drop, dropped_reduce)];
    for (cut, program) in hazards {
        for alone in [false, true] {
            check_with(&format!("reduce, without {cut:?}"), cut, (LinkChoice::Auto, false, alone), program);
        }
    }
}

/// Those of halos that travel through slots of the owner's device.
#[test]
fn hazards_of_reduces_through_slots() {
    for (cut, program) in [(Cut::Complete, reduces as Program), (Cut::Cleared, one_way_reduces)] {
        for alone in [false, true] {
            let hazard = format!("reduce through a device mailbox, without {cut:?}");
            check_with(&hazard, cut, (LinkChoice::DeviceMailbox, false, alone), program);
        }
        check_with(&format!("ll reduce, without {cut:?}"), cut, (LinkChoice::Auto, true, true), program);
    }
}

/// Those of halos that travel in messages.
#[test]
fn hazards_of_reduces_by_messages() {
    let hazards: [(Cut, Program); 5] = [
        (Cut::Complete, reduces),
        (Cut::Staging, one_way_reduces),
        (Cut::Producer, reduces_alone),
        (Cut::Consumer, reduces_alone),
        (Cut::Drop, dropped_reduce),
    ];
    for (cut, program) in hazards {
        check(&format!("reduce by messages, without {cut:?}"), cut, LinkChoice::Message, program);
    }
}
