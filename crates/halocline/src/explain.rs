//! A table of the links of a bound exchange.

use crate::bound::Bound;
use crate::exchange::HaloExchange;
use crate::link::{Direction, Link, LinkPath};
use crate::set::{Part, Set};
use crate::stream::{Scheduled, Unbound};
use halocline_comm::mappings::Stats;
use halocline_plan::copy::CopyOp;
use std::fmt::Write;
use std::sync::Arc;

/// One link of this rank.
///
/// ```
/// use halocline::{
///     Array, BindOptions, Communicator, Decomposed, Direction, Error, HaloExchange, LinkChoice, LinkInfo, LinkPath,
///     RegularGrid,
/// };
///
/// let rank = |comm: Communicator| -> Result<(), Error> {
///     let pattern = RegularGrid::new([8]).decompose(2)?.pattern(&comm, 1)?;
///     let t = Array::<f64>::zeros(&comm, &pattern.domain()?.extents())?;
///     let options = BindOptions::default().link(LinkChoice::Push);
///     let halo = HaloExchange::bind_with(&comm, [(&pattern, &t)], &options)?;
///     let to_peer = LinkInfo { peer: 1 - comm.rank(), direction: Direction::Send, path: LinkPath::Push };
///     assert!(halo.links().any(|link| link == to_peer));
///     Ok(())
/// };
/// std::thread::scope(|threads| {
///     let ranks = Communicator::threads(2).into_iter().map(|comm| threads.spawn(move || rank(comm)));
///     ranks.collect::<Vec<_>>().into_iter().try_for_each(|rank| rank.join().expect("no panic"))
/// })?;
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkInfo {
    /// The other rank.
    pub peer: usize,
    /// Whether the link sends to it or receives from it.
    pub direction: Direction,
    /// How its bytes travel.
    pub path: LinkPath,
}

impl LinkInfo {
    pub(crate) fn of(link: &Link) -> Self {
        Self { peer: link.peer, direction: link.direction, path: link.path }
    }
}

/// The number of links of each path among the [`HaloExchange::links`](crate::HaloExchange::links) of a rank.
///
/// ```
/// use halocline::{Array, BindOptions, Communicator, Decomposed, Error, HaloExchange, LinkChoice, LinkCounts, RegularGrid};
///
/// let ranks = Communicator::threads(2).into_iter().map(|comm| {
///     std::thread::spawn(move || {
///         let pattern = RegularGrid::new([8]).decompose(2)?.pattern(&comm, 1)?;
///         let t = Array::<f64>::zeros(&comm, &pattern.domain()?.extents())?;
///         let options = BindOptions::default().link(LinkChoice::Mailbox);
///         let halo = HaloExchange::bind_with(&comm, [(&pattern, &t)], &options)?;
///         // One link to the other rank, and one from it.
///         assert_eq!(halo.links().collect::<LinkCounts>(), LinkCounts { mailbox: 2, ..LinkCounts::default() });
///         Ok::<(), Error>(())
///     })
/// });
/// for rank in ranks.collect::<Vec<_>>() {
///     rank.join().expect("no panic")?;
/// }
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkCounts {
    /// Pushed into the receiver's halo, or pulled from the owned cells; small messages between devices by the LL protocol.
    pub direct: usize,
    /// Through a buffer of the receiver, in device memory or in shared memory.
    pub mailbox: usize,
    /// Through messages, of the transport or of NCCL.
    pub message: usize,
}

impl FromIterator<LinkInfo> for LinkCounts {
    fn from_iter<I: IntoIterator<Item = LinkInfo>>(links: I) -> Self {
        let mut counts = Self::default();
        for link in links {
            match link.path {
                LinkPath::Push | LinkPath::Pull | LinkPath::Ll => counts.direct += 1,
                LinkPath::DeviceMailbox | LinkPath::Mailbox { .. } => counts.mailbox += 1,
                LinkPath::Message | LinkPath::Nccl => counts.message += 1,
            }
        }
        counts
    }
}

/// For each set, one line per link of this rank, and one for copies within the rank.
pub(crate) fn explain(bound: &Bound, sets: &[Arc<Set>], scheduled: Option<&Scheduled>) -> String {
    let mut text = head(bound);
    for (at, set) in sets.iter().enumerate() {
        if sets.len() > 1 {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "set {at}");
        }
        if scheduled.is_none_or(|scheduled| scheduled.has_host_fields) {
            text += &table(bound.life.comm.transport(), &bound.links, set, through);
        }
        if let Some(scheduled) = scheduled {
            let devices: Vec<String> =
                scheduled.lanes.iter().map(|lane| lane.device.ordinal().to_string()).collect();
            let how = match scheduled.apart {
                _ if devices.is_empty() => "none on this rank".to_owned(),
                None => "each exchange in one launch".to_owned(),
                Some(why) => format!("streams wait beside launches, not in one: {why}"),
            };
            let _ = writeln!(text, "fields on devices {}: {how}", devices.join(", "));
            if let Some(stats) = scheduled.mappings() {
                let Stats { hits, opens, evictions, staged, .. } = stats;
                let (held, mapped) = (stats.bytes_held, stats.bytes_mapped);
                let _ = writeln!(
                    text,
                    "mappings of this rank so far: {hits} hits, {opens} opens, {evictions} evictions, {staged} staged; {held} bytes held by others, {mapped} of theirs mapped"
                );
            }
            let set = &scheduled.sets[set.number];
            let through = |link: &Link, transport: &str| match &scheduled.nccl {
                Some(nccl) if link.path == LinkPath::Nccl => {
                    format!("memory of the devices, messages of {}", nccl.library())
                }
                _ if scheduled.is_far(link) => format!("memory of the devices, messages of {transport}"),
                _ => through_devices(link, transport),
            };
            text += &table(bound.life.comm.transport(), &scheduled.links, set, through);
        }
    }
    text
}

/// One line per link without fields.
pub(crate) fn unbound(bound: &Bound) -> String {
    let transport = bound.life.comm.transport();
    let rows = bound.links.iter().map(|link| {
        let capacity = match &link.unbound_slots {
            Some(unbound_slots) if link.path != LinkPath::Message => unbound_slots.capacity().to_string(),
            _ => "-".to_owned(),
        };
        let why = link.why.clone().unwrap_or_else(|| "the fields are not bound".to_owned());
        vec![name(link), link.path.to_string(), through(link, transport), capacity, why]
    });
    head(bound) + &align(&["link", "path", "through", "bytes per slot", "why not better"], rows.collect())
}

/// The links of fields of a device in the unbound form.
pub(crate) fn unbound_on_device(halo: &HaloExchange) -> String {
    let bound = halo.bound();
    let Some(scheduled) = &halo.scheduled else { return head(bound) };
    let slots = scheduled.unbound.as_ref().map(Unbound::capacities).unwrap_or_default();
    let rows = scheduled.links.iter().enumerate().map(|(at, link)| {
        let (capacity, mapped) = slots.get(at).copied().flatten().unzip();
        let capacity = capacity.map_or_else(|| "-".to_owned(), |bytes| bytes.to_string());
        let mapped = mapped.flatten().map_or_else(String::new, |kind| format!(", mapped by {kind}"));
        let through = format!("memory of the devices, a buffer of the receiver{mapped}");
        vec![
            name(link),
            "announced slot".to_owned(),
            through,
            capacity,
            "the fields are not bound".to_owned(),
        ]
    });
    let unchecked = if bound.check.is_some() { "checked mode does not look at them\n" } else { "" };
    align(&["link", "path", "through", "bytes per slot", "why not better"], rows.collect()) + unchecked
}

fn head(bound: &Bound) -> String {
    let comm = &bound.life.comm;
    format!("rank {} of {}, transport {}\n", comm.rank(), comm.size(), comm.transport())
}

fn table(transport: &str, links: &[Link], set: &Set, through: impl Fn(&Link, &str) -> String) -> String {
    let mut rows: Vec<Vec<String>> = Vec::new();
    rows.extend(links.iter().map(|link| row(link, &set.parts[link.part], through(link, transport))));
    if !set.within.is_empty() {
        let (bytes, blocks) = extent(&set.within);
        let local = ["within this rank", "direct, copy", "own memory", &bytes.to_string(), &blocks, "-"];
        rows.push(local.map(str::to_owned).to_vec());
    }
    align(&["link", "path", "through", "bytes", "copies here", "why not better"], rows)
}

/// Rows of cells under a header, as text.
fn align(header: &[&str], mut rows: Vec<Vec<String>>) -> String {
    rows.insert(0, header.iter().map(|&title| title.to_owned()).collect());
    let widths: Vec<usize> =
        (0..header.len()).map(|column| rows.iter().map(|row| row[column].len()).max().unwrap_or(0)).collect();
    let lines = rows.iter().map(|row| {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:width$}")).collect();
        format!("{}\n", cells.join("  ").trim_end())
    });
    lines.collect()
}

fn row(link: &Link, part: &Part, through: String) -> Vec<String> {
    let copies = match (link.direction, link.path) {
        (Direction::Send, LinkPath::Pull) | (Direction::Receive, LinkPath::Push) => {
            "none, the peer copies".to_owned()
        }
        _ => extent(&part.ops).1,
    };
    let why = link.why.clone().unwrap_or_else(|| "-".to_owned());
    vec![name(link), link.path.to_string(), through, part.bytes.to_string(), copies, why]
}

fn name(link: &Link) -> String {
    match link.direction {
        Direction::Send => format!("to rank {}", link.peer),
        Direction::Receive => format!("from rank {}", link.peer),
    }
}

fn through(link: &Link, transport: &str) -> String {
    match (link.path, transport) {
        (LinkPath::Message, name) => format!("messages of {name}"),
        (LinkPath::Mailbox { .. }, "thread") => "a buffer of the receiver".to_owned(),
        (LinkPath::Mailbox { .. }, _) => "a buffer of the receiver in shared memory".to_owned(),
        (_, "thread") => "memory of this process".to_owned(),
        _ => "shared memory".to_owned(),
    }
}

/// The same between devices.
fn through_devices(link: &Link, transport: &str) -> String {
    let ll = match (link.path, link.ll) {
        (LinkPath::Ll, Some(most)) => format!(", for messages of up to {}", size(most)),
        (_, Some(most)) => format!(", no LL protocol, which is for 1 B to {}", size(most)),
        (_, None) => String::new(),
    };
    let memory = match link.path {
        LinkPath::Message => format!("staged through the host, messages of {transport}"),
        LinkPath::Mailbox { .. } => "staged through the host, a buffer of the receiver".to_owned(),
        LinkPath::DeviceMailbox => "memory of the devices, a buffer of the receiver".to_owned(),
        _ => "memory of the devices".to_owned(),
    };
    let kinds: Vec<String> = link.mapped.iter().map(ToString::to_string).collect();
    let mapped = if kinds.is_empty() { String::new() } else { format!(", mapped by {}", kinds.join(", ")) };
    memory + &mapped + &ll
}

/// Bytes, to two digits or more.
fn size(bytes: usize) -> String {
    match bytes {
        0..10_000 => format!("{bytes} B"),
        10_000..1_000_000 => format!("{:.0} kB", bytes as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}

fn extent(ops: &[CopyOp]) -> (usize, String) {
    let bytes = ops.iter().map(|op| op.bytes()).sum();
    let blocks: usize = ops.iter().map(|op| op.blocks()).sum();
    let counted = |count: usize, what| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    (bytes, format!("{}, {}", counted(ops.len(), "region"), counted(blocks, "block")))
}
