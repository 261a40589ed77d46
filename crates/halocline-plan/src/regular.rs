//! Halos of a regular grid, and the pattern that fills them. No communication: what a rank sends
//! and receives follows from the decomposition alone.

use crate::decomposition::{Decomposition, Image, product};
use crate::error::PatternError;
use crate::grid::MAX_CELLS;
use crate::region::{Region, Span};
use crate::{AxisMap, Cells, DomainShape, PatternPlan, Peer, Transfer};
use std::collections::BTreeMap;

/// Maximum number of pieces of one domain's halo. A larger number is a mistake that would exhaust
/// the machine's memory.
pub(crate) const MAX_PIECES: usize = 1 << 20;

/// Width of the halo of each domain, and which of its cells are filled.
///
/// ```
/// use halocline_plan::{Halo, Neighbours, RegularGrid};
///
/// let grid = RegularGrid::new((8, 8)).decompose(4)?;
/// // The five-point stencil reads no corner: no cells come from the diagonal neighbour.
/// let stencil = Halo::uniform(1).neighbours(Neighbours::Faces);
/// assert_eq!(grid.pattern_of(0, &stencil)?.peers.len(), 2);
/// assert_eq!(grid.pattern_of(0, &Halo::uniform(1))?.peers.len(), 3);
///
/// // An upwind scheme reads two cells at the low side of axis 0 only.
/// let upwind = Halo::per_axis([(2, 0), (0, 0)]);
/// assert_eq!(grid.pattern_of(0, &upwind)?.domains[0].1.extents(), [6, 4]);
/// # Ok::<(), halocline_plan::PatternError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Halo {
    widths: Widths,
    neighbours: Neighbours,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Widths {
    Uniform(usize),
    PerAxis(Vec<(usize, usize)>),
}

/// Which halo cells are filled, all in one pass. The others stay unchanged.
///
/// ```
/// use halocline_plan::{Halo, Neighbours, RegularGrid};
///
/// let grid = RegularGrid::new((9, 9, 9)).decompose(27)?;
/// let peers = |neighbours| {
///     let halo = Halo::uniform(1).neighbours(neighbours);
///     // Rank 13 has the block in the middle.
///     grid.pattern_of(13, &halo).map(|pattern| pattern.peers.len())
/// };
/// assert_eq!(peers(Neighbours::Faces)?, 6);
/// assert_eq!(peers(Neighbours::FacesAndEdges)?, 18);
/// assert_eq!(peers(Neighbours::All)?, 26);
/// # Ok::<(), halocline_plan::PatternError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Neighbours {
    /// Cells outside the domain along one axis only.
    Faces,
    /// Cells outside along one or two axes.
    FacesAndEdges,
    /// All halo cells, including corners.
    #[default]
    All,
}

impl Halo {
    /// The same width, in cells, along each axis and at both sides.
    pub fn uniform(width: usize) -> Self {
        Self { widths: Widths::Uniform(width), neighbours: Neighbours::All }
    }

    /// The width at the low and the high side of each axis.
    pub fn per_axis(widths: impl Into<Vec<(usize, usize)>>) -> Self {
        Self { widths: Widths::PerAxis(widths.into()), neighbours: Neighbours::All }
    }

    /// Sets which halo cells are filled; the default is [`Neighbours::All`].
    pub fn neighbours(mut self, neighbours: Neighbours) -> Self {
        self.neighbours = neighbours;
        self
    }

    /// Narrows this halo, along `axes` axes, to `to`. A uniform width applies to the sides that are
    /// wider than it; it is an error if no side is as wide. Widths given for each axis must not
    /// exceed those of this halo on any side. The result fills the smaller set of neighbours of the
    /// two.
    pub fn narrowed(&self, to: &Self, axes: usize) -> Result<Self, PatternError> {
        let mut widths = self.widths(axes)?;
        let wider = |axis, width, widest| PatternError::NarrowedWider { axis, width, widest };
        match &to.widths {
            Widths::Uniform(width) => {
                let widest = widths.iter().map(|&(low, high)| low.max(high)).max().unwrap_or(0);
                if *width > widest {
                    return Err(wider(None, *width, widest));
                }
                widths.iter_mut().for_each(|side| *side = (side.0.min(*width), side.1.min(*width)));
            }
            Widths::PerAxis(_) => {
                for (axis, (own, to)) in widths.iter_mut().zip(to.widths(axes)?).enumerate() {
                    for (width, widest) in [(to.0, own.0), (to.1, own.1)] {
                        if width > widest {
                            return Err(wider(Some(axis), width, widest));
                        }
                    }
                    *own = to;
                }
            }
        }
        Ok(Self { widths: Widths::PerAxis(widths), neighbours: self.neighbours.min(to.neighbours) })
    }

    pub(crate) fn limit(&self) -> Neighbours {
        self.neighbours
    }

    /// The depth of this halo for domains without axes.
    pub(crate) fn depth(&self) -> Result<usize, PatternError> {
        match self {
            Self { widths: Widths::Uniform(depth), neighbours: Neighbours::All } => Ok(*depth),
            _ => Err(PatternError::NarrowedByAxis),
        }
    }

    pub(crate) fn widths(&self, axes: usize) -> Result<Vec<(usize, usize)>, PatternError> {
        match &self.widths {
            Widths::Uniform(width) => Ok(vec![(*width, *width); axes]),
            Widths::PerAxis(widths) if widths.len() == axes => Ok(widths.clone()),
            Widths::PerAxis(widths) => {
                Err(PatternError::AxisCount { what: "halo widths", given: widths.len(), axes })
            }
        }
    }
}

/// The same width along each axis and at both sides.
impl From<usize> for Halo {
    fn from(width: usize) -> Self {
        Self::uniform(width)
    }
}

impl From<&Halo> for Halo {
    fn from(halo: &Halo) -> Self {
        halo.clone()
    }
}

impl Decomposition {
    /// The pattern of `rank`: what it sends and receives to fill the halos of all domains. Not
    /// collective: each rank computes its own part, and two ranks list the transfers between them
    /// in the same order.
    ///
    /// A halo may be wider than the neighbouring domains (it then comes from several) and than a
    /// periodic axis (it then wraps several times). Halo cells beyond a non-periodic border belong
    /// to the domain but are never filled. Takes time and memory proportional to the number of the
    /// rank's domains and their neighbours.
    ///
    /// Errors: a rank that does not exist, a number of widths other than the number of axes, or a
    /// halo that makes a domain larger than 2^60 cells or consists of more than 2^20 pieces.
    pub fn pattern_of(&self, rank: usize, halo: &Halo) -> Result<PatternPlan, PatternError> {
        let widths = halo.widths(self.extents().len())?;
        self.pattern_within(rank, halo, &widths)
    }

    /// As [`Decomposition::pattern_of`], for arrays whose halo has the widths `around`, at least
    /// those of `halo`.
    pub(crate) fn pattern_within(
        &self,
        rank: usize,
        halo: &Halo,
        around: &[(usize, usize)],
    ) -> Result<PatternPlan, PatternError> {
        if rank >= self.ranks() {
            return Err(PatternError::NoSuchRank { rank, ranks: self.ranks() });
        }
        let widths = halo.widths(self.extents().len())?;
        let filler = Filler { decomposition: self, widths: &widths, neighbours: halo.neighbours };
        let mut domains = Vec::new();
        let mut peers: BTreeMap<usize, Peer> = BTreeMap::new();
        let peer = |rank| Peer { rank, ..Peer::default() };
        for domain in self.domains_of(rank) {
            domains.push((domain as u64, self.shape(domain, around)?));
            for transfer in filler.received_by(domain)? {
                let from = self.owner(transfer.from as usize);
                peers.entry(from).or_insert_with(|| peer(from)).receives.push(transfer);
            }
            for transfer in filler.needed_from(domain)? {
                let to = self.owner(transfer.to as usize);
                peers.entry(to).or_insert_with(|| peer(to)).sends.push(transfer);
            }
        }
        for peer in peers.values_mut() {
            peer.sends.sort_by(order);
            peer.receives.sort_by(order);
        }
        // Between domains of this rank, sends and receives are the same transfers.
        let local = peers.remove(&rank).unwrap_or_default().receives;
        Ok(PatternPlan { domains, peers: peers.into_values().collect(), local })
    }

    /// Checks the size of the domain with its halo, and describes it.
    pub(crate) fn shape(
        &self,
        domain: usize,
        widths: &[(usize, usize)],
    ) -> Result<DomainShape, PatternError> {
        let Region(spans) = self.region(domain);
        let owned: Vec<usize> = spans.iter().map(|span| (span.end - span.start) as usize).collect();
        let with_halo =
            |(owned, (low, high)): (&usize, &(usize, usize))| owned.checked_add(*low)?.checked_add(*high);
        let cells = owned.iter().zip(widths).try_fold(1usize, |cells, axis| {
            cells.checked_mul(with_halo(axis)?).filter(|&cells| cells <= MAX_CELLS)
        });
        if cells.is_none() {
            let widths = widths.to_vec();
            return Err(PatternError::HaloTooLarge { domain: domain as u64, owned, widths });
        }
        let first = spans.iter().map(|span| span.start).collect();
        Ok(DomainShape::Regular { first, owned, halo: widths.to_vec() })
    }
}

/// The order in which both ranks list their transfers; it uses only what both know. No two
/// transfers are equal in it, because the targets in one domain are disjoint.
pub(crate) fn order(a: &Transfer, b: &Transfer) -> std::cmp::Ordering {
    fn low(cells: &Cells) -> &[i64] {
        match cells {
            Cells::Box(cells) => &cells.low,
            Cells::Runs(_) => &[],
        }
    }
    (a.to, low(&a.target), a.from).cmp(&(b.to, low(&b.target), b.from))
}

/// Finds the transfers that fill halos of given widths.
struct Filler<'a> {
    decomposition: &'a Decomposition,
    widths: &'a [(usize, usize)],
    neighbours: Neighbours,
}

impl Filler<'_> {
    /// The transfers into the halo of `to`.
    fn received_by(&self, to: usize) -> Result<Vec<Transfer>, PatternError> {
        let region = self.decomposition.region(to);
        let reach = region.0.iter().zip(self.widths);
        let reach =
            reach.map(|(span, &(low, high))| Span::new(span.start - low as i64, span.end + high as i64));
        let mut transfers = Vec::new();
        for image in self.images(to, &Region(reach.collect()))? {
            self.pieces(image.domain, &image.shift, to, &region, &mut transfers);
        }
        Ok(transfers)
    }

    /// The transfers out of the owned cells of `from`.
    fn needed_from(&self, from: usize) -> Result<Vec<Transfer>, PatternError> {
        // Exactly the halos within the widths, seen from the other side, reach this domain.
        let reach = self.decomposition.region(from).0.into_iter().zip(self.widths);
        let reach =
            reach.map(|(span, &(low, high))| Span::new(span.start - high as i64, span.end + low as i64));
        let mut transfers = Vec::new();
        for image in self.images(from, &Region(reach.collect()))? {
            // The shift seen from the other domain is the negated shift.
            let shift: Vec<i64> = image.shift.iter().map(|shift| -shift).collect();
            let to = self.decomposition.region(image.domain);
            self.pieces(from, &shift, image.domain, &to, &mut transfers);
        }
        Ok(transfers)
    }

    fn images(&self, domain: usize, reach: &Region) -> Result<Vec<Image>, PatternError> {
        self.decomposition.images(reach, MAX_PIECES).ok_or_else(|| PatternError::TooManyPieces {
            domain: domain as u64,
            widths: self.widths.to_vec(),
            most: MAX_PIECES,
        })
    }

    /// The transfers from domain `from`, seen under `shift`, to the halo of `to`, whose owned cells
    /// are `owned`.
    fn pieces(&self, from: usize, shift: &[i64], to: usize, owned: &Region, transfers: &mut Vec<Transfer>) {
        let origin = self.decomposition.region(from).shifted(shift);
        for piece in self.filled(owned, &origin) {
            transfers.push(Transfer {
                from: from as u64,
                to: to as u64,
                source: Cells::Box(piece.cells_from(&origin)),
                target: Cells::Box(piece.cells_from(owned)),
                map: AxisMap::IDENTITY,
                is_negated: false,
            });
        }
    }

    /// The part of the halo around `owned` that `image` fills, in the fewest boxes.
    fn filled(&self, owned: &Region, image: &Region) -> Vec<Region> {
        let outside_at_most = match self.neighbours {
            Neighbours::Faces => 1,
            Neighbours::FacesAndEdges => 2,
            Neighbours::All => owned.0.len(),
        };
        // Along each axis: the spans below, inside and above the owned cells.
        let axes = owned.0.iter().zip(&image.0).zip(self.widths).map(|((owned, image), &(low, high))| {
            let parts = [
                (Span::new(owned.start - low as i64, owned.start), true),
                (*owned, false),
                (Span::new(owned.end, owned.end + high as i64), true),
            ];
            let met = parts.map(|(span, outside)| (span.intersection(*image), outside));
            met.into_iter().filter(|(span, _)| !span.is_empty()).collect()
        });
        let axes: Vec<Vec<(Span, bool)>> = axes.collect();
        let pieces = product(&axes, usize::MAX).unwrap_or_default();
        let filled = pieces.into_iter().filter(|piece| {
            (1..=outside_at_most).contains(&piece.iter().filter(|(_, outside)| *outside).count())
        });
        merged(filled.map(|piece| Region(piece.into_iter().map(|(span, _)| span).collect())).collect())
    }
}

/// Joins adjacent boxes, the last axis first. In a list of boxes one neighbour may cover a face and
/// an adjacent edge; in a Cartesian decomposition it cannot.
pub(crate) fn merged(mut pieces: Vec<Region>) -> Vec<Region> {
    if pieces.len() < 2 {
        return pieces;
    }
    for axis in (0..pieces[0].0.len()).rev() {
        let others = |region: &Region| [&region.0[..axis], &region.0[axis + 1..]].concat();
        pieces.sort_by_cached_key(|region| (others(region), region.0[axis]));
        pieces.dedup_by(|next, last| {
            let joins = last.0[axis].end == next.0[axis].start && others(last) == others(next);
            if joins {
                last.0[axis].end = next.0[axis].end;
            }
            joins
        });
    }
    pieces
}
