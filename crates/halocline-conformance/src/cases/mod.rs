//! The cases, by topic.

mod alternatives;
mod checked;
mod checked_devices;
mod collectives;
mod devices;
mod failures;
mod fetch;
mod fixture;
mod flight;
mod foreign;
mod futures;
mod index_lists;
mod layouts;
mod lifetimes;
mod line;
mod mapped;
mod mappings;
mod meshes;
mod messages;
mod narrowed;
mod neighbors;
mod owned;
mod packing;
mod patches;
mod redistribution;
mod reduce;
mod reduced_bits;
mod refusals;
mod refused_packets;
mod refused_patterns;
mod refused_reduces;
mod regular;
mod scheduled;
mod sparse;
mod splits;
mod tables;
mod threads;
mod unbound;
mod unbound_device_fields;
mod unstructured;

pub(crate) use scheduled::{device_of, paths as scheduled_paths};

use crate::Case;
use crate::device_fixtures::Rig;
use crate::simulated::Simulation;

/// The cases of each topic, simple things first.
pub(crate) const BY_TOPIC: &[&[Case]] = &[
    collectives::CASES,
    splits::CASES,
    messages::CASES,
    mappings::CASES,
    neighbors::CASES,
    tables::CASES,
    sparse::CASES,
    regular::CASES,
    patches::CASES,
    unstructured::CASES,
    meshes::CASES,
    narrowed::CASES,
    redistribution::CASES,
    redistribution::OF_HOST,
    reduce::CASES,
    reduced_bits::CASES,
    fetch::CASES,
    fetch::OF_HOST,
    layouts::CASES,
    foreign::CASES,
    flight::CASES,
    flight::OF_HOST,
    owned::OF_HOST,
    alternatives::CASES,
    unbound::CASES,
    packing::CASES,
    packing::OF_HOST,
    &scheduled::cases::<Simulation>(),
    &devices::cases::<Simulation>(),
    &checked_devices::cases::<Simulation>(),
    &unbound_device_fields::cases::<Simulation>(),
    &mapped::cases::<Simulation>(),
    &index_lists::cases::<Simulation>(),
    futures::CASES,
    threads::CASES,
    threads::OF_HOST,
    lifetimes::CASES,
    lifetimes::OF_HOST,
    failures::CASES,
    checked::CASES,
    refusals::CASES,
    refusals::OF_HOST,
    refused_packets::CASES,
    refused_patterns::CASES,
    refused_reduces::CASES,
    refused_reduces::OF_HOST,
];

/// Those whose fields may lie in memory of devices, too.
pub(crate) const OF_FIELDS: &[&[Case]] = &[
    neighbors::CASES,
    sparse::CASES,
    refused_packets::CASES,
    regular::CASES,
    patches::CASES,
    unstructured::CASES,
    meshes::CASES,
    narrowed::CASES,
    redistribution::CASES,
    layouts::CASES,
    flight::CASES,
    alternatives::CASES,
    packing::CASES,
    futures::CASES,
    threads::CASES,
    lifetimes::CASES,
    failures::CASES,
    refusals::CASES,
    reduce::CASES,
    reduced_bits::CASES,
    fetch::CASES,
    refused_reduces::CASES,
];

/// The cases of fields in memory of devices.
pub(crate) fn on_devices<R: Rig>() -> Vec<Case> {
    [
        &scheduled::cases::<R>()[..],
        &devices::cases::<R>(),
        &checked_devices::cases::<R>(),
        &unbound_device_fields::cases::<R>(),
        &mapped::cases::<R>(),
        &index_lists::cases::<R>(),
    ]
    .concat()
}
