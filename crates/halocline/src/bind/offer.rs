//! The messages of a bind between two peers: layouts, memory, flags, mailboxes. Every value of a received offer is checked
//! before it is used.

use super::error::BindError;
use super::local::{Local, Place};
use super::remote::{ExportHandle, Exports};
use crate::error::Error;
use crate::link::Direction;
use crate::pattern::Pattern;
use halocline_comm::mappings::Kind;
use halocline_comm::{Communicator, Endpoint, Segment, Tag};
use halocline_plan::ElementType;
use halocline_plan::copy::{AxisLayout, CellLayout};
use halocline_plan::wire::{Reader, WireError, Writer};
use std::collections::HashMap;
use std::sync::Arc;

/// Segments that travel with one message; further messages carry the others.
const SEGMENTS_A_MESSAGE: usize = 64;

/// The least number of bytes of a field in an offer.
const FIELD: usize = 40;

/// The flags and mailbox of this rank's side of the links with one peer, as offsets in its own segment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LinkEndpoint {
    /// Offset of the flag of the link that sends to the peer.
    pub(crate) send_counter: usize,
    /// Offset of the flag of the link that receives from it.
    pub(crate) receive_counter: usize,
    /// Offset of the mailbox that the peer writes.
    pub(crate) mailbox: usize,
    /// Bytes of a slot of that mailbox: the most that an exchange receives.
    pub(crate) capacity: usize,
    /// This side wants the LL protocol for messages of device fields up to this many bytes.
    pub(crate) ll: usize,
    /// The chunk size that this side wants for staged messages of device fields, in bytes.
    pub(crate) chunk: usize,
    /// Whether this side has a mailbox in device memory for the peer.
    pub(crate) on_device: bool,
}

/// One side's offer to the other.
pub(crate) struct Offer {
    pub(crate) endpoint: LinkEndpoint,
    /// The sender's own segment, if the other side can reach it.
    pub(crate) own: Option<Arc<Segment>>,
    /// Why the receiver of the offer does not reach the sender's device flags.
    pub(crate) words: Option<String>,
    /// The sender's sets of fields.
    pub(crate) sets: Vec<Offered>,
}

/// One set of fields of the peer.
pub(crate) struct Offered {
    /// Bytes that the peer sends to this rank in an exchange, and receives from it.
    pub(crate) sends: usize,
    pub(crate) receives: usize,
    pub(crate) fields: HashMap<Place, RemoteField>,
}

impl Offered {
    /// The same fields under other patterns: `others` has the new pattern for the id of each old one.
    pub(super) fn under(&self, others: &HashMap<u64, Pattern>) -> Self {
        let place = |place: &Place| Some(Place { pattern: others.get(&place.pattern)?.id(), ..*place });
        let fields = self.fields.iter().filter_map(|(at, field)| Some((place(at)?, field.clone())));
        Self { fields: fields.collect(), ..*self }
    }
}

/// A field of the peer.
#[derive(Clone)]
pub(crate) struct RemoteField {
    pub(crate) cells: CellLayout,
    /// Its memory and the offset of element (0, 0, …), or why it is out of reach.
    pub(crate) memory: Result<(Arc<Segment>, usize), String>,
    /// How it is mapped here, if it is.
    pub(crate) mapped: Option<Kind>,
}

/// How a peer reaches a memory.
enum Reached {
    /// By the segment with this index, which travels with the offer.
    Segment(u64),
    /// It has mapped it.
    Mapped(ExportHandle),
}

/// This rank's device memory: what peers have mapped of it, and the flags of the device programs.
#[derive(Clone, Copy)]
pub(crate) struct OfDevices<'a> {
    pub(crate) exports: &'a Exports,
    pub(crate) words: &'a [Arc<Segment>],
}

impl OfDevices<'_> {
    /// Why a peer does not reach the flags.
    pub(crate) fn obstacle(&self, comm: &Communicator, peer: usize) -> Option<String> {
        self.words.iter().find_map(|words| self.exports.reach(comm, peer, words).err())
    }
}

/// Sends this rank's offer to a peer. `own` is this rank's segment of flags and mailboxes.
pub(crate) fn send(
    comm: &Communicator,
    (peer, operation): (usize, u64),
    sets: &[Local],
    endpoint: LinkEndpoint,
    own: Option<&Arc<Segment>>,
    of_devices: Option<OfDevices<'_>>,
) -> Result<(), Error> {
    let none = Exports::default();
    let exports = of_devices.map_or(&none, |of_devices| of_devices.exports);
    let words = of_devices.and_then(|of_devices| of_devices.obstacle(comm, peer));
    let mut segments: Vec<Arc<Segment>> = own.into_iter().cloned().collect();
    let mut body = Writer::new();
    for local in sets {
        // Sets share memory, often all of it: each memory travels once.
        let memories: Vec<Result<Reached, String>> = local
            .memories
            .iter()
            .map(|(memory, _)| {
                exports.reach(comm, peer, &memory.segment)?;
                if let Some(Ok(handle)) = exports.of(peer, &memory.segment) {
                    return Ok(Reached::Mapped(*handle));
                }
                let known = segments.iter().position(|segment| segment.id() == memory.segment.id());
                Ok(Reached::Segment(known.unwrap_or_else(|| {
                    segments.push(Arc::clone(&memory.segment));
                    segments.len() - 1
                }) as u64))
            })
            .collect();
        write_set(&mut body, (peer, local), &memories);
    }
    let mut w = Writer::new();
    w.size(segments.len());
    w.u64(own.is_some().into());
    for number in [endpoint.send_counter, endpoint.receive_counter, endpoint.mailbox, endpoint.capacity] {
        w.size(number);
    }
    w.size(endpoint.ll);
    w.size(endpoint.chunk);
    w.u64(endpoint.on_device.into());
    write_why(&mut w, words.as_deref().unwrap_or_default());
    w.size(sets.len());
    let mut payload = Some([w.finish(), body.finish()].concat());
    let batches = segments.len().div_ceil(SEGMENTS_A_MESSAGE).max(1);
    for round in 0..batches {
        let from = round * SEGMENTS_A_MESSAGE;
        let batch = &segments[from..segments.len().min(from + SEGMENTS_A_MESSAGE)];
        let tag = Tag { operation, round: round as u64 };
        comm.link().post(peer, tag, payload.take().unwrap_or_default(), batch)?;
    }
    Ok(())
}

fn write_set(w: &mut Writer, (peer, local): (usize, &Local), memories: &[Result<Reached, String>]) {
    w.size(local.bytes(peer, Direction::Send));
    w.size(local.bytes(peer, Direction::Receive));
    w.size(local.fields.len());
    for field in &local.fields {
        w.u64(field.place.pattern);
        w.size(field.place.number);
        w.u64(field.place.domain);
        write_cells(w, &field.cells);
        match &memories[field.memory] {
            Ok(Reached::Segment(segment)) => {
                w.u64(1);
                w.u64(*segment);
                w.size(field.offset);
            }
            Ok(Reached::Mapped(handle)) => {
                w.u64(2);
                handle.write(w);
                w.size(field.offset);
            }
            Err(why) => {
                w.u64(0);
                write_why(w, why);
            }
        }
    }
}

/// Waits for a peer's offer, of fields on devices or on the host.
pub(crate) fn receive(
    comm: &Communicator,
    (peer, operation): (usize, u64),
    of_devices: bool,
) -> Result<Offer, Error> {
    const WHAT: &str = "the offer of a bind";
    let first = comm.receive(Some(peer), Tag { operation, round: 0 }, WHAT)?;
    let malformed = |error| malformed(peer, error);
    let mut reader = Reader::new(&first.payload);
    let announced = reader.size().map_err(malformed)?;
    // At most its own segment and one for each field: this rank does not wait for memory that cannot arrive.
    if announced > 1 + first.payload.len() / FIELD {
        return Err(malformed(WireError::Content("it announces more memories than it has fields")));
    }
    let mut segments = first.segments;
    let mut missing = first.missing.map(|why| (segments.len() + 1, why));
    for round in 1..announced.div_ceil(SEGMENTS_A_MESSAGE) as u64 {
        let next = comm.receive(Some(peer), Tag { operation, round }, WHAT)?;
        segments.extend(next.segments);
        missing = missing.or_else(|| next.missing.map(|why| (segments.len() + 1, why)));
    }
    if let Some((number, why)) = missing {
        let error = Box::new(why);
        return Err(BindError::MissingMemory { peer, what: "offer", number, announced, error }.into());
    }
    if segments.len() != announced {
        return Err(malformed(WireError::Content("it brings another number of memories than it announces")));
    }
    let mut handles = Vec::new();
    let mut offer = read(&mut reader, &segments, &mut handles).map_err(malformed)?;
    if !of_devices && !handles.is_empty() {
        return Err(malformed(WireError::Content("it has memory of a device for a field on the host")));
    }
    for Mapped { set, place, handle, offset } in handles {
        let (segment, kind) = handle.import(comm, peer).map_err(BindError::from)?;
        if let Some(field) = offer.sets[set].fields.get_mut(&place) {
            (field.memory, field.mapped) = (Ok((segment, offset)), kind);
        }
    }
    Ok(offer)
}

fn malformed(peer: usize, error: WireError) -> Error {
    BindError::Malformed { peer, what: "offer", error }.into()
}

/// The error of an offer with another number of sets than this rank binds.
pub(super) fn of_other_sets(peer: usize) -> Error {
    malformed(peer, WireError::Content("it has another number of sets than this rank binds"))
}

/// A field in memory that is mapped here.
struct Mapped {
    set: usize,
    place: Place,
    handle: ExportHandle,
    /// Offset of element (0, 0, …).
    offset: usize,
}

fn read(
    r: &mut Reader<'_>,
    segments: &[Arc<Segment>],
    handles: &mut Vec<Mapped>,
) -> Result<Offer, WireError> {
    let own = match r.u64()? {
        0 => None,
        _ => Some(Arc::clone(segments.first().ok_or(WireError::Content("it has no segment of its own"))?)),
    };
    let endpoint = LinkEndpoint {
        send_counter: r.size()?,
        receive_counter: r.size()?,
        mailbox: r.size()?,
        capacity: r.size()?,
        ll: r.size()?,
        chunk: r.size()?,
        on_device: r.u64()? != 0,
    };
    let words = Some(read_why(r)?).filter(|why| !why.is_empty());
    let count = r.count(24)?;
    let sets = (0..count).map(|set| read_set(r, segments, set, handles)).collect::<Result<_, _>>()?;
    Ok(Offer { endpoint, own, words, sets })
}

fn write_why(w: &mut Writer, why: &str) {
    w.u32s(&why.chars().map(u32::from).collect::<Vec<_>>());
}

fn read_why(r: &mut Reader<'_>) -> Result<String, WireError> {
    Ok(r.u32s()?.into_iter().filter_map(char::from_u32).collect())
}

fn read_set(
    r: &mut Reader<'_>,
    segments: &[Arc<Segment>],
    set: usize,
    handles: &mut Vec<Mapped>,
) -> Result<Offered, WireError> {
    let (sends, receives) = (r.size()?, r.size()?);
    let mut fields = HashMap::new();
    for _ in 0..r.count(FIELD)? {
        let place = Place { pattern: r.u64()?, number: r.size()?, domain: r.u64()? };
        let cells = read_cells(r)?;
        let memory = match r.u64()? {
            0 => Err(read_why(r)?),
            2 => {
                handles.push(Mapped { set, place, handle: ExportHandle::read(r)?, offset: r.size()? });
                Err(String::new())
            }
            _ => {
                let segment = segments
                    .get(r.size()?)
                    .ok_or(WireError::Content("it names a segment that did not come"))?;
                Ok((Arc::clone(segment), r.size()?))
            }
        };
        fields.insert(place, RemoteField { cells, memory, mapped: None });
    }
    Ok(Offered { sends, receives, fields })
}

fn write_cells(w: &mut Writer, cells: &CellLayout) {
    w.u32(cells.element.code().into());
    w.size(cells.units);
    w.bytes(cells.name.as_deref().unwrap_or_default().as_bytes());
    w.size(cells.axes.len());
    for axis in &cells.axes {
        w.u64(axis.stride as u64);
        w.u64(axis.origin as u64);
        w.size(axis.extent);
    }
    w.size(cells.extra.len());
    for &(extent, stride) in &cells.extra {
        w.size(extent);
        w.u64(stride as u64);
    }
}

fn read_cells(r: &mut Reader<'_>) -> Result<CellLayout, WireError> {
    let code = u16::try_from(r.u32()?).ok();
    let element =
        code.and_then(ElementType::from_code).ok_or(WireError::Content("an element type is unknown"))?;
    let units = r.size()?;
    let name = std::str::from_utf8(r.bytes()?)
        .map_err(|_| WireError::Content("the name of an element type is no text"))?;
    let name = Some(name).filter(|name| !name.is_empty()).map(Arc::from);
    let mut axes = Vec::new();
    for _ in 0..r.count(24)? {
        axes.push(AxisLayout { stride: r.u64()? as isize, origin: r.u64()? as i64, extent: r.size()? });
    }
    let mut extra = Vec::new();
    for _ in 0..r.count(16)? {
        extra.push((r.size()?, r.u64()? as isize));
    }
    let cells = CellLayout { element, units, name, axes, extra };
    // So that later arithmetic on offsets cannot overflow.
    if cells.is_sane() { Ok(cells) } else { Err(WireError::Content("a layout exceeds the address space")) }
}
