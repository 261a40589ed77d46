//! Further sets of device fields over the links of an object: they have their own tables and operations, over flags that the bind
//! reserved.

use super::device::prepare_to_combine;
use super::script::Making;
use super::sides::staged;
use crate::error::Error;
use crate::set::Set;
use crate::stream::{Scheduled, Script, Stage, Staged};
use halocline_device::Address;
use std::sync::Arc;

/// The additions to an object: for each lane and each staged link the entries of the new sets.
pub(super) struct Further {
    sets: Vec<Arc<Set>>,
    lanes: Vec<(Vec<Script>, Vec<Vec<Address>>)>,
    stages: Vec<Vec<Staged>>,
}

/// Makes it, for sets with the next numbers. No rank exchanges them before all ranks have added them.
pub(super) fn make(scheduled: &Scheduled, sets: Vec<Arc<Set>>) -> Result<Further, Error> {
    let (there, max_sets) = (scheduled.sets.len(), scheduled.sets.max_sets());
    if there + sets.len() > max_sets {
        return Err(Error::TooManySets { sets: there, limit: max_sets });
    }
    if scheduled.refuses_reduces.is_none() {
        prepare_to_combine(&scheduled.kit.opened.devices, sets.iter().map(|set| &set.local))?;
    }
    let of_stage = |stage: &Stage| -> Vec<Staged> {
        sets.iter().map(|set| staged(set, &scheduled.links[stage.link], &scheduled.links)).collect()
    };
    let stages = scheduled.stages().iter().map(of_stage).collect();
    let mut lanes = Vec::new();
    for (number, lane) in scheduled.lanes.iter().enumerate() {
        let making = making(scheduled, number);
        let scripts = making.scripts(&sets)?;
        if lane.is_counting() && scripts.iter().any(|script| script.waiting_blocks.is_none()) {
            let why = "graphs hold others of it, and this halo needs more thread blocks that wait than the device has";
            return Err(Error::NotCapturable { why });
        }
        let known: Vec<Address> = lane.poisoned.iter().flatten().copied().collect();
        let poisoned = making.poisoned(&sets, &known);
        lanes.push((scripts, poisoned));
    }
    Ok(Further { sets, lanes, stages })
}

/// What the further scripts of a lane are made from.
pub(super) fn making(scheduled: &Scheduled, number: usize) -> Making<'_> {
    let (kit, lane) = (&scheduled.kit, &scheduled.lanes[number]);
    Making {
        opened: &kit.opened,
        links: &scheduled.links,
        number,
        outgoing: kit.outgoing.iter().filter(|out| out.lane == number).collect(),
        incoming: kit.incoming.iter().filter(|_| number == 0).collect(),
        stages: scheduled.stages(),
        messages: &kit.messages,
        status: &lane.status,
        cut: kit.cut,
        in_one: lane.is_by_event(),
        inline: scheduled.inline,
        checked: scheduled.checks.is_some(),
    }
}

/// Adds it.
pub(super) fn add(scheduled: &Scheduled, further: Further) {
    let Further { sets, lanes, stages } = further;
    scheduled.stages().iter().zip(stages).for_each(|(stage, of_sets)| stage.sets.extend(of_sets));
    for (lane, (scripts, poisoned)) in scheduled.lanes.iter().zip(lanes) {
        lane.poisoned.extend(poisoned);
        lane.scripts.extend(scripts);
    }
    scheduled.add(sets);
}
