//! Random programs of scheduled exchanges. A seed determines patterns, ranks, devices, streams and the order of calls.

use crate::device_fixtures::{DeviceFixture, Kernels};
use crate::fixtures::choices;
use crate::numbers::Numbers;
use crate::{Outcome, Trouble};
use halocline::device::{EventPool, Priority};
use halocline::{
    BindOptions, Communicator, Device, Halo, HaloExchange, LinkChoice, Ll, Pending, Stream, TestOptions,
};
use halocline_comm::Endpoint;
use std::time::Duration;

/// What all ranks do alike.
#[derive(Debug)]
pub struct Program {
    seed: u64,
    /// How many ranks it is for, where that is not given.
    pub ranks: usize,
    devices: usize,
    extents: Vec<usize>,
    /// Of each rank.
    domains: usize,
    width: usize,
    /// Sets of fields of each object.
    objects: Vec<Vec<Vec<usize>>>,
    link: LinkChoice,
    ll: Ll,
    /// Some ranks are in one launch although others use their device.
    crowds: bool,
    inline: bool,
    /// Each object has a narrowed one beside it.
    narrows: bool,
    /// Bytes of a chunk of a staged message.
    chunk: usize,
    steps: u64,
    deadline: Option<Duration>,
}

impl Program {
    /// The program of a seed, for so many ranks, or for one to three of them.
    pub fn new(seed: u64, ranks: Option<usize>) -> Self {
        let mut numbers = Numbers::new(seed);
        let drawn = 1 + numbers.below(3);
        let ranks = ranks.unwrap_or(drawn);
        let (domains, width) = (1 + numbers.below(2), 1 + numbers.below(2));
        let extents = match numbers.below(2) {
            0 => vec![ranks * domains * 2 + 1 + numbers.below(3)],
            _ => vec![2 * ranks * domains, 2 + numbers.below(3)],
        };
        let objects = match numbers.below(4) {
            0 => vec![vec![vec![0, 1]]],
            1 => vec![vec![vec![0], vec![1]]],
            2 => vec![vec![vec![0]], vec![vec![1]]],
            _ => vec![vec![vec![0]]],
        };
        let links = [LinkChoice::Auto, LinkChoice::Auto, LinkChoice::Mailbox, LinkChoice::Message];
        Self {
            seed,
            ranks,
            devices: 1 + numbers.below(3),
            extents,
            domains,
            width,
            objects,
            link: links[numbers.below(links.len())],
            ll: [Ll::Never, Ll::UpTo(40), Ll::UpTo(1 << 20)][(seed / 4 % 3) as usize],
            crowds: false,
            inline: numbers.one_in(3),
            narrows: seed % 3 == 1,
            chunk: [8, 24, 1 << 20][numbers.below(3)],
            steps: 2 + numbers.below(3) as u64,
            deadline: None,
        }
    }

    /// The same with a deadline for each exchange, whose error names the waiting rank and its peer.
    pub fn within(self, deadline: Option<Duration>) -> Self {
        Self { deadline, ..self }
    }

    /// The same, in which any rank may have exchanges in one launch: for devices that run all of their blocks at once.
    pub fn crowding(self) -> Self {
        Self { crowds: true, ..self }
    }
}

/// A user's streams on the devices of its fields, and what ties them.
struct Streams {
    streams: Vec<Stream>,
    events: Vec<EventPool>,
    /// Streams with work that the next step must come after.
    touched: Vec<usize>,
}

impl Streams {
    /// A stream that comes after all work of the step before.
    fn next(&self, numbers: &mut Numbers) -> Result<usize, Trouble> {
        let chosen = numbers.below(self.streams.len());
        for &other in self.touched.iter().filter(|&&other| other != chosen) {
            self.tie(other, chosen)?;
        }
        Ok(chosen)
    }

    fn tie(&self, first: usize, then: usize) -> Outcome {
        let event = self.events[first].take()?;
        self.streams[first].record(&event)?;
        Ok(self.streams[then].wait(&event)?)
    }

    fn touch(&mut self, stream: usize) {
        if !self.touched.contains(&stream) {
            self.touched.push(stream);
        }
    }
}

impl Program {
    /// Steps of all objects in turn, with whatever is allowed between, on one device or more. Collective.
    pub fn run(&self, on: &impl Kernels, all: &[Device], comm: &Communicator) -> Outcome {
        let mut common = Numbers::new(self.seed ^ 0xc0);
        let mut own = Numbers::new(self.seed ^ (comm.rank() as u64 + 1) << 32);
        let all = &all[..self.devices.min(all.len())];
        let places: Vec<usize> = (0..self.domains).map(|_| own.below(all.len())).collect();
        let shape = (self.domains, self.width, 2);
        let fixture = DeviceFixture::new(comm, &self.extents, shape, |domain| &all[places[domain]])?;
        let mut streams = Streams { streams: Vec::new(), events: Vec::new(), touched: Vec::new() };
        for _ in 0..1 + own.below(3) {
            let device = &all[places[own.below(places.len())]];
            streams.streams.push(device.stream(Priority::Normal)?);
            streams.events.push(device.events());
        }
        // Ranks that share no memory have messages alone.
        let link = match self.link {
            LinkChoice::Mailbox if comm.transport() == "thread" && self.seed % 2 == 1 => {
                LinkChoice::DeviceMailbox
            }
            link if choices(comm).contains(&link) => link,
            _ => LinkChoice::Message,
        };
        let (inline, ll) = (self.inline, self.ll);
        let alone = self.crowds && !(self.seed + comm.rank() as u64).is_multiple_of(3);
        let (chunk, deadline) = (Some(self.chunk), self.deadline);
        let options = BindOptions::default()
            .link(link)
            .inline(inline)
            .deadline(deadline)
            .ll(ll)
            .for_tests(TestOptions { chunk, alone, ..TestOptions::default() });
        let mut objects: Vec<HaloExchange> = Vec::new();
        for sets in &self.objects {
            let sets: Vec<&[usize]> = sets.iter().map(Vec::as_slice).collect();
            objects.push(fixture.bind(comm, &sets, &options)?);
        }
        // Narrowed to all of the halo, so that whatever exchanges them fills as much.
        let mut narrowed: Vec<HaloExchange> = Vec::new();
        if self.narrows {
            for halo in &objects {
                narrowed.push(halo.narrowed(&Halo::uniform(self.width))?);
            }
        }
        for step in 1..=self.steps {
            for (at, (halo, sets)) in objects.iter().zip(&self.objects).enumerate() {
                let set = common.below(sets.len());
                let narrow = narrowed.get(at).filter(|_| common.one_in(2));
                exchange(
                    on,
                    (comm, &fixture, narrow.unwrap_or(halo)),
                    (set, &sets[set]),
                    step,
                    &mut streams,
                    (&mut common, &mut own),
                )?;
            }
        }
        if own.one_in(2) {
            objects.clear();
            narrowed.clear();
        }
        streams.streams.iter().try_for_each(Stream::synchronise)?;
        Ok(())
    }
}

fn exchange(
    on: &impl Kernels,
    (comm, fixture, halo): (&Communicator, &DeviceFixture, &HaloExchange),
    (set, fields): (usize, &[usize]),
    step: u64,
    streams: &mut Streams,
    (common, own): (&mut Numbers, &mut Numbers),
) -> Outcome {
    // Producers: one stream, or two that share the fields' domains.
    let first = streams.next(own)?;
    let second = if own.one_in(3) { streams.next(own)? } else { first };
    for (at, piece) in fixture.pieces(fields).enumerate() {
        on.produce(piece, &streams.streams[if at % 2 == 0 { first } else { second }], step)?;
    }
    let given = [&streams.streams[first], &streams.streams[second]];
    let given = if first == second { &given[..1] } else { &given[..] };
    // Once more, with the same data, or more often.
    let times = if common.one_in(4) { 2 + common.below(3) } else { 1 };
    let mut pendings: Vec<Pending> = Vec::new();
    for _ in 0..times {
        pendings.push(match own.below(3) {
            0 => halo.begin().set(set).after(given).start()?,
            _ => halo.begin().set(set).after(given).schedule()?,
        });
    }
    if own.one_in(3) {
        pendings[own.below(times)].is_ready()?;
    }
    streams.touched.clear();
    streams.touch(first);
    streams.touch(second);
    if first == second && own.one_in(2) {
        // Beside the exchange, unless that runs on this very stream.
        fixture.pieces(fields).try_for_each(|piece| on.read_owned(piece, &streams.streams[first]))?;
    }
    let last = own.below(streams.streams.len());
    // It reads what those have written, besides the halo.
    for producer in [first, second] {
        if producer != last {
            streams.tie(producer, last)?;
        }
    }
    let stream = &streams.streams[last];
    match own.below(5) {
        0 => {
            // Waiting for one means waiting for all before it.
            pendings[times - 1].wait()?;
            pendings[0].wait()?;
        }
        1 => {
            pendings.clear();
            halo.schedule_wait(stream)?;
        }
        2 => {
            pendings.iter().try_for_each(|pending| pending.schedule_wait(stream))?;
            if own.one_in(2) {
                pendings[0].wait()?;
            }
        }
        3 => {
            while !pendings[times - 1].is_ready()? {
                comm.link().host().yield_now();
            }
        }
        _ => {
            pendings[times - 1].schedule_wait(stream)?;
            pendings.into_iter().for_each(std::mem::forget);
        }
    }
    fixture.consume(on, fields, &streams.streams[last], step)?;
    streams.touch(last);
    Ok(())
}
