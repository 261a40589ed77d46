//! One conformance suite for every transport: [`cases`]. `tests/suite.rs` runs it over threads, and over processes that run
//! this crate's binary. A new transport runs the same cases. All cases that are not about host memory also run with fields in
//! device memory ([`run_fields_on_devices`]): the [`stage::Stage`] of a case says where its fields lie.
//!
//! A global oracle checks the data: the value of a cell depends only on its global number, the field and the step
//! ([`subject`]). Every byte of an array is compared, including bytes that an exchange must not touch.

pub mod bind_costs;
pub mod by_hand;
mod cases;
pub mod device_fixtures;
pub mod fixtures;
pub mod form;
pub mod gpus;
pub mod holding;
pub mod host;
pub mod instant;
pub mod large;
pub mod launchers;
pub mod nccl;
pub mod numbers;
pub mod payloads;
pub mod processes;
pub mod programs;
pub mod random_kills;
pub mod raw_mpi;
pub mod ring;
mod run;
pub mod seen;
pub mod simulated;
pub mod stage;
pub mod steady;
pub mod subject;
pub mod tampered;
pub mod trouble;
pub mod victim;
pub mod watchdog;

pub use run::{run_all, run_cases, run_fields_on_devices, says_times};
pub use trouble::Trouble;

use stage::Stage;
use std::sync::OnceLock;

/// What a case ends with on one rank.
pub type Outcome = Result<(), Trouble>;

/// One behaviour, to be shown by all ranks of a communicator together.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// What is shown, as `topic::behaviour`.
    pub name: &'static str,
    /// Shows it. Collective: all ranks call it in the same order. Leaves the communicator usable.
    pub run: fn(&Stage<'_>) -> Outcome,
}

impl Case {
    /// The topic of its name.
    pub fn topic(&self) -> &'static str {
        self.name.split("::").next().unwrap_or(self.name)
    }
}

/// All cases, in the order in which they are run.
pub fn cases() -> &'static [Case] {
    static ALL: OnceLock<Vec<Case>> = OnceLock::new();
    ALL.get_or_init(|| cases::BY_TOPIC.concat())
}

/// The cases of exchanges whose fields may lie anywhere: those of [`cases`] that are not about memory of the host.
pub fn cases_of_fields() -> Vec<Case> {
    cases::OF_FIELDS.concat()
}

/// The cases of what fields in memory of devices alone have, on those of a rig.
pub fn device_cases<R: device_fixtures::Rig>() -> Vec<Case> {
    cases::on_devices::<R>()
}
