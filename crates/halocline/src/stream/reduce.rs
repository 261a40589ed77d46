//! Reduces of device fields: an exchange in reverse, over the same flags.
//!
//! | | receiver of an exchange | sender of an exchange, which owns the cells |
//! | --- | --- | --- |
//! | links between devices | packs its halo into a slot in the memory of the peer's device, and clears it; then sets `ready` | waits for `ready` of all its peers, combines what lies in its slots, sets `arrived` |
//! | mailboxes | the same, in memory of its own host | the same, from the peers' slots |
//! | messages | packs its halo into its slot, which the host sends ([`super::staging`]) | waits for the host, then the same |
//! | then | waits for `arrived`: the slot is free | |
//!
//! Each cell is combined by one thread, with its contributions in the order of domains ([`halocline_plan::copy::Gather`]). There are two
//! launches: what this rank does by itself, then what needs the halo of peers. Each waits at its end, if launches can wait; else the stream
//! waits after it.

use super::{FlagSet, Scheduled, Script, Work};
use crate::bind;
use crate::error::Error;
use crate::exchange::Shared;
use crate::reduce::Reduction;
use crate::set::Set;
use halocline_device::Stream;
use halocline_plan::ReduceOp;
use std::sync::{Arc, OnceLock};

/// The scripts of a lane for the reduces of each set, made when they are begun first.
pub(crate) struct Reduces {
    max_sets: usize,
    /// For each set and operation those that clear the halo and those that keep it.
    scripts: Box<[OnceLock<Box<Script>>]>,
}

impl Reduces {
    pub(crate) fn new(max_sets: usize) -> Self {
        let scripts = (0..2 * ReduceOp::ALL.len() * max_sets).map(|_| OnceLock::new()).collect();
        Self { max_sets, scripts }
    }

    fn at(&self, set: usize, reduction: Reduction) -> &OnceLock<Box<Script>> {
        let first = FlagSet { set, op: Some(reduction.op) }.number(self.max_sets) - self.max_sets;
        &self.scripts[2 * first + usize::from(reduction.keeps_halo)]
    }

    /// The script of a reduce that was begun, or is about to be.
    pub(super) fn script(&self, set: usize, reduction: Reduction) -> &Script {
        let script = self.at(set, reduction).get();
        script.unwrap_or_else(|| panic!("set {set} has no script for {reduction:?}"))
    }

    /// Those made so far.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Script> {
        self.scripts.iter().filter_map(OnceLock::get).map(|script| &**script)
    }

    /// The numbers of the flags of those made so far.
    pub(super) fn numbers(&self) -> impl Iterator<Item = usize> {
        let made = self.scripts.iter().enumerate().filter(|(_, script)| script.get().is_some());
        made.map(|(at, _)| self.max_sets + at / 2)
    }
}

impl Scheduled {
    /// Begins a reduce of a set, after all earlier work of the streams, or of the producer streams that were bound: [`Scheduled::begin`].
    pub(crate) fn begin_reduce(
        &self,
        (set, reduction): (&Arc<Set>, Reduction),
        object: &Arc<Shared>,
        streams: Option<&[&Stream]>,
    ) -> Result<u64, Error> {
        self.check_reduction(set, reduction)?;
        self.make_scripts(set.number, reduction)?;
        let work = Work::Reduce(set, reduction);
        match streams {
            None => self.begin((work, object), self.producers.iter().map(|stream| &**stream)),
            Some(streams) => self.begin((work, object), streams.iter().copied()),
        }
    }

    /// Refuses a reduce that the fields of some rank, or the links between some ranks, do not allow.
    fn check_reduction(&self, set: &Set, reduction: Reduction) -> Result<(), Error> {
        if let Some(refused) = &self.refuses_reduces {
            return Err(refused.clone().into());
        }
        let of_devices = &self.sets[set.number];
        of_devices.reversed(&self.links)?.check(reduction.op)?;
        of_devices.local.check_reduction(reduction.op)?;
        set.local.check_reduction(reduction.op)
    }

    /// Makes the scripts of all lanes for a reduce, if they are not there.
    fn make_scripts(&self, set: usize, reduction: Reduction) -> Result<(), Error> {
        if self.lanes.iter().all(|lane| lane.reduces.at(set, reduction).get().is_some()) {
            return Ok(());
        }
        // Another thread may make them.
        let _alone = self.enter();
        for (number, lane) in self.lanes.iter().enumerate() {
            let made = lane.reduces.at(set, reduction);
            if made.get().is_none() {
                let script = bind::reduce_script(self, number, (&self.sets[set], reduction))?;
                made.get_or_init(|| Box::new(script));
            }
        }
        Ok(())
    }
}
