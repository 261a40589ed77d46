//! What calls of a compiled program cost.

use super::sizes::{Example, Setting, Settings};
use crate::error::CommandError;
use crate::stats::median;
use crate::table::{figure, print_lines, table};
use clap::Args;
use halocline_program::{Given, Program, ProgramError};
use serde_json::json;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Load a library, call its program with arrays of zeros, and show what a call costs
///
/// Calls that check their arguments each time and prepared calls take turns. Both times contain the program itself: with small arrays a call is
/// what costs. The manifest says how large the arrays are, `--set` has the values of its symbols and scalars. A dimension of any size is
/// set by the names of the array and the dimension: `--set t.J=20`.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// The shared library
    library: PathBuf,
    /// The value of a symbol, a scalar or a free dimension; can be repeated
    #[arg(long = "set", value_name = "NAME=NUMBER")]
    settings: Vec<Setting>,
    /// Rounds of each kind of call
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
}

/// A round lasts about as long: far longer than the clock's steps.
const ROUND: Duration = Duration::from_millis(1);

/// The most calls of a round.
const MOST: u32 = 1 << 20;

pub(super) fn run(args: &BenchArgs, json: bool) -> Result<(), CommandError> {
    // SAFETY: the user asked for the library to be loaded and called.
    let program = unsafe { Program::load(&args.library) }?;
    let mut settings = Settings::new(&args.settings, program.name());
    let mut examples = Example::all(program.signature(), &mut settings)?;
    settings.finish()?;
    let given: Vec<Given<'_>> = examples.iter_mut().map(Example::given).collect();
    let mut prepared = program.prepare(&given)?;
    let mut ways =
        [CallForm::new("checked", || program.call(&given)), CallForm::new("prepared", || prepared.call())];
    for way in &mut ways {
        way.calibrate()?;
    }
    for _ in 0..args.rounds {
        for way in &mut ways {
            way.round()?;
        }
    }
    let lines = json.then(|| ways.iter().map(|way| way.json(program.name())).collect());
    let text = || {
        let header = ["call", "median ns", "least ns", "calls"].map(str::to_owned).to_vec();
        let rows = ways.iter().map(CallForm::row);
        format!(
            "program {}\n{}",
            program.name(),
            table(&[header].into_iter().chain(rows).collect::<Vec<_>>())
        )
    };
    print_lines(lines.as_ref(), text).map_err(CommandError::Report)
}

/// One form of the call, and what it cost.
struct CallForm<'a> {
    name: &'static str,
    call: Box<dyn FnMut() -> Result<(), ProgramError> + 'a>,
    calls: u32,
    /// Nanoseconds a call, of each round.
    times: Vec<f64>,
}

impl<'a> CallForm<'a> {
    fn new(name: &'static str, call: impl FnMut() -> Result<(), ProgramError> + 'a) -> Self {
        Self { name, call: Box::new(call), calls: 1, times: Vec::new() }
    }

    fn measure(&mut self) -> Result<Duration, ProgramError> {
        let start = Instant::now();
        for _ in 0..self.calls {
            (self.call)()?;
        }
        Ok(start.elapsed())
    }

    /// Finds how many calls make a round.
    fn calibrate(&mut self) -> Result<(), ProgramError> {
        while self.measure()? < ROUND && self.calls < MOST {
            self.calls *= 2;
        }
        Ok(())
    }

    fn round(&mut self) -> Result<(), ProgramError> {
        let time = self.measure()?;
        self.times.push(time.as_secs_f64() * 1e9 / f64::from(self.calls));
        Ok(())
    }

    fn least(&self) -> f64 {
        self.times.iter().copied().fold(f64::INFINITY, f64::min)
    }

    fn row(&self) -> Vec<String> {
        let calls = u64::from(self.calls) * self.times.len() as u64;
        vec![self.name.to_owned(), figure(median(&self.times)), figure(self.least()), calls.to_string()]
    }

    fn json(&self, program: &str) -> serde_json::Value {
        json!({
            "program": program,
            "call": self.name,
            "median_ns": median(&self.times),
            "least_ns": self.least(),
            "calls_a_round": self.calls,
            "rounds": self.times.len(),
        })
    }
}
