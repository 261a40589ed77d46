//! Narrowed objects of device fields on simulated devices: what they share with the wide objects, and what tells the two apart.

use halocline::device::Priority;
use halocline::device::sim::{Options, World, explore};
use halocline::{
    Array, BindOptions, Cause, Communicator, Decomposed, Error, Fault, Field, Halo, HaloExchange, LinkChoice,
    Ll, Pattern, RegularGrid, Stream,
};
use halocline_comm::Endpoint;
use halocline_conformance::device_fixtures::{DeviceFixture, Numbers, devices, until_failure};
use halocline_conformance::simulated::{options, run_ranks};
use halocline_conformance::{Outcome, Trouble, ensure, fail};
use std::time::Duration;

type Choice = (LinkChoice, Ll);

const LINKS: [Choice; 6] = [
    (LinkChoice::Auto, Ll::Never),
    (LinkChoice::Auto, Ll::UpTo(1 << 20)),
    (LinkChoice::Pull, Ll::Never),
    (LinkChoice::DeviceMailbox, Ll::Never),
    (LinkChoice::Mailbox, Ll::Never),
    (LinkChoice::Message, Ll::Never),
];

fn under_seeds(program: impl Fn(&World, &Communicator, Choice) -> Outcome + Sync) {
    let options = Options { depth: 4096, steps: 400_000, ..options() };
    for link in LINKS {
        explore(0..20, &options, |world| run_ranks(world, 2, |comm| program(world, comm, link)));
    }
}

/// A line with closed ends on two ranks, whose domains have a halo at both.
struct Line {
    fixture: DeviceFixture,
    stream: Stream,
    wide: HaloExchange,
}

impl Line {
    fn new(world: &World, comm: &Communicator, options: &BindOptions) -> Result<Self, Trouble> {
        let device = &devices(world, 2)?[comm.rank()];
        let pattern = RegularGrid::new([6]).decompose(2)?.pattern(comm, Halo::uniform(1))?;
        let numbers = Numbers::Grid { extents: &[6], periodic: &[false], margin: 0 };
        let fixture = DeviceFixture::of(pattern, numbers, 1, |_| device)?;
        let wide = fixture.bind(comm, &[&[0]], options)?;
        Ok(Self { fixture, stream: device.stream(Priority::Normal)?, wide })
    }

    fn step(&self, world: &World, halo: &HaloExchange, step: u64) -> Outcome {
        self.fixture.produce(world, &[0], &self.stream, step)?;
        halo.schedule_exchange(&[&self.stream])?.schedule_wait(&self.stream)?;
        self.fixture.consume(world, &[0], &self.stream, step)
    }
}

fn by((link, ll): Choice) -> BindOptions {
    BindOptions::default().link(link).ll(ll)
}

#[test]
fn ranks_that_mix_the_wide_and_the_narrow_object_fail() {
    under_seeds(|world, comm, link| {
        let line = Line::new(world, comm, &by(link))?;
        // Of the same width, so that nothing but its number tells the set from the wide one.
        let narrow = line.wide.narrowed(&Halo::uniform(1))?;
        line.step(world, &line.wide, 1)?;
        line.step(world, &narrow, 2)?;
        line.step(world, &line.wide, 3)?;
        line.wide.wait()?;
        let failure = until_failure(if comm.rank() == 0 { &narrow } else { &line.wide }, &line.stream)?;
        ensure!(failure.cause == Cause::Check(Fault::OtherSet) && failure.epoch >= 4, "{failure}");
        // What was not given to the exchange is as it was. In checked mode the failed exchange has written the fill pattern to the halo.
        if !by(link).is_checked()? {
            line.fixture.consume(world, &[0], &line.stream, 3)?;
        }
        while !narrow.reclaim() {
            comm.link().host().yield_now();
        }
        Ok(line.stream.synchronise()?)
    });
}

/// The narrow object only sends. Nothing that it receives limits the sender, which still must not run ahead.
#[test]
fn a_sender_of_a_narrow_object_waits_for_its_receiver_until_the_deadline() {
    under_seeds(|world, comm, link| {
        let deadline = Some(Duration::from_millis(50));
        let line = Line::new(world, comm, &by(link).deadline(deadline))?;
        let narrow = line.wide.narrowed(&Halo::per_axis([(1, 0)]))?;
        line.step(world, &line.wide, 1)?;
        line.stream.synchronise()?;
        if comm.rank() == 0 {
            let failed = until_failure(&narrow, &line.stream)?;
            ensure!(matches!(failed.cause, Cause::Deadline(_)) && failed.culprit == 1, "{failed}");
            ensure!(failed.epoch <= 6, "it ran ahead: {failed}");
            // Poison has released all that waited.
            line.stream.synchronise()?;
        }
        Ok(comm.barrier()?)
    });
}

#[test]
fn an_object_holds_a_limited_number_of_sets() {
    under_seeds(|world, comm, link| {
        let line = Line::new(world, comm, &by(link))?;
        let mut narrow = Vec::new();
        let refused = loop {
            match line.wide.narrowed(&Halo::uniform(1)) {
                Ok(another) => narrow.push(another),
                Err(error) => break error,
            }
        };
        match refused {
            Error::TooManySets { sets: 16, limit: 16 } if narrow.len() == 15 => {}
            other => fail!("after {} narrowed objects: {other}", narrow.len()),
        }
        for (step, halo) in (1..).zip([&line.wide, &narrow[14], &narrow[0], &line.wide]) {
            line.step(world, halo, step)?;
        }
        line.stream.synchronise()?;
        Ok(comm.barrier()?)
    });
}

#[test]
fn the_wide_object_is_dropped_while_a_narrow_exchange_is_in_flight() {
    under_seeds(|world, comm, link| {
        let line = Line::new(world, comm, &by(link))?;
        let narrow = line.wide.narrowed(&Halo::uniform(1))?;
        let Line { fixture, stream, wide } = line;
        fixture.produce(world, &[0], &stream, 1)?;
        let pending = narrow.schedule_exchange(&[&stream])?;
        drop(wide);
        pending.schedule_wait(&stream)?;
        drop((narrow, pending));
        fixture.consume(world, &[0], &stream, 1)?;
        stream.synchronise()?;
        Ok(comm.barrier()?)
    });
}

/// Host fields of an object are narrowed with its device fields, and count together.
#[test]
fn host_and_device_fields_of_one_object() {
    under_seeds(|world, comm, link| {
        let Line { fixture, stream, .. } = Line::new(world, comm, &by(link))?;
        let array = Array::<u64>::zeros(comm, &[5])?;
        let fields: [(&Pattern, &Field); 2] =
            [(&fixture.pattern, &array), (&fixture.pattern, fixture.pieces[0][0].field())];
        let wide = HaloExchange::bind_with(comm, fields, &by(link))?;
        let (same, nothing) = (wide.narrowed(&Halo::uniform(1))?, wide.narrowed(&Halo::uniform(0))?);
        // Owned cells hold the step and the rank; the halo at the end that is not closed is the other rank's.
        let halo = if comm.rank() == 0 { 4 } else { 0 };
        let mut last = 0;
        for (step, exchanged) in (1..).zip([&wide, &same, &nothing, &same, &wide, &nothing]) {
            let of = |rank: usize| 10 * step + rank as u64;
            array.write()?[1..4].fill(of(comm.rank()));
            fixture.produce(world, &[0], &stream, step)?;
            let pending = exchanged.schedule_exchange(&[&stream])?;
            ensure!(pending.epoch() == step, "exchanges of all handles count together, {pending:?}");
            pending.schedule_wait(&stream)?;
            if !std::ptr::eq(exchanged, &nothing) {
                fixture.consume(world, &[0], &stream, step)?;
                last = of(1 - comm.rank());
            }
            stream.synchronise()?;
            let found = array.read()?[halo];
            ensure!(found == last, "step {step}: the halo is {found} instead of {last}");
            comm.barrier()?;
        }
        Ok(())
    });
}
