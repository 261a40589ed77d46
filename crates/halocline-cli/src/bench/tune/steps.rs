//! What is tried, in which order: one value after the other. Pure, but for the measuring that it asks for.

use super::choice::{Candidate, Choice, Sized, best, from_size};
use super::measure::{Case, Trial};
use halocline::device::tuning::{Connection, Tuning};

/// What is to be measured.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    /// A GPU each.
    pub(super) ranks: usize,
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
}

/// Copies within a rank: small, and so large that they bound the exchange.
const LOCAL: [Case; 3] = [
    Case::Cube { cells: 128, halo: 1, fields: 1 },
    Case::Cube { cells: 128, halo: 3, fields: 8 },
    Case::Cube { cells: 256, halo: 3, fields: 2 },
];
/// Between two ranks.
const REMOTE: [Case; 3] = [
    Case::Cube { cells: 128, halo: 1, fields: 1 },
    Case::Cube { cells: 128, halo: 1, fields: 8 },
    Case::Cube { cells: 128, halo: 3, fields: 8 },
];
/// One region each way: bytes.
const SIZES: [u64; 9] =
    [256 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20, 8 << 20, 16 << 20, 32 << 20, 64 << 20];

/// A value that is a number: how it is written into others, and what is tried.
type Number = (&'static str, fn(&Tuning) -> u32, fn(&mut Tuning, u32), &'static [u32]);

const ON_ONE: [Number; 2] = [
    ("item", |of| of.item, |of, to| of.item = to, &[2048, 4096, 8192, 16_384]),
    ("items", |of| of.items, |of, to| of.items = to, &[1, 2, 4]),
];
const ON_TWO: [Number; 2] = [
    ("waiting", |of| of.waiting, |of, to| of.waiting = to, &[20, 35, 50, 60, 70]),
    ("alone", |of| of.alone, |of, to| of.alone = to, &[0, 512, 1024, 4096]),
];

/// Finds values, beginning with those in force. `connection`: how a second GPU is reached, if there is one.
pub(super) fn find<E>(
    present: Tuning,
    connection: Option<Connection>,
    ask: &mut Ask<'_, E>,
) -> Result<Found, E> {
    let mut found = Found { values: present, steps: Vec::new() };
    for number in ON_ONE {
        found.number(number, (1, &LOCAL), ask)?;
    }
    if let Some(connection) = connection {
        for number in ON_TWO {
            found.number(number, (2, &REMOTE), ask)?;
        }
        found.copy_engine(connection, ask)?;
    }
    Ok(found)
}

impl Found {
    fn number<E>(
        &mut self,
        (name, get, set, tried): Number,
        (ranks, cases): (usize, &[Case]),
        ask: &mut Ask<'_, E>,
    ) -> Result<(), E> {
        let present = get(&self.values);
        let numbers: Vec<u32> =
            [present].into_iter().chain(tried.iter().copied().filter(|&number| number != present)).collect();
        let trial = |&number: &u32| {
            let mut values = self.values;
            set(&mut values, number);
            Trial { values, engine: false }
        };
        let asked = Asked { ranks, trials: numbers.iter().map(trial).collect(), cases: cases.to_vec() };
        let times = ask(&asked)?;
        let candidates: Vec<Candidate<u32>> = numbers
            .iter()
            .zip(&times)
            .map(|(&value, cases)| Candidate { value, cases: cases.clone() })
            .collect();
        if let Some(Choice { value, why }) = best(&candidates) {
            set(&mut self.values, value);
            let tried = numbers.iter().map(u32::to_string).zip(times).collect();
            self.steps.push(Step { name, cases: cases.to_vec(), tried, chosen: value.to_string(), why });
        }
        Ok(())
    }

    fn copy_engine<E>(&mut self, over: Connection, ask: &mut Ask<'_, E>) -> Result<(), E> {
        let cases: Vec<Case> = SIZES.iter().map(|&bytes| Case::Row { bytes }).collect();
        let trials = [false, true].map(|engine| Trial { values: self.values, engine }).to_vec();
        let times = ask(&Asked { ranks: 2, trials, cases: cases.clone() })?;
        let [usual, other] = &times[..] else { return Ok(()) };
        let sizes: Vec<Sized> = SIZES
            .iter()
            .zip(usual.iter().zip(other))
            .map(|(&bytes, (usual, other))| Sized { bytes, usual: usual.clone(), other: other.clone() })
            .collect();
        let Choice { value, why } = from_size(&sizes, self.values.copy_engine(over));
        self.values.copy_engine[over as usize] = value;
        let chosen = value
            .map_or_else(|| "never".to_owned(), |bytes| format!("from {} on", Case::Row { bytes }.name()));
        let tried = ["kernel", "copy engine"].map(str::to_owned).into_iter().zip(times).collect();
        self.steps.push(Step { name: "copy_engine", cases, tried, chosen, why });
        Ok(())
    }
}
