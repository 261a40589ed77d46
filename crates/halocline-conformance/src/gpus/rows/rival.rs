//! The same exchange written by hand: one kernel packs, NCCL sends, one kernel unpacks.

use super::nccl::Message;
use crate::device_fixtures::{DeviceFixture, Piece};
use crate::{Outcome, Trouble};
use halocline::device::{Address, CopyTable, Device, Event, Memory, Priority, Stream, TablePart, TableSpec};
use halocline::plan::Transfer;
use halocline::plan::copy::{CellLayout, CopyOp, End, copy_op, copy_op_of_two};

/// Messages begin at multiples of this within their buffers, so that kernels move wide words.
const ALIGNED: usize = 16;

/// Packed messages of a rank for all its peers, and the kernels that pack and unpack them, which are copy tables.
pub(super) struct Packed {
    pack: CopyTable,
    /// Copies within the rank alone, and beside packing in one kernel; none if there are no such.
    local: Option<[CopyTable; 2]>,
    unpack: CopyTable,
    /// For each peer its rank, and where the bytes lie within the buffers: first byte and number.
    peers: Vec<PeerBytes>,
    /// Messages from owned cells straight into the halo, if each is one block at both ends and nothing else is to be copied.
    in_place: Option<Vec<Message>>,
    out: Memory,
    into: Memory,
    /// Bytes that are sent, and those that are copied within the rank, without gaps.
    pub(super) bytes: [usize; 2],
}

/// What goes to one peer, and what comes from it: first byte in the buffer, and number of bytes.
struct PeerBytes {
    peer: usize,
    out: (usize, usize),
    into: (usize, usize),
}

impl Packed {
    /// For all fields of a fixture that has one domain on each rank, of the same layout on all.
    pub(super) fn new(fixture: &DeviceFixture, device: &Device) -> Result<Self, Trouble> {
        let plan = fixture.pattern.plan();
        let fields: Vec<&Piece> = fixture.pieces.iter().flatten().collect();
        let layout = match fields.first() {
            Some(piece) => CellLayout::new(piece.field().layout(), &plan.domains[0].1)?,
            None => return Err(Trouble::new("no fields")),
        };
        // Buffers behind the fields.
        let (out, into) = (fields.len(), fields.len() + 1);
        let (mut pack, mut unpack, mut local) = (Vec::new(), Vec::new(), Vec::new());
        let (mut sent, mut received, mut bytes) = (0usize, 0usize, [0; 2]);
        let mut peers = Vec::new();
        for peer in &plan.peers {
            let mut region = PeerBytes { peer: peer.rank, out: (sent, 0), into: (received, 0) };
            for field in 0..fields.len() {
                for transfer in &peer.sends {
                    let to = (End::Message(out, sent), &layout);
                    let op = copy_op(transfer, (End::Field(field), &layout), to);
                    bytes[0] += op.bytes();
                    sent += op.bytes().next_multiple_of(ALIGNED);
                    pack.push(op);
                }
                for transfer in &peer.receives {
                    let from = (End::Message(into, received), &layout);
                    let op = copy_op(transfer, from, (End::Field(field), &layout));
                    received += op.bytes().next_multiple_of(ALIGNED);
                    unpack.push(op);
                }
            }
            region.out.1 = sent - region.out.0;
            region.into.1 = received - region.into.0;
            peers.push(region);
        }
        for field in 0..fields.len() {
            local.extend(within(&plan.local, (End::Field(field), &layout)));
        }
        bytes[1] = local.iter().map(CopyOp::bytes).sum();
        let buffers = [device.allocate(sent.max(1))?, device.allocate(received.max(1))?];
        let fields = fields.iter().map(|piece| piece.field().base().addr().get() as Address);
        let bases: Vec<Address> = fields.chain(buffers.iter().map(|buffer| buffer.at(0))).collect();
        let upload = |ops: &[CopyOp]| {
            let parts = [TablePart { ops, ..TablePart::default() }];
            device.upload(&TableSpec {
                parts: &parts,
                sources: &bases,
                targets: &bases,
                ..TableSpec::default()
            })
        };
        // A block of a field: its first byte and length.
        let block = |op: &CopyOp, at: usize, offset: isize| {
            (bases[at].wrapping_add_signed(offset as i64), op.bytes())
        };
        let whole = pack.len() == peers.len() && unpack.len() == peers.len() && local.is_empty();
        let in_place = whole && pack.iter().chain(&unpack).all(|op| op.blocks() == 1);
        let in_place = in_place.then(|| {
            let ends = peers.iter().zip(pack.iter().zip(&unpack));
            let message = |(region, (pack, unpack)): (&PeerBytes, (&CopyOp, &CopyOp))| Message {
                peer: region.peer,
                out: block(pack, pack.source, pack.source_offset),
                into: block(unpack, unpack.target, unpack.target_offset),
            };
            ends.map(message).collect()
        });
        let [out, into] = buffers;
        Ok(Self {
            pack: upload(&pack)?,
            local: match local.is_empty() {
                true => None,
                false => Some([upload(&local)?, upload(&[pack, local].concat())?]),
            },
            unpack: upload(&unpack)?,
            peers,
            in_place,
            out,
            into,
            bytes,
        })
    }

    /// Gives streams the exchange, with what sends the messages and puts them into place. With a second stream what is copied
    /// within the rank is copied there meanwhile, else by the kernel that packs.
    pub(super) fn exchange(
        &self,
        stream: &Stream,
        beside: Option<&Beside>,
        send: impl FnOnce(&Stream) -> Outcome,
    ) -> Outcome {
        match (&self.local, beside) {
            (Some([local, _]), Some(beside)) => {
                beside.fork(stream)?;
                launch(&self.pack, stream)?;
                launch(local, &beside.stream)?;
                send(stream)?;
                beside.join(stream)?;
            }
            (Some([_, all]), None) => {
                launch(all, stream)?;
                send(stream)?;
            }
            (None, _) => {
                launch(&self.pack, stream)?;
                send(stream)?;
            }
        }
        launch(&self.unpack, stream)
    }

    /// What goes to the peers and comes from them.
    pub(super) fn messages(&self) -> Vec<Message> {
        let of = |memory: &Memory, (first, bytes): (usize, usize)| (memory.at(first), bytes);
        let message = |region: &PeerBytes| {
            let (out, into) = (of(&self.out, region.out), of(&self.into, region.into));
            Message { peer: region.peer, out, into }
        };
        self.peers.iter().map(message).collect()
    }

    /// The same straight from the fields into the fields, where nothing needs to be packed.
    pub(super) fn in_place(&self) -> Option<&[Message]> {
        self.in_place.as_deref()
    }

    /// Whether anything is copied within the rank.
    pub(super) fn has_local(&self) -> bool {
        self.local.is_some()
    }
}

/// A second stream, for work beside a first one's.
pub(super) struct Beside {
    stream: Stream,
    begun: Event,
    done: Event,
}

impl Beside {
    pub(super) fn new(device: &Device) -> Result<Self, Trouble> {
        let events = device.events();
        Ok(Self { stream: device.stream(Priority::Normal)?, begun: events.take()?, done: events.take()? })
    }

    /// What this stream is given from now on comes after what the other was given before.
    fn fork(&self, from: &Stream) -> Outcome {
        from.record(&self.begun)?;
        Ok(self.stream.wait(&self.begun)?)
    }

    /// What the other stream is given from now on comes after what this one was given before.
    fn join(&self, to: &Stream) -> Outcome {
        self.stream.record(&self.done)?;
        Ok(to.wait(&self.done)?)
    }
}

fn launch(table: &CopyTable, stream: &Stream) -> Outcome {
    // SAFETY: the caller keeps the fields and buffers of the table until the stream is through; packing
    // reads owned cells, unpacking and copying write halo cells, which nothing else uses in the order of the stream.
    Ok(unsafe { stream.launch(table, 1) }?)
}

/// Copies between cells of one field; opposite faces of short blocks, which share cache lines, by one operation.
fn within(transfers: &[Transfer], end: (End, &CellLayout)) -> Vec<CopyOp> {
    let mut rest: Vec<&Transfer> = transfers.iter().rev().collect();
    let mut ops = Vec::new();
    while let Some(first) = rest.pop() {
        let of_two = |second: &&Transfer| copy_op_of_two((first, second), end, end);
        let partner = rest.iter().rposition(|second| of_two(second).is_some());
        let both = partner.and_then(|at| of_two(&rest.remove(at)));
        ops.push(both.unwrap_or_else(|| copy_op(first, end, end)));
    }
    ops
}
