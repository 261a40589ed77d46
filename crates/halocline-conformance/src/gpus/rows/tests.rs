//! Runs the cases and the packed messages of the hand-written exchange on simulated devices and compares all cells with the oracle.

use super::cases::{self, Shape};
use super::nccl::Message;
use super::rival::{Beside, Packed};
use crate::device_fixtures::{DeviceFixture, devices};
use crate::simulated::{options, run_ranks};
use crate::{Outcome, ensure};
use halocline::device::sim::{Options, World, explore};
use halocline::device::{Address, Priority, Stream};
use halocline::{BindOptions, Communicator};

const SHAPES: [Shape; 3] = [
    Shape::Cube { cells: 5, width: 2 },
    Shape::Faces { cells: 6, width: 1 },
    Shape::Listed { owned: 20, halo: 6, levels: 3 },
];

fn on_all(ranks: usize, what: impl Fn(&World, &Communicator, &DeviceFixture, &Stream) -> Outcome + Sync) {
    for shape in SHAPES.map(Some).into_iter().chain([None]) {
        let options = Options { devices: ranks as u32, ..options() };
        explore(0..4, &options, |world| {
            let all = devices(world, ranks as u32).expect("as many as there are");
            run_ranks(world, ranks, |comm| {
                let device = &all[comm.rank()];
                let fixture = match shape {
                    Some(shape) => shape.fixture(comm, device, 2)?,
                    None => cases::line(comm, device, 7)?,
                };
                what(world, comm, &fixture, &device.stream(Priority::Normal)?)
            });
        });
    }
}

#[test]
fn the_cases_are_exchanged_right() {
    on_all(2, |world, comm, fixture, stream| {
        let fields: Vec<usize> = (0..fixture.pieces.len()).collect();
        let halo = fixture.bind(comm, &[&fields[..]], &BindOptions::default().inline(true))?;
        for step in 1..=2 {
            fixture.produce(world, &fields, stream, step)?;
            halo.schedule_exchange(&[stream])?.schedule_wait(stream)?;
            fixture.consume(world, &fields, stream, step)?;
        }
        stream.synchronise()?;
        Ok(comm.barrier()?)
    });
}

#[test]
fn packed_messages_fill_the_same_halos() {
    for ranks in [2, 3] {
        on_all(ranks, |world, comm, fixture, stream| {
            let fields: Vec<usize> = (0..fixture.pieces.len()).collect();
            let packed = Packed::new(fixture, stream.device())?;
            // Of the cases that of a line alone; ranks in its middle have two blocks.
            ensure!(packed.in_place().is_some() == (fixture.pieces.len() == 1), "what needs no packing");
            let besides = [None, Some(Beside::new(stream.device())?)];
            for (step, beside) in (1..).zip(besides.iter().cycle().take(4)) {
                fixture.produce(world, &fields, stream, step)?;
                match packed.in_place() {
                    Some(messages) if step % 2 == 0 => carry(comm, messages, stream)?,
                    _ => packed.exchange(stream, beside.as_ref(), |stream| {
                        carry(comm, &packed.messages(), stream)
                    })?,
                }
                fixture.consume(world, &fields, stream, step)?;
                stream.synchronise()?;
                comm.barrier()?;
            }
            Ok(())
        });
    }
}

/// What NCCL does, by copies from the senders' buffers.
fn carry(comm: &Communicator, messages: &[Message], stream: &Stream) -> Outcome {
    stream.synchronise()?;
    // For each rank where this one's message to it lies; one that gets none finds no bytes.
    let mut gathered = vec![(0, 0); comm.size()];
    messages.iter().for_each(|message| gathered[message.peer] = message.out);
    let gathered: Vec<u8> =
        gathered.iter().flat_map(|&(at, bytes)| [at, bytes as u64]).flat_map(u64::to_le_bytes).collect();
    let gathered = comm.all_gather(&gathered)?;
    for message in messages {
        let word = |at: usize| {
            gathered[message.peer][16 * comm.rank() + 8 * at..].first_chunk().copied().map(u64::from_le_bytes)
        };
        let (Some(from), Some(bytes)) = (word(0), word(1)) else { return Err(crate::Trouble::new("cut")) };
        ensure!(bytes == message.into.1 as u64, "{bytes} bytes for {}", message.into.1);
        // SAFETY: packed messages, which are there until the barrier.
        unsafe { stream.copy(message.into.0, from as Address, bytes as usize) }?;
    }
    stream.synchronise()?;
    Ok(comm.barrier()?)
}
