//! Binding: everything that can be done once. Checks the fields, describes them to the peers, chooses
//! a path for each link and lays out flags and mailboxes.

mod aware;
mod connect;
mod device;
mod error;
mod flag_layout;
mod further;
pub(crate) mod given;
mod lanes;
mod local;
mod measure;
mod narrow;
mod nccl;
mod offer;
mod ops;
mod pair;
mod path_preferences;
mod peer_view;
mod reduce_script;
mod remote;
mod remote_lanes;
mod reverse;
mod script;
mod sides;
pub(crate) mod unbound;
mod validate;

pub use error::BindError;
pub(crate) use flag_layout::Word;
pub(crate) use lanes::lane_of;
pub(crate) use local::{Bindable, Local, Place};
pub(crate) use narrow::narrowed;
pub(crate) use offer::Offered;
pub(crate) use ops::{share_runs, within};
pub(crate) use reduce_script::reduce_script;
pub(crate) use reverse::{Via, reverse};
pub(crate) use script::Kit;

use crate::agree::{agree, agree_on, same_as_rank_0};
use crate::bound::Bound;
use crate::error::Error;
use crate::field::Field;
use crate::lifecycle::{Engines, Lifecycle};
use crate::link::{Direction, LinkPath, MOST_SETS, SLOTS};
use crate::options::{BindOptions, LinkChoice};
use crate::pattern::Pattern;
use crate::set::Set;
use crate::stream::Scheduled;
use crate::trace::Name;
use connect::{Buffer, Connected, Endpoints, Handshake};
use halocline_comm::{Communicator, Endpoint, Patience, Reduce};
use halocline_device::host::MESSAGE_ALIGN;
use halocline_plan::ReduceOp;
use halocline_plan::copy::CopyOp;
use peer_view::PeerView;
use std::sync::Arc;

/// The path that all links take if they can.
#[derive(Debug, Clone, Copy)]
struct Preference {
    path: LinkPath,
    /// If a link cannot take it, the bind fails.
    forced: bool,
}

/// A bound object.
pub(crate) struct BoundObject {
    pub(crate) bound: Arc<Bound>,
    /// Its sets, with the host fields.
    pub(crate) sets: Vec<Arc<Set>>,
    /// Its device fields, if any rank has some.
    pub(crate) scheduled: Option<Arc<Scheduled>>,
}

/// Binds sets of fields, which share the links. Collective.
pub(crate) fn bind(
    comm: &Communicator,
    given: &[&[(&Pattern, &Field)]],
    options: &BindOptions,
) -> Result<BoundObject, Error> {
    let _span =
        tracing::debug_span!("bind", rank = comm.rank(), name = options.name, sets = given.len()).entered();
    let comm = &comm.within("bind");
    let (rank, sets) = (comm.rank(), given.len());
    let set_count = |first: &[u64]| BindError::SetCount { rank, sets, first: first[0] as usize };
    let same = same_terms(comm, options, &[sets as u64], set_count)?;
    let same = same.and_then(|options| if sets == 0 { Err(BindError::NoSets.into()) } else { Ok(options) });
    let options = &agree(comm, same)?;
    let is_on_device = |(_, field): &(&Pattern, &Field)| field.memory.device.is_some();
    let on_devices = given.iter().any(|set| set.iter().any(is_on_device));
    let on_devices = comm.all_reduce(&[u8::from(on_devices)], Reduce::Max)? != [0];
    if on_devices && sets > MOST_SETS {
        return Err(BindError::TooManySets { sets, most: MOST_SETS }.into());
    }
    // Host and device fields get an engine each; both share one life.
    let sets = check_fields(comm, given, false)?;
    let on_devices = on_devices.then(|| check_fields(comm, given, true)).transpose()?;
    let preference = prefer(comm, &sets[0], options.link)?;
    let has_host_fields = sets.iter().any(|set| !set.fields.is_empty());
    let engines = Engines { host: on_devices.is_none() || has_host_fields, device: on_devices.is_some() };
    let mut object = build(comm, sets, preference, (options, engines))?;
    let bound = &object.bound;
    if bound.wants_progress() {
        comm.register(bound);
    }
    if options.checked == Some(true) && on_devices.is_some() && !options.checks_devices() {
        let rank = comm.rank();
        tracing::warn!(
            "rank {rank}: checked mode does not check device fields that are given to each exchange"
        );
    }
    let device_engine = |sets| device::bind(comm, sets, options, bound, has_host_fields);
    object.scheduled = on_devices.map(device_engine).transpose()?;
    Ok(object)
}

/// Checks the host fields or the device fields of all sets. Collective.
fn check_fields(
    comm: &Communicator,
    given: &[&[(&Pattern, &Field)]],
    on_device: bool,
) -> Result<Vec<Local>, Error> {
    let of_set = |set: usize, error: Error| match given.len() {
        1 => error,
        _ => Error::Set { set, error: Box::new(error) },
    };
    let places = given.iter().enumerate().map(|(at, set)| {
        let is_of_kind = |(_, field): &&(&Pattern, &Field)| field.memory.device.is_some() == on_device;
        let fields: Vec<(&Pattern, &Field)> = set.iter().filter(is_of_kind).copied().collect();
        Local::new(comm, &fields).map_err(|error| of_set(at, error))
    });
    let places: Result<Vec<Local>, Error> = places.collect();
    let places = places.map(|sets| {
        let own = sets.iter().flat_map(|local| local.reductions.map(u64::from)).collect();
        (sets, own)
    });
    let (mut sets, reductions) = agree_on(comm, places, given.len() * ReduceOp::ALL.len())?;
    for (local, agreed) in sets.iter_mut().zip(reductions.as_chunks().0) {
        local.reductions = agreed.map(|agreed| agreed != 0);
    }
    for (at, local) in sets.iter().enumerate() {
        agree(comm, validate::validate(comm, local)?.map_err(|error| of_set(at, error)))?;
    }
    Ok(sets)
}

/// The path for all links between host fields: the one that the options ask for, or the fastest for these fields. Collective.
fn prefer(comm: &Communicator, fields: &Local, choice: LinkChoice) -> Result<Preference, Error> {
    let forced = |path| Preference { path, forced: true };
    Ok(match choice {
        LinkChoice::Auto | LinkChoice::Nccl => {
            Preference { path: measure::choose(comm, fields, &measure::ALL)?, forced: false }
        }
        LinkChoice::Push => forced(LinkPath::Push),
        LinkChoice::Pull => forced(LinkPath::Pull),
        LinkChoice::Message => forced(LinkPath::Message),
        _ => forced(measure::choose(comm, fields, &measure::MAILBOXES)?),
    })
}

/// The copies between the fields of a set and a message from or to a peer.
pub(crate) fn packing(set: &Set, peer: usize, direction: Direction) -> Result<Vec<CopyOp>, Error> {
    let peer_view = PeerView { peer, local: &set.local, theirs: &set.offered[&peer] };
    Ok(peer_view.part(direction, LinkPath::Message, &peer_view.transfer_pairs(direction)?)?.ops)
}

/// Checks that all ranks ask for the same links, checked mode and `others`; `differ` is the error of other `others` on rank 0. Returns
/// the options, completed from the environment.
fn same_terms(
    comm: &Communicator,
    options: &BindOptions,
    others: &[u64],
    differ: impl FnOnce(&[u64]) -> BindError,
) -> Result<Result<BindOptions, Error>, Error> {
    let (rank, choice, options) = (comm.rank(), options.link, options.with_environment());
    let checked = options.as_ref().is_ok_and(|options| options.checked == Some(true));
    let same = same_as_rank_0(comm, &[&[choice.code(), checked.into()], others].concat())?;
    Ok(match (same, options) {
        (_, Err(error)) => Err(error.into()),
        (Ok(()), Ok(options)) => Ok(options),
        (Err(first), Ok(_)) => Err(match first[..] {
            [code, ..] if code != choice.code() => {
                BindError::LinkChoice { rank, choice, first: LinkChoice::from_code(code) }
            }
            [_, _, ref theirs @ ..] if theirs != others => differ(theirs),
            _ => BindError::CheckedMode { rank, checked },
        }
        .into()),
    })
}

fn build(
    comm: &Communicator,
    sets: Vec<Local>,
    preference: Preference,
    (options, engines): (&BindOptions, Engines),
) -> Result<BoundObject, Error> {
    let (offers, operation, checks) = (comm.begin(), comm.begin(), comm.begin());
    let peers = sets.iter().flat_map(Local::peers).collect();
    let endpoints = Endpoints::lay_out(&peers, |peer| {
        let received = sets.iter().map(|set| set.bytes(peer, Direction::Receive));
        let capacity = received.max().unwrap_or(0);
        Buffer { capacity, bytes: SLOTS as usize * capacity.next_multiple_of(MESSAGE_ALIGN) }
    });
    let own = agree(comm, endpoints.allocate(comm))?;
    let handshake = Handshake { comm, sets, endpoints, own: own.clone(), operation, of_devices: None };
    let received = handshake.swap_offers(offers)?;
    let made = received.and_then(|theirs| handshake.connect(theirs, |_, _| preference));
    let Connected { links, sets, .. } = agree(comm, made)?;
    let layouts = sets[0].local.fields.iter().map(|field| &field.layout);
    let life = life(comm, options, Name::new(operation, options.name.as_deref(), layouts), engines);
    let checks = (options.checked == Some(true)).then_some(checks);
    Ok(BoundObject { bound: Bound::new(life, links, own, &sets, checks), sets, scheduled: None })
}

fn life(comm: &Communicator, options: &BindOptions, name: Name, engines: Engines) -> Lifecycle {
    let patience = Patience { deadline: options.deadline, ..Patience::of(comm.link()) };
    Lifecycle::new(comm.detached(), name, patience, engines)
}
