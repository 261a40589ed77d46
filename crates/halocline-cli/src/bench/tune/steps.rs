//! What is tried, in which order: one value after the other. Pure, but for the measuring that it asks for.

use super::choice::{Candidate, Choice, Sized, best, from_size, up_to_size};
use super::interior::Work;
use super::measure::{By, Case, Trial};
use halocline::device::tuning::{Connection, Tuning};

/// What is to be measured.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) ranks: usize,
    /// GPUs; rank r has one of them, modulo their number.
    pub(super) devices: usize,
    pub(super) trials: Vec<Trial>,
    pub(super) cases: Vec<Case>,
}

/// Of each trial and case, us of each round.
pub(super) type Times = Vec<Vec<Vec<f64>>>;

/// Measures what is asked.
pub(super) type Ask<'a, E> = dyn FnMut(&Asked) -> Result<Times, E> + 'a;

/// What was tried for one value.
#[derive(Debug, Clone)]
pub(super) struct Step {
    pub(super) name: &'static str,
    pub(super) cases: Vec<Case>,
    /// Each candidate in words, with its times.
    pub(super) tried: Vec<(String, Vec<Vec<f64>>)>,
    pub(super) chosen: String,
    pub(super) why: String,
}

/// What comes of all.
#[derive(Debug, Clone)]
pub(super) struct Found {
    pub(super) values: Tuning,
    pub(super) steps: Vec<Step>,
    /// Values that were not tried, with the reason.
    pub(super) untried: Vec<(&'static str, String)>,
}

/// Copies within a rank: small, and so large that they bound the exchange.
const LOCAL: [Case; 3] = [
    Case::Cube { cells: 128, halo: 1, fields: 1 },
    Case::Cube { cells: 128, halo: 3, fields: 8 },
    Case::Cube { cells: 256, halo: 3, fields: 2 },
];
/// Between two ranks.
const REMOTE: [Case; 4] = [
    Case::Cube { cells: 128, halo: 1, fields: 1 },
    Case::Cube { cells: 128, halo: 1, fields: 8 },
    Case::Cube { cells: 128, halo: 3, fields: 8 },
    Case::Faces { cells: 256, halo: 3, fields: 8 },
];
/// Steps of a program: work of two and a half times the exchange, which is to hide it, and of as much, which cannot hide one that takes longer.
const STEPS: [Case; 5] = [
    beside(128, 8, Work::Arithmetic, 250),
    beside(128, 8, Work::Memory, 250),
    beside(128, 8, Work::Arithmetic, 100),
    beside(256, 2, Work::Arithmetic, 250),
    beside(256, 2, Work::Memory, 250),
];
/// One region each way: bytes.
const SIZES: [u64; 9] =
    [256 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20, 8 << 20, 16 << 20, 32 << 20, 64 << 20];
/// The same of small messages.
const SMALL: [u64; 7] = [512, 2 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10];
/// The same of messages that are staged.
const STAGED: [Case; 3] =
    [Case::Row { bytes: 2 << 20 }, Case::Row { bytes: 8 << 20 }, Case::Row { bytes: 32 << 20 }];

const fn beside(cells: usize, fields: usize, work: Work, percent: u32) -> Case {
    Case::Beside { cells, halo: 3, fields, work, percent }
}

/// A value that is a number: how it is written into others, and what is tried.
struct Number {
    name: &'static str,
    get: fn(&Tuning) -> u64,
    set: fn(&mut Tuning, u64),
    tried: &'static [u64],
    by: By,
    cases: &'static [Case],
}

const ITEM: Number = Number {
    name: "item",
    get: |of| of.item.into(),
    set: |of, to| of.item = to as u32,
    tried: &[2048, 4096, 8192, 16_384],
    by: By::Kernels,
    cases: &LOCAL,
};
const ITEMS: Number = Number {
    name: "items",
    get: |of| of.items.into(),
    set: |of, to| of.items = to as u32,
    tried: &[1, 2, 4],
    ..ITEM
};
const WAITING: Number = Number {
    name: "waiting",
    get: |of| of.waiting.into(),
    set: |of, to| of.waiting = to as u32,
    tried: &[20, 35, 50, 60, 70],
    by: By::Kernels,
    cases: &REMOTE,
};
const ALONE: Number = Number {
    name: "alone",
    get: |of| of.alone.into(),
    set: |of, to| of.alone = to as u32,
    tried: &[0, 512, 1024, 4096],
    ..WAITING
};
const BESIDE: Number = Number {
    name: "beside",
    get: |of| of.beside.into(),
    set: |of, to| of.beside = to as u32,
    tried: &[25, 50, 75, 100],
    by: By::Kernels,
    cases: &STEPS,
};
const CHUNK: Number = Number {
    name: "chunk",
    get: |of| of.chunk,
    set: |of, to| of.chunk = to,
    tried: &[1 << 20, 2 << 20, 4 << 20, 8 << 20, 16 << 20],
    by: By::Messages,
    cases: &STAGED,
};

/// Finds values, beginning with those in force. `connection`: how a second GPU is reached, if there is one.
pub(super) fn find<E>(
    present: Tuning,
    connection: Option<Connection>,
    ask: &mut Ask<'_, E>,
) -> Result<Found, E> {
    let mut found = Found { values: present, steps: Vec::new(), untried: Vec::new() };
    let devices = if connection.is_some() { 2 } else { 1 };
    for number in [ITEM, ITEMS] {
        found.number(&number, (1, 1), ask)?;
    }
    if connection.is_some() {
        for number in [WAITING, ALONE] {
            found.number(&number, (2, 2), ask)?;
        }
    }
    // One rank copies to itself, too.
    found.number(&BESIDE, (devices, devices), ask)?;
    found.copy_engine(Connection::SameDevice, ask)?;
    if let Some(connection) = connection {
        found.copy_engine(connection, ask)?;
    }
    if connection == Some(Connection::NvLink) {
        found.flags(ask)?;
    }
    found.number(&CHUNK, (2, devices), ask)?;
    found.say_untried(connection);
    Ok(found)
}

impl Found {
    fn number<E>(
        &mut self,
        number: &Number,
        (ranks, devices): (usize, usize),
        ask: &mut Ask<'_, E>,
    ) -> Result<(), E> {
        let &Number { name, get, set, tried, by, cases } = number;
        let present = get(&self.values);
        let numbers: Vec<u64> =
            [present].into_iter().chain(tried.iter().copied().filter(|&number| number != present)).collect();
        let trial = |&number: &u64| {
            let mut values = self.values;
            set(&mut values, number);
            Trial { values, by }
        };
        let trials = numbers.iter().map(trial).collect();
        let times = ask(&Asked { ranks, devices, trials, cases: cases.to_vec() })?;
        let candidates: Vec<Candidate<u64>> = numbers
            .iter()
            .zip(&times)
            .map(|(&value, cases)| Candidate { value, cases: cases.clone() })
            .collect();
        if let Some(Choice { value, why }) = best(&candidates) {
            set(&mut self.values, value);
            let tried = numbers.iter().map(u64::to_string).zip(times).collect();
            self.steps.push(Step { name, cases: cases.to_vec(), tried, chosen: value.to_string(), why });
        }
        Ok(())
    }

    fn copy_engine<E>(&mut self, over: Connection, ask: &mut Ask<'_, E>) -> Result<(), E> {
        let (name, devices) = match over {
            Connection::SameDevice => ("copy_engine within a device", 1),
            Connection::NvLink => ("copy_engine over NVLink", 2),
            Connection::Pcie => ("copy_engine over PCIe", 2),
        };
        let present = self.values.copy_engine(over);
        let ways = [("kernel", By::Kernels), ("copy engine", By::CopyEngines)];
        let Some((value, mut step)) =
            self.two_ways((name, devices), &SIZES, ways, |sizes| from_size(sizes, present), ask)?
        else {
            return Ok(());
        };
        self.values.copy_engine[over as usize] = value;
        step.chosen = value
            .map_or_else(|| "never".to_owned(), |bytes| format!("from {} on", Case::Row { bytes }.name()));
        self.steps.push(step);
        Ok(())
    }

    fn flags<E>(&mut self, ask: &mut Ask<'_, E>) -> Result<(), E> {
        let present = u64::from(self.values.flags);
        let ways = [("pushed", By::Kernels), ("words with flags", By::Flags)];
        let Some((value, mut step)) =
            self.two_ways(("flags", 2), &SMALL, ways, |sizes| up_to_size(sizes, present), ask)?
        else {
            return Ok(());
        };
        self.values.flags = u32::try_from(value).unwrap_or(u32::MAX);
        step.chosen = match value {
            0 => "never".to_owned(),
            bytes => format!("up to {}", Case::Row { bytes }.name()),
        };
        self.steps.push(step);
        Ok(())
    }

    /// Two ways over sizes, between two ranks, and what is chosen; what that is called is left open.
    fn two_ways<T, E>(
        &self,
        (name, devices): (&'static str, usize),
        sizes: &[u64],
        ways: [(&str, By); 2],
        choose: impl Fn(&[Sized]) -> Choice<T>,
        ask: &mut Ask<'_, E>,
    ) -> Result<Option<(T, Step)>, E> {
        let cases: Vec<Case> = sizes.iter().map(|&bytes| Case::Row { bytes }).collect();
        let trials = ways.map(|(_, by)| Trial { values: self.values, by }).to_vec();
        let times = ask(&Asked { ranks: 2, devices, trials, cases: cases.clone() })?;
        let [usual, other] = &times[..] else { return Ok(None) };
        let sizes: Vec<Sized> = sizes
            .iter()
            .zip(usual.iter().zip(other))
            .map(|(&bytes, (usual, other))| Sized { bytes, usual: usual.clone(), other: other.clone() })
            .collect();
        let Choice { value, why } = choose(&sizes);
        let tried = ways.map(|(name, _)| name.to_owned()).into_iter().zip(times).collect();
        Ok(Some((value, Step { name, cases, tried, chosen: String::new(), why })))
    }

    /// What stays as it is because nothing here can tell.
    fn say_untried(&mut self, connection: Option<Connection>) {
        let mut say = |name, why: &str| self.untried.push((name, why.to_owned()));
        let none = "no second GPU of this kind is reached";
        if connection.is_none() {
            say("waiting", none);
            say("alone", none);
        }
        for (name, over) in
            [("copy_engine over NVLink", Connection::NvLink), ("copy_engine over PCIe", Connection::Pcie)]
        {
            match connection {
                Some(here) if here == over => {}
                Some(here) => say(name, &format!("the first two GPUs reach each other over {here}")),
                None => say(name, none),
            }
        }
        match connection {
            Some(Connection::NvLink) => {}
            None => say("flags", none),
            Some(_) => say("flags", "built-in, or from a file, it is used over NVLink alone"),
        }
    }
}
