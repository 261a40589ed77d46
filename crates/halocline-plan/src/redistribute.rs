//! Redistribution from one decomposition or partition of the cells to another, as a pattern. Its
//! transfers go from the owned cells of the first side's domains to the owned cells of the second
//! side's; halo cells take no part.
//!
//! Each side numbers its domains independently. In the pattern, domain d of the first side has the
//! number 2 d and domain d of the second side 2 d + 1 ([`Side::number`]).

use crate::directory::Directory;
use crate::regular::{MAX_PIECES, order};
use crate::unstructured::CheckedDomain;
use crate::{
    AxisMap, Cells, Decomposition, Halo, PatternError, PatternPlan, Peer, Transfer, UnstructuredDomain,
    UnstructuredError,
};
use std::collections::BTreeMap;
use std::fmt;

/// One of the two distributions of the cells.
///
/// ```
/// use halocline_plan::Side;
///
/// // Domain 3 of the destination in the pattern of a redistribution.
/// let number = Side::Second.number(3)?;
/// assert_eq!(number, 7);
/// assert_eq!(Side::of(number), (Side::Second, 3));
/// # Ok::<(), halocline_plan::RedistributeError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// The source of the redistribution.
    First,
    /// The destination of the redistribution.
    Second,
}

impl Side {
    /// The other one.
    pub fn other(self) -> Self {
        match self {
            Self::First => Self::Second,
            Self::Second => Self::First,
        }
    }

    /// The number of this side's domain `id` in the pattern.
    ///
    /// Errors: an id of 2^63 or more.
    pub fn number(self, id: u64) -> Result<u64, RedistributeError> {
        let number = id.checked_mul(2).ok_or(RedistributeError::DomainNumber { domain: id })?;
        Ok(number + u64::from(self == Self::Second))
    }

    /// The side, and the domain's number on that side, for domain `number` of the pattern.
    pub fn of(number: u64) -> (Self, u64) {
        (if number.is_multiple_of(2) { Self::First } else { Self::Second }, number / 2)
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::First => "first",
            Self::Second => "second",
        })
    }
}

impl Decomposition {
    /// The pattern of `rank` that moves all cells from this decomposition to `to`. The arrays have
    /// the given halos, which stay unchanged. Not collective, like [`Decomposition::pattern_of`].
    ///
    /// Errors: another grid, another number of ranks, a rank that does not exist, or an invalid
    /// halo.
    pub fn redistribution_of(
        &self,
        rank: usize,
        halo: &Halo,
        to: &Self,
        to_halo: &Halo,
    ) -> Result<PatternPlan, PatternError> {
        if self.extents() != to.extents() {
            let (from, to) = (self.extents().to_vec(), to.extents().to_vec());
            return Err(RedistributeError::Grids { from, to }.into());
        }
        if self.ranks() != to.ranks() {
            return Err(RedistributeError::Ranks { from: self.ranks(), to: to.ranks() }.into());
        }
        if rank >= self.ranks() {
            return Err(PatternError::NoSuchRank { rank, ranks: self.ranks() });
        }
        let mut domains = Vec::new();
        let mut peers: BTreeMap<usize, Peer> = BTreeMap::new();
        let peer = |rank| Peer { rank, ..Peer::default() };
        let (widths, to_widths) = (halo.widths(self.extents().len())?, to_halo.widths(to.extents().len())?);
        for domain in self.domains_of(rank) {
            domains.push((Side::First.number(domain as u64)?, self.shape(domain, &widths)?));
            for other in self.meeting(domain, to)? {
                let sends = &mut peers.entry(to.owner(other)).or_insert_with(|| peer(to.owner(other))).sends;
                sends.push(self.common(domain, to, other)?);
            }
        }
        for domain in to.domains_of(rank) {
            domains.push((Side::Second.number(domain as u64)?, to.shape(domain, &to_widths)?));
            for other in to.meeting(domain, self)? {
                let from = self.owner(other);
                let transfer = self.common(other, to, domain)?;
                peers.entry(from).or_insert_with(|| peer(from)).receives.push(transfer);
            }
        }
        domains.sort_by_key(|(number, _)| *number);
        for peer in peers.values_mut() {
            peer.sends.sort_by(order);
            peer.receives.sort_by(order);
        }
        let local = peers.remove(&rank).unwrap_or_default().receives;
        Ok(PatternPlan { domains, peers: peers.into_values().collect(), local })
    }

    /// The domains of `other`, a decomposition of the same grid, that share cells with `domain`.
    fn meeting(&self, domain: usize, other: &Self) -> Result<Vec<usize>, PatternError> {
        // Nothing repeats inside the grid.
        let images = other.images(&self.region(domain), MAX_PIECES);
        let too_many = RedistributeError::TooManyPieces { domain: domain as u64, most: MAX_PIECES };
        Ok(images.ok_or(too_many)?.into_iter().map(|image| image.domain).collect())
    }

    /// The cells that `domain` here and domain `other` of `to` share. There is at least one.
    fn common(&self, domain: usize, to: &Self, other: usize) -> Result<Transfer, PatternError> {
        let (from_region, to_region) = (self.region(domain), to.region(other));
        let common = from_region.intersection(&to_region);
        Ok(Transfer {
            from: Side::First.number(domain as u64)?,
            to: Side::Second.number(other as u64)?,
            source: Cells::Box(common.cells_from(&from_region)),
            target: Cells::Box(common.cells_from(&to_region)),
            map: AxisMap::IDENTITY,
            is_negated: false,
        })
    }
}

impl PatternPlan {
    /// The reverse pattern: sends become receives. For patterns of a redistribution, whose domains
    /// either send or receive.
    pub fn reversed(&self) -> Self {
        let back = |transfer: &Transfer| Transfer {
            from: transfer.to,
            to: transfer.from,
            source: transfer.target.clone(),
            target: transfer.source.clone(),
            // Both sides are boxes of one grid, or lists of cells: their axes are the same.
            map: transfer.map,
            is_negated: transfer.is_negated,
        };
        let all = |transfers: &[Transfer]| transfers.iter().map(back).collect();
        let peer =
            |peer: &Peer| Peer { rank: peer.rank, sends: all(&peer.receives), receives: all(&peer.sends) };
        Self {
            domains: self.domains.clone(),
            peers: self.peers.iter().map(peer).collect(),
            local: all(&self.local),
        }
    }
}

/// The domains of this rank on both sides, checked individually. Start of the two directories that
/// find the senders and receivers in each direction.
///
/// The reverse direction also serves as a check: the forward directory finds cells of the second
/// side that no rank sends, and the reverse one finds cells of the first side that no rank takes.
#[derive(Debug)]
pub struct Redistribution {
    rank: usize,
    ranks: usize,
    sides: [Vec<CheckedDomain>; 2],
}

impl Redistribution {
    /// The redistribution on `rank` of `ranks`, from the owned cells of `from` to those of `to`.
    pub fn new(
        rank: usize,
        ranks: usize,
        from: &[UnstructuredDomain],
        to: &[UnstructuredDomain],
    ) -> Result<Self, PatternError> {
        let mut sides = [Vec::new(), Vec::new()];
        for (checked, (side, domains)) in sides.iter_mut().zip([(Side::First, from), (Side::Second, to)]) {
            for domain in domains {
                let wrong = |error| RedistributeError::Domain { side, error: Box::new(error) };
                let domain = domain.check(rank, ranks).map_err(wrong)?;
                checked.push(CheckedDomain { id: side.number(domain.id)?, ..domain });
            }
        }
        Ok(Self { rank, ranks, sides })
    }

    /// The directory that finds the transfers from side `from` to the other side; its pattern is
    /// that of the redistribution.
    pub fn directory(&self, from: Side) -> Result<Directory, PatternError> {
        let [first, second] = &self.sides;
        let owners = |domain: &CheckedDomain| CheckedDomain {
            id: domain.id,
            cells: domain.cells,
            owned: domain.owned.clone(),
            halo: Vec::new(),
            given: None,
            levels: Vec::new(),
        };
        // Receivers look up their cells as halo cells.
        let takers = |domain: &CheckedDomain| {
            let mut halo: Vec<(u32, u64)> = domain.owned.iter().map(|&(id, local)| (local, id)).collect();
            halo.sort_unstable();
            CheckedDomain { halo, owned: Vec::new(), ..owners(domain) }
        };
        let domains = match from {
            Side::First => first.iter().map(owners).chain(second.iter().map(takers)).collect(),
            Side::Second => first.iter().map(takers).chain(second.iter().map(owners)).collect(),
        };
        Directory::of(self.rank, self.ranks, domains).map_err(|error| self.named(from, error))
    }

    /// Rewrites a directory error in terms of the redistribution from side `from`.
    pub fn named(&self, from: Side, error: UnstructuredError) -> PatternError {
        let rank = self.rank;
        match error {
            UnstructuredError::DomainTwice { domain, rank, other } => {
                let (side, domain) = Side::of(domain);
                RedistributeError::DomainTwice { side, domain, rank, other }.into()
            }
            UnstructuredError::OwnedByTwo { id, rank, domain, other, other_domain } => {
                let (domain, other_domain) = (domain / 2, other_domain / 2);
                RedistributeError::Doubled { side: from, id, rank, domain, other, other_domain }.into()
            }
            UnstructuredError::OwnedByNobody { domain, id, .. } => {
                let (side, domain) = Side::of(domain);
                RedistributeError::OnOneSide { id, rank, domain, side, other: side.other() }.into()
            }
            error => error.into(),
        }
    }
}

/// Two distributions that do not have the same cells.
///
/// ```
/// use halocline_plan::{Halo, PatternError, RedistributeError, RegularGrid};
///
/// let from = RegularGrid::new([8, 8]).decompose(2)?;
/// let to = RegularGrid::new([8, 8]).decompose(4)?;
/// let halo = Halo::uniform(1);
/// let error = from.redistribution_of(0, &halo, &to, &halo).expect_err("2 and 4 ranks");
/// assert_eq!(error, PatternError::Redistribute(RedistributeError::Ranks { from: 2, to: 4 }));
/// # Ok::<(), PatternError>(())
/// ```
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RedistributeError {
    /// Two different grids.
    #[error(
        "a grid of {from:?} cells cannot be redistributed to one of {to:?}; give two decompositions of one grid"
    )]
    Grids {
        /// Cells along each axis of the source.
        from: Vec<usize>,
        /// Cells along each axis of the destination.
        to: Vec<usize>,
    },
    /// Two different numbers of ranks.
    #[error(
        "a decomposition for {from} ranks and one for {to} ranks; give both the same number (ranks may own no box)"
    )]
    Ranks {
        /// Ranks of the source.
        from: usize,
        /// Ranks of the destination.
        to: usize,
    },
    /// A domain that consists of too many pieces.
    #[error(
        "domain {domain} shares cells with more than {most} domains of the other decomposition; use larger domains"
    )]
    TooManyPieces {
        /// The domain.
        domain: u64,
        /// Maximum number of domains that it may share cells with.
        most: usize,
    },
    /// A domain number too large to encode the side.
    #[error("domain {domain}: numbers of redistributed domains must be below 2^63; give it a smaller number")]
    DomainNumber {
        /// The number.
        domain: u64,
    },
    /// An invalid domain.
    #[error("on the {side} side: {error}")]
    Domain {
        /// The side that has it.
        side: Side,
        /// The error of the domain.
        error: Box<UnstructuredError>,
    },
    /// Two domains of one side with one number.
    #[error(
        "domain {domain} of the {side} side exists on rank {rank} and on rank {other}; numbers of domains are global"
    )]
    DomainTwice {
        /// The side.
        side: Side,
        /// The number.
        domain: u64,
        /// One rank.
        rank: usize,
        /// The other rank; the same one if it passed both.
        other: usize,
    },
    /// A cell that two domains of one side own.
    #[error(
        "cell {id} is there twice on the {side} side: in domain {domain} of rank {rank} and in domain \
         {other_domain} of rank {other}; each cell has one owner on each side"
    )]
    Doubled {
        /// The side.
        side: Side,
        /// The cell's global id.
        id: u64,
        /// One rank.
        rank: usize,
        /// Its domain.
        domain: u64,
        /// The other rank; the same one if two of its domains own the cell.
        other: usize,
        /// The other domain.
        other_domain: u64,
    },
    /// A cell that only one side has.
    #[error(
        "cell {id} of domain {domain} of rank {rank} on the {side} side is in no domain of any rank on the {other} \
         side; both sides must have the same cells"
    )]
    OnOneSide {
        /// The cell's global id.
        id: u64,
        /// The rank that has it.
        rank: usize,
        /// Its domain.
        domain: u64,
        /// The side that has it.
        side: Side,
        /// The side that lacks it.
        other: Side,
    },
}

crate::debug_as_text!(RedistributeError);
