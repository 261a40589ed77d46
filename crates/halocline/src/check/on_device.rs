//! Checks of device fields. Devices copy the cells to areas of pinned memory, where the host compares them.
//!
//! An exchange has three areas for each device. They hold the same cells, at the same offsets, at three times:
//!
//! | area | filled |
//! | --- | --- |
//! | [`Area::Before`] | before this rank grants its halo to the peers |
//! | [`Area::After`] | once all bytes have arrived |
//! | [`Area::Last`] | when the user's stream, or the host, has waited for the exchange. At first it holds the fill pattern, which the device copies to the halo |

#[cfg(test)]
mod tests;

use super::cells::Region;
use super::{Exchanged, Finding, Manifest, compare, exchanged_of, within_of};
use crate::bind::{lane_of, share_runs};
use crate::link::{Direction, Link};
use crate::set::Set;
use halocline_device::{Address, Base, CopyTable, Device, DeviceError, Memory, TablePart, TableSpec};
use halocline_plan::copy::{AxisLayout, CellLayout, CopyOp, End, copy_op};
use halocline_plan::{AxisMap, Cells, Run, Transfer};
use std::ops::Range;

/// The offsets of regions within an area are multiples of this: the most bytes of an element.
const ALIGN: usize = 16;

/// The cells of an exchange at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Area {
    Before,
    After,
    Last,
}

impl Area {
    pub(crate) const COUNT: usize = 3;

    /// Its offset in memory whose areas have `bytes` bytes each.
    pub(crate) fn at(self, bytes: usize) -> usize {
        self as usize * bytes
    }
}

/// What a device copies for the checks of a set. Each launch gives the address of an area.
pub(crate) struct LookTables {
    /// Copies the halo cells from an area: the fill pattern.
    pub(crate) fill: Option<CopyTable>,
    /// Copies all cells to an area.
    pub(crate) look: Option<CopyTable>,
    /// Bytes of an area.
    pub(crate) bytes: usize,
}

/// What an exchange does with cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// Sends them to the peer.
    Sent(usize),
    /// Receives them from the peer.
    Received(usize),
    /// Copies them to cells of this rank.
    Source,
    /// Fills them from cells of this rank.
    Target,
}

impl Role {
    fn is_filled(self) -> bool {
        matches!(self, Self::Received(_) | Self::Target)
    }
}

/// Cells that an exchange sends or fills.
struct Spot<'a> {
    role: Role,
    of: Exchanged<'a>,
    /// The device, by its lane.
    lane: usize,
    /// Where they begin in the areas of that lane.
    offset: usize,
}

impl Spot<'_> {
    fn range(&self) -> Range<usize> {
        self.offset..self.offset + self.of.region.bytes()
    }

    /// The copy from the field to an area, which is buffer 0.
    fn packing(&self) -> CopyOp {
        let Region { cells, layout, .. } = self.of.region;
        let (packed, target) = dense(cells, layout);
        let transfer = Transfer {
            from: 0,
            to: 0,
            source: cells.clone(),
            target,
            map: AxisMap::default(),
            is_negated: false,
        };
        let mut op = copy_op(&transfer, (End::Field(self.of.field), layout), (End::Field(0), &packed));
        op.target_offset += self.offset as isize;
        op
    }
}

/// The layout of these cells one after the other, and their places in it.
fn dense(cells: &Cells, layout: &CellLayout) -> (CellLayout, Cells) {
    let mut stride = layout.element.size() as isize;
    let mut step = |extent: usize| {
        let step = stride;
        stride *= extent as isize;
        step
    };
    let mut extra: Vec<(usize, isize)> =
        layout.extra.iter().rev().map(|&(extent, _)| (extent, step(extent))).collect();
    extra.reverse();
    let (axes, places) = match cells {
        Cells::Box(there) => {
            let axis =
                |(&low, &extent): (&i64, &usize)| AxisLayout { stride: step(extent), origin: -low, extent };
            let mut axes: Vec<AxisLayout> = there.low.iter().zip(&there.extent).rev().map(axis).collect();
            axes.reverse();
            (axes, cells.clone())
        }
        Cells::Runs(_) => {
            let extent = cells.count();
            let run = Run { start: 0, len: extent as u32 };
            (vec![AxisLayout { stride: step(extent), origin: 0, extent }], Cells::Runs([run].into()))
        }
    };
    (CellLayout { axes, extra, ..layout.clone() }, places)
}

/// The cells that an exchange of a set sends or fills, with their places in the areas of each lane.
pub(crate) struct Spots<'a> {
    spots: Vec<Spot<'a>>,
    /// Bytes of an area of each lane.
    bytes: Vec<usize>,
}

impl<'a> Spots<'a> {
    pub(crate) fn new(set: &'a Set, links: &[Link], devices: &[Device]) -> Self {
        let (local, bases) = (&set.local, &set.bases[..]);
        let over_links = links.iter().flat_map(|link| {
            let (peer, direction) = (link.peer, link.direction);
            let role = match direction {
                Direction::Send => Role::Sent(peer),
                Direction::Receive => Role::Received(peer),
            };
            exchanged_of(local, bases, peer, direction).map(move |of| (role, of))
        });
        let within = within_of(local, bases)
            .flat_map(|(source, target)| [(Role::Source, source), (Role::Target, target)]);
        let mut bytes = vec![0; devices.len()];
        let mut spots = Vec::new();
        for (role, of) in over_links.chain(within) {
            let lane = lane_of(set, of.field, devices);
            let Some(end) = bytes.get_mut(lane) else { continue };
            let spot = Spot { role, of, lane, offset: *end };
            *end = spot.range().end.next_multiple_of(ALIGN);
            spots.push(spot);
        }
        bytes.iter_mut().for_each(|bytes| *bytes = bytes.next_multiple_of(Base::LINE as usize));
        Self { spots, bytes }
    }

    /// Bytes of an area of a lane.
    pub(crate) fn bytes(&self, lane: usize) -> usize {
        self.bytes[lane]
    }

    /// The tables of a lane, with its guard. `beside`: other work runs beside them.
    pub(crate) fn upload(
        &self,
        set: &Set,
        (lane, device): (usize, &Device),
        (guard, beside): (Address, bool),
    ) -> Result<LookTables, DeviceError> {
        let fields: Vec<_> = set.bases.iter().map(|base| base.addr() as Address).collect();
        let bytes = self.bytes[lane];
        let bases = [Base { residue: 0, bytes: 0..bytes as i64 }];
        let area = [bases[0].address(0)];
        let ops = |is_chosen: &dyn Fn(&Spot<'_>) -> bool| {
            let chosen = self.spots.iter().filter(|spot| spot.lane == lane && is_chosen(spot));
            let mut ops: Vec<CopyOp> = chosen.map(Spot::packing).filter(|op| op.bytes() > 0).collect();
            share_runs(ops.iter_mut());
            ops
        };
        let table = |ops: Vec<CopyOp>, sources: &[_], targets: &[_]| {
            let parts = [TablePart { ops: &ops, beside, ..TablePart::default() }];
            let spec = TableSpec { parts: &parts, sources, targets, guard: Some(guard), bases: &bases };
            (!ops.is_empty()).then(|| device.upload(&spec)).transpose()
        };
        let fills = ops(&|spot| spot.role.is_filled()).iter().map(CopyOp::reversed).collect();
        Ok(LookTables {
            fill: table(fills, &area, &fields)?,
            look: table(ops(&|_| true), &fields, &area)?,
            bytes,
        })
    }
}

/// The cells of an exchange in its areas.
pub(crate) struct Looked<'a> {
    spots: &'a Spots<'a>,
    /// Of each lane.
    memories: &'a [Memory],
    rank: usize,
    epoch: u64,
}

impl<'a> Looked<'a> {
    /// # Safety
    /// While it is used, no other thread and no device accesses the areas that its methods name. They have the sizes of `spots`.
    pub(crate) unsafe fn new(
        spots: &'a Spots<'a>,
        memories: &'a [Memory],
        (rank, epoch): (usize, u64),
    ) -> Self {
        Self { spots, memories, rank, epoch }
    }

    /// Writes the fill pattern to [`Area::Last`].
    pub(crate) fn fill(&self) {
        for spot in self.spots.spots.iter().filter(|spot| spot.role.is_filled()) {
            let region = self.region(spot, Area::Last, true);
            // SAFETY: the region lies in pinned memory, which nobody else accesses: the caller of `new` promises that.
            unsafe { region.fill(self.epoch) };
        }
    }

    /// What this rank sends to a peer, by [`Area::Before`].
    pub(crate) fn manifest(&self, peer: usize) -> Manifest {
        Manifest { sums: self.of(Role::Sent(peer)).map(|spot| self.sum(spot, Area::Before)).collect() }
    }

    /// Looks for halo cells that are not what a peer has sent, by [`Area::After`].
    pub(crate) fn received(&self, peer: usize, manifest: &Manifest) -> Option<Finding> {
        let received = self.of(Role::Received(peer)).map(|spot| self.seen(spot, Area::After));
        compare(&manifest.sums, peer, self.epoch, received)
    }

    /// Looks for wrong copies within the rank, by [`Area::Before`] and [`Area::After`].
    pub(crate) fn within(&self) -> Option<Finding> {
        let sums: Vec<u64> = self.of(Role::Source).map(|spot| self.sum(spot, Area::Before)).collect();
        compare(&sums, self.rank, self.epoch, self.of(Role::Target).map(|spot| self.seen(spot, Area::After)))
    }

    /// Looks for owned cells that have changed between [`Area::Before`] and another area, on lanes that `is_there` chooses.
    pub(crate) fn owned_written(&self, area: Area, is_there: impl Fn(usize) -> bool) -> Option<Finding> {
        let is_owned = |spot: &&Spot<'_>| !spot.role.is_filled() && is_there(spot.lane);
        let mut owned = self.spots.spots.iter().filter(is_owned);
        let written = owned.find(|spot| self.sum(spot, Area::Before) != self.sum(spot, area))?;
        let peer = if let Role::Sent(peer) = written.role { peer } else { self.rank };
        Some(Finding::owned_written(peer, &written.of))
    }

    /// Looks for halo cells that have changed between [`Area::After`] and [`Area::Last`], on lanes that `is_there` chooses.
    pub(crate) fn halo_written(&self, is_there: impl Fn(usize) -> bool) -> Option<Finding> {
        let is_halo = |spot: &&Spot<'_>| spot.role.is_filled() && is_there(spot.lane);
        let mut halo = self.spots.spots.iter().filter(is_halo);
        let written = halo.find(|spot| self.sum(spot, Area::After) != self.sum(spot, Area::Last))?;
        let peer = if let Role::Received(peer) = written.role { peer } else { self.rank };
        Some(Finding::halo_written(peer, &written.of))
    }

    /// Lets a test damage the first cells that came from the last peer, or from within the rank.
    #[cfg(test)]
    pub(crate) fn sabotage(&self, sabotage: super::Sabotage) {
        let last = self.spots.spots.iter().rfind(|spot| spot.role.is_filled()).map(|spot| spot.role);
        if let Some(spot) = last.and_then(|role| self.of(role).next()) {
            sabotage(&self.region(spot, Area::After, true), self.epoch);
        }
    }

    fn of(&self, role: Role) -> impl Iterator<Item = &Spot<'a>> {
        self.spots.spots.iter().filter(move |spot| spot.role == role)
    }

    fn sum(&self, spot: &Spot<'_>, area: Area) -> u64 {
        // SAFETY: the region lies in pinned memory, which nobody writes: the caller of `new` promises that.
        unsafe { self.region(spot, area, false).checksum() }
    }

    fn seen(&self, spot: &Spot<'a>, area: Area) -> Exchanged<'a> {
        Exchanged { region: self.region(spot, area, false), ..spot.of.clone() }
    }

    /// The cells of a spot in an area.
    fn region<'b>(&self, spot: &Spot<'b>, area: Area, writes: bool) -> Region<'b> {
        let begin = area.at(self.spots.bytes[spot.lane]);
        let Range { start, end } = spot.range();
        let (memory, range) = (&self.memories[spot.lane], begin + start..begin + end);
        let base = match writes {
            // SAFETY: nobody else accesses the bytes: the caller of `new` promises that.
            true => unsafe { memory.bytes_mut(range) }.as_mut_ptr(),
            // SAFETY: nobody writes the bytes: the caller of `new` promises that.
            false => unsafe { memory.bytes(range) }.as_ptr().cast_mut(),
        };
        spot.of.region.packed(base)
    }
}
