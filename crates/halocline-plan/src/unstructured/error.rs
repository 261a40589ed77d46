//! Errors of unstructured domains.

use crate::wire::WireError;

/// Invalid domains, on one rank or between ranks.
///
/// ```
/// use halocline_plan::directory::Directory;
/// use halocline_plan::{UnstructuredDomain, UnstructuredError};
///
/// // Domain 0 of the only rank lists cell 20 of its halo twice: as local cells 2 and 3.
/// let domain = UnstructuredDomain::new(0, vec![10, 11], vec![20, 20]);
/// let error = Directory::new(0, 1, &[domain]).expect_err("cell 20 twice");
/// assert_eq!(error, UnstructuredError::HaloTwice { domain: 0, id: 20, first: 2, second: 3 });
/// ```
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UnstructuredError {
    /// More cells than 32-bit local indices count.
    #[error("domain {domain} has {cells} cells; a domain has at most {max}: split it", max = u32::MAX)]
    TooManyCells {
        /// The domain.
        domain: u64,
        /// Its cells.
        cells: usize,
    },
    /// A halo index beyond the number of cells.
    #[error(
        "domain {domain}: entry {position} of the halo indices is {index}, but it has {cells} cells; give local \
         indices of its cells"
    )]
    HaloIndex {
        /// The domain.
        domain: u64,
        /// Position in the list of halo indices.
        position: usize,
        /// The index there.
        index: usize,
        /// Cells of the domain.
        cells: usize,
    },
    /// A halo index given twice.
    #[error(
        "domain {domain}: entries {first} and {position} of the halo indices are both {index}; list each halo cell \
         once"
    )]
    HaloIndexTwice {
        /// The domain.
        domain: u64,
        /// The index.
        index: usize,
        /// Its first position in the list of halo indices.
        first: usize,
        /// Its second position.
        position: usize,
    },
    /// Invalid ends of levels.
    #[error(
        "domain {domain} has {cells} cells, its levels end at {ends:?}; the ends must ascend to the number of cells"
    )]
    Levels {
        /// The domain.
        domain: u64,
        /// The ends given.
        ends: Vec<usize>,
        /// Cells of the domain.
        cells: usize,
    },
    /// Cells and owners differ in number.
    #[error("domain {domain} has {cells} cells but {owners} owners; give one owner for each cell")]
    OwnerCount {
        /// The domain.
        domain: u64,
        /// Its cells.
        cells: usize,
        /// Owners given.
        owners: usize,
    },
    /// An owner that is not a rank.
    #[error(
        "domain {domain}, local cell {local} (id {id}): its owner is given as rank {owner} of {ranks}; give a rank \
         below {ranks}"
    )]
    OwnerRange {
        /// The domain.
        domain: u64,
        /// Local index of the cell.
        local: usize,
        /// Its global id.
        id: u64,
        /// The owner given.
        owner: usize,
        /// Number of ranks.
        ranks: usize,
    },
    /// A domain passed by another rank than it was made for.
    #[error("domain {domain} was made for rank {given}, but rank {rank} passes it; pass it on rank {given}")]
    OtherRank {
        /// The domain.
        domain: u64,
        /// The rank it was made for.
        given: usize,
        /// The rank that passes it.
        rank: usize,
    },
    /// Two owned cells of a domain with one id.
    #[error("domain {domain} owns id {id} twice, as local cells {first} and {second}; list each cell once")]
    OwnedTwice {
        /// The domain.
        domain: u64,
        /// The id.
        id: u64,
        /// Local index of the first cell.
        first: u32,
        /// Local index of the second cell.
        second: u32,
    },
    /// Two halo cells of a domain with one id.
    #[error(
        "domain {domain} has id {id} in its halo twice, as local cells {first} and {second}; list each cell once"
    )]
    HaloTwice {
        /// The domain.
        domain: u64,
        /// The id.
        id: u64,
        /// Local index of the first cell.
        first: u32,
        /// Local index of the second cell.
        second: u32,
    },
    /// A halo cell that the domain itself owns.
    #[error(
        "domain {domain}: local cell {halo} is a halo cell of id {id}, which it owns as local cell {owned}; leave it \
         out of the halo"
    )]
    HaloOwned {
        /// The domain.
        domain: u64,
        /// The id.
        id: u64,
        /// Local index of the owned cell.
        owned: u32,
        /// Local index of the halo cell.
        halo: u32,
    },
    /// Two domains with one number.
    #[error("domain {domain} exists on rank {rank} and on rank {other}; numbers of domains are global")]
    DomainTwice {
        /// The number.
        domain: u64,
        /// This rank.
        rank: usize,
        /// The other rank (this one, if it gave both).
        other: usize,
    },
    /// A cell with two owners.
    #[error(
        "id {id} is owned twice: by domain {domain} of rank {rank} and by domain {other_domain} of rank \
         {other}; each cell has one owner"
    )]
    OwnedByTwo {
        /// The id.
        id: u64,
        /// This rank.
        rank: usize,
        /// Its domain.
        domain: u64,
        /// The other rank (this one, if two of its domains own the cell).
        other: usize,
        /// The other domain.
        other_domain: u64,
    },
    /// A halo cell without an owner.
    #[error(
        "domain {domain}: its halo cell {local} has id {id}, which no domain of any rank owns; let one domain own \
         it, or leave it out of the halo"
    )]
    OwnedByNobody {
        /// The domain.
        domain: u64,
        /// Local index of the halo cell.
        local: u32,
        /// The id.
        id: u64,
    },
    /// A halo cell whose given owner is wrong.
    #[error(
        "domain {domain}, local cell {local} (id {id}): rank {given} is given as owner, rank {owner} owns it; give \
         {owner} as its owner"
    )]
    WrongOwner {
        /// The domain.
        domain: u64,
        /// Local index of the halo cell.
        local: u32,
        /// The id.
        id: u64,
        /// The owner given.
        given: usize,
        /// The rank that owns it.
        owner: usize,
    },
    /// Another rank sent an invalid message.
    #[error("invalid {name} from rank {from}: {what}; run the same version on all ranks")]
    Message {
        /// The rank that sent it.
        from: usize,
        /// The kind of message.
        name: &'static str,
        /// The error of the message.
        what: WireError,
    },
    /// Another rank did not send an expected message.
    #[error("rank {from} sent no {name}; run the same version on all ranks")]
    NoMessage {
        /// The rank that did not send it.
        from: usize,
        /// The kind of message.
        name: &'static str,
    },
}

crate::debug_as_text!(UnstructuredError);
