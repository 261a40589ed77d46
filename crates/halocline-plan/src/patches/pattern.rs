//! The pattern that fills the halos of a grid of patches. No communication: what a rank sends and receives follows
//! from the decomposition alone.

use super::resolve::{Limit, MOST_PLACES, MOST_SEAMS, Rectangle, Resolver, Source};
use super::seam::View;
use super::{PatchDecomposition, PatchError, PatchSide, Quantity};
use crate::error::PatternError;
use crate::grid::MAX_CELLS;
use crate::region::{Region, Span};
use crate::regular::{Halo, MAX_PIECES, Neighbours, merged, order};
use crate::{Cells, DomainShape, PatternPlan, Peer, Transfer};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// Most views of patches within the reach of a halo. There are more only where the halo is many patches wide.
const MOST_VIEWS: usize = 1 << 16;

impl PatchDecomposition {
    /// The pattern of `rank`: what it sends and receives to fill the halos of all domains. Not collective: each rank
    /// computes its own part, and two ranks list the transfers between them in the same order.
    ///
    /// A domain holds the values of its cells, and those of the last faces of its patch. Values that several patches
    /// hold (on the side that they share, or in the row that a fold folds onto itself) have one owner: the patch with
    /// the lowest number, and in it the lowest index. The others are copies, which an exchange fills like halo cells. So are
    /// values behind the line of a fold.
    ///
    /// Errors: a rank that does not exist, a quantity that the seams do not continue or whose values on a seam no patch holds,
    /// a number of widths other than 2, a halo that reaches through a patch, or more seams or places of one value than are
    /// looked for.
    pub fn pattern_of(
        &self,
        rank: usize,
        quantity: &Quantity,
        halo: &Halo,
    ) -> Result<PatternPlan, PatternError> {
        self.narrowed_pattern_of(rank, quantity, halo, halo)
    }

    /// The pattern of `rank` that fills the narrower halo `to` ([`Halo::narrowed`]) within `halo`. The shapes of the
    /// domains remain those of the wide halo, so the same arrays fit.
    pub fn narrowed_pattern_of(
        &self,
        rank: usize,
        quantity: &Quantity,
        halo: &Halo,
        to: &Halo,
    ) -> Result<PatternPlan, PatternError> {
        if rank >= self.ranks() {
            return Err(PatternError::NoSuchRank { rank, ranks: self.ranks() });
        }
        self.grid.check_quantity(quantity)?;
        let halo_to = halo.narrowed(to, 2)?;
        let around = of_axes(halo)?;
        self.grid.check_widths(quantity, &around)?;
        let filler = Filler { cut: self, quantity, widths: of_axes(&halo_to)?, neighbours: halo_to.limit() };
        let mut domains = Vec::new();
        let mut peers: BTreeMap<usize, Peer> = BTreeMap::new();
        let peer = |rank| Peer { rank, ..Peer::default() };
        for domain in self.domains_of(rank) {
            for component in 0..quantity.components() {
                domains.push(self.shape(domain, component, quantity, &around)?);
                for transfer in filler.received_by(domain, component)? {
                    let from = self.owner(filler.domain(transfer.from));
                    peers.entry(from).or_insert_with(|| peer(from)).receives.push(transfer);
                }
            }
            for transfer in filler.sent_by(domain)? {
                let to = self.owner(filler.domain(transfer.to));
                peers.entry(to).or_insert_with(|| peer(to)).sends.push(transfer);
            }
        }
        for peer in peers.values_mut() {
            peer.sends.sort_by(order);
            peer.receives.sort_by(order);
        }
        let local = peers.remove(&rank).unwrap_or_default().receives;
        Ok(PatternPlan { domains, peers: peers.into_values().collect(), local })
    }

    fn shape(
        &self,
        domain: u64,
        component: usize,
        quantity: &Quantity,
        around: &[(usize, usize); 2],
    ) -> Result<(u64, DomainShape), PatternError> {
        let Some((patch, at)) = self.position(domain) else { unreachable!("a domain of a rank") };
        let held = self.held(quantity, component, patch, at);
        let owned = held.map(|span| (span.end - span.start) as usize).to_vec();
        let with_halo = |axis: usize| owned[axis].checked_add(around[axis].0)?.checked_add(around[axis].1);
        let cells = with_halo(0).and_then(|rows| rows.checked_mul(with_halo(1)?));
        if cells.is_none_or(|cells| cells > MAX_CELLS) {
            return Err(PatternError::HaloTooLarge { domain, owned, widths: around.to_vec() });
        }
        let first = held.map(|span| span.start).to_vec();
        let number = quantity.components() as u64 * domain + component as u64;
        Ok((number, DomainShape::Regular { first, owned, halo: around.to_vec() }))
    }
}

fn of_axes(halo: &Halo) -> Result<[(usize, usize); 2], PatternError> {
    let widths = halo.widths(2)?;
    Ok([widths[0], widths[1]])
}

/// Finds the transfers that fill halos of given widths.
struct Filler<'a> {
    cut: &'a PatchDecomposition,
    quantity: &'a Quantity,
    widths: [(usize, usize); 2],
    neighbours: Neighbours,
}

/// Where values of a domain come from: transfers alike in all but their cells.
type Kind = (u64, View, usize);

impl Filler<'_> {
    /// The domain of a number in the plan.
    fn domain(&self, number: u64) -> u64 {
        number / self.quantity.components() as u64
    }

    fn number(&self, domain: u64, component: usize) -> u64 {
        domain * self.quantity.components() as u64 + component as u64
    }

    /// The transfers into the halo, and into the copies, of a component of `to`.
    fn received_by(&self, to: u64, component: usize) -> Result<Vec<Transfer>, PatternError> {
        let Some((patch, at)) = self.cut.position(to) else { return Ok(Vec::new()) };
        let held = self.cut.held(self.quantity, component, patch, at);
        let resolver = self.resolver(self.quantity, patch, component);
        let mut parts: BTreeMap<Key, (Kind, Vec<Region>)> = BTreeMap::new();
        let mut pieces = 0;
        for part in self.parts(&held) {
            let sources = resolver.sources(part).map_err(|limit| self.over_limit(limit, to, patch))?;
            for source in sources {
                for (from, target) in self.by_block(&resolver, &source)? {
                    let is_own =
                        from == to && source.view == View::of(patch) && source.component == component;
                    if is_own {
                        continue;
                    }
                    pieces += 1;
                    if pieces > MAX_PIECES {
                        return Err(self.too_many(to));
                    }
                    let kind = (from, source.view, source.component);
                    let regions = parts.entry(key(&kind)).or_insert_with(|| (kind, Vec::new()));
                    regions.1.push(Region(target.to_vec()));
                }
            }
        }
        let mut transfers = Vec::new();
        for ((from, view, source_component), regions) in parts.into_values() {
            for target in merged(regions) {
                let target: Rectangle = [target.0[0], target.0[1]];
                let image = resolver.image(&target, &view);
                let Some((source_patch, source_at)) = self.cut.position(from) else { continue };
                let origin = self.cut.held(self.quantity, source_component, source_patch, source_at);
                let cells = |rectangle: Rectangle, origin: &Rectangle| {
                    Cells::Box(Region(rectangle.to_vec()).cells_from(&Region(origin.to_vec())))
                };
                transfers.push(Transfer {
                    from: self.number(from, source_component),
                    to: self.number(to, component),
                    source: cells(image, &origin),
                    target: cells(target, &held),
                    map: view.map,
                    is_negated: resolver.is_negated(&view),
                });
            }
        }
        Ok(transfers)
    }

    /// The transfers out of the values of a domain, all components.
    fn sent_by(&self, from: u64) -> Result<Vec<Transfer>, PatternError> {
        let mut sent = Vec::new();
        for to in self.near(from)? {
            for component in 0..self.quantity.components() {
                let received = self.received_by(to, component)?;
                sent.extend(received.into_iter().filter(|transfer| self.domain(transfer.from) == from));
            }
        }
        Ok(sent)
    }

    /// All domains whose halo may reach a domain, and some more.
    fn near(&self, domain: u64) -> Result<BTreeSet<u64>, PatternError> {
        let Some(block) = self.cut.block(domain) else { return Ok(BTreeSet::new()) };
        let cells = Quantity::cells();
        let widths = self.reach();
        let reach = [0, 1].map(|axis| {
            let first = block.first[axis] as i64;
            Span::new(first - widths[axis], first + block.extents[axis] as i64 + widths[axis])
        });
        let resolver = self.resolver(&cells, block.patch, 0);
        let mut views = vec![View::of(block.patch)];
        let mut known = HashSet::from([View::of(block.patch)]);
        let mut found = BTreeSet::new();
        let (mut next, mut pieces) = (0, 0);
        while let Some(&view) = views.get(next) {
            next += 1;
            if views.len() > MOST_VIEWS {
                return Err(self.too_many_seams(block.patch, MOST_VIEWS));
            }
            let image = resolver.image(&reach, &view);
            let extents = self.cut.grid.patches[view.patch];
            let touches = |axis: usize| image[axis].start <= extents[axis] as i64 && image[axis].end >= 0;
            if let Some(axis) = (0..2).find(|&axis| !touches(axis)) {
                // Half a turn from a block may lie beyond the patch: the cells go on behind that side alone.
                let side = PatchSide { patch: view.patch, axis, is_high: image[axis].end >= 0 };
                let there = self.cut.grid.crossing(side).map(|crossing| view.then(&crossing.view));
                views.extend(there.filter(|there| known.insert(*there)));
                continue;
            }
            let inside = [0, 1].map(|axis| image[axis].intersection(Span::new(0, extents[axis] as i64)));
            let blocks = self.blocks(&cells, 0, view.patch, &inside).ok_or_else(|| self.too_many(domain))?;
            pieces += blocks.len();
            if pieces > MAX_PIECES {
                return Err(self.too_many(domain));
            }
            found.extend(blocks.into_iter().map(|(at, _)| self.cut.number(view.patch, at)));
            views.extend(self.views_beyond(&view, &image).into_iter().filter(|there| known.insert(*there)));
        }
        Ok(found)
    }

    /// The patches behind the sides that a rectangle of a patch reaches.
    fn views_beyond(&self, view: &View, image: &Rectangle) -> Vec<View> {
        let mut beyond = Vec::with_capacity(4);
        for (axis, image) in image.iter().enumerate() {
            for is_high in [false, true] {
                let side = PatchSide { patch: view.patch, axis, is_high };
                let Some(crossing) = self.cut.grid.crossing(side) else { continue };
                let is_reached = match is_high {
                    true => 2 * image.end >= crossing.line,
                    false => 2 * image.start <= crossing.line,
                };
                if is_reached {
                    beyond.push(view.then(&crossing.view));
                }
            }
        }
        beyond
    }

    /// How far halos reach along each axis. Behind an open side nothing is filled, and behind a seam at most a patch.
    fn reach(&self) -> [i64; 2] {
        let grid = &self.cut.grid;
        let longest = grid.patches.iter().flatten().max().copied().unwrap_or(0);
        let [rows, columns] = self.widths.map(|(low, high)| low.max(high).min(longest));
        // Across a seam that swaps axes, a width counts along the other one.
        let swaps = grid
            .joined_sides()
            .any(|side| grid.crossing(side).is_some_and(|crossing| crossing.view.map.swapped));
        let widths = if swaps { [rows.max(columns); 2] } else { [rows, columns] };
        // One cell more for shared lines.
        widths.map(|width| width as i64 + 1)
    }

    /// The values held, and the rectangles around them that are filled.
    fn parts(&self, held: &Rectangle) -> Vec<Rectangle> {
        let outside_at_most = match self.neighbours {
            Neighbours::Faces => 1,
            Neighbours::FacesAndEdges | Neighbours::All => 2,
        };
        let axes = [0, 1].map(|axis| {
            let (low, high) = self.widths[axis];
            let Span { start, end } = held[axis];
            [
                (Span::new(start - low as i64, start), 1),
                (held[axis], 0),
                (Span::new(end, end + high as i64), 1),
            ]
        });
        let mut parts = Vec::with_capacity(9);
        for (rows, outside) in axes[0] {
            for (columns, more) in axes[1] {
                if !rows.is_empty() && !columns.is_empty() && outside + more <= outside_at_most {
                    parts.push([rows, columns]);
                }
            }
        }
        parts
    }

    /// The parts of a source by the domain that holds them.
    fn by_block(
        &self,
        resolver: &Resolver<'_>,
        source: &Source,
    ) -> Result<Vec<(u64, Rectangle)>, PatternError> {
        let Source { view, component, target } = source;
        let image = resolver.image(target, view);
        let blocks = self.blocks(self.quantity, *component, view.patch, &image);
        let blocks = blocks.ok_or_else(|| self.too_many(0))?;
        let back = |held: Rectangle| {
            let mut part = *target;
            for axis in 0..2 {
                let along = view.map.source_axis(axis);
                let met = held[along].intersection(image[along]);
                let (before, after) = (met.start - image[along].start, image[along].end - met.end);
                let (low, high) = if view.map.flipped[axis] { (after, before) } else { (before, after) };
                part[axis] = Span::new(target[axis].start + low, target[axis].end - high);
            }
            part
        };
        Ok(blocks.into_iter().map(|(at, held)| (self.cut.number(view.patch, at), back(held))).collect())
    }

    /// The blocks of a patch that hold values of a rectangle, with all that they hold.
    fn blocks(
        &self,
        quantity: &Quantity,
        component: usize,
        patch: usize,
        rectangle: &Rectangle,
    ) -> Option<Vec<([usize; 2], Rectangle)>> {
        if rectangle.iter().any(|span| span.is_empty()) {
            return Some(Vec::new());
        }
        let cuts = self.cut.cuts_of(quantity, component, patch);
        let along = |axis: usize| cuts[axis].images(rectangle[axis], MAX_PIECES);
        let (rows, columns) = (along(0)?, along(1)?);
        let mut blocks =
            Vec::with_capacity(rows.len().checked_mul(columns.len()).filter(|all| *all <= MAX_PIECES)?);
        for &(row, _) in &rows {
            for &(column, _) in &columns {
                blocks.push(([row, column], [cuts[0].span(row), cuts[1].span(column)]));
            }
        }
        Some(blocks)
    }

    fn resolver<'b>(&'b self, quantity: &'b Quantity, patch: usize, component: usize) -> Resolver<'b> {
        let grid = &self.cut.grid;
        Resolver { grid, quantity, patch, component, corners: grid.corners }
    }

    fn over_limit(&self, limit: Limit, domain: u64, patch: usize) -> PatternError {
        match limit {
            Limit::Seams => self.too_many_seams(patch, MOST_SEAMS),
            Limit::Places => PatchError::TooManyPlaces { patch, most: MOST_PLACES }.into(),
            Limit::Pieces => self.too_many(domain),
        }
    }

    fn too_many_seams(&self, patch: usize, most: usize) -> PatternError {
        PatchError::TooManySeams { patch, widths: self.widths.to_vec(), most }.into()
    }

    fn too_many(&self, domain: u64) -> PatternError {
        PatternError::TooManyPieces { domain, widths: self.widths.to_vec(), most: MAX_PIECES }
    }
}

/// Orders kinds of transfers.
type Key = (u64, usize, crate::AxisMap, [i64; 2], [bool; 2]);

fn key((from, view, component): &Kind) -> Key {
    (*from, *component, view.map, view.offset, view.is_negated)
}
