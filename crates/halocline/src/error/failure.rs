//! The sticky failure of a bound object, and its form in the 64 bits that accompany a poisoned flag.

use crate::link::{Direction, LinkPath};
use std::fmt;
use std::time::Duration;

/// How a bound object failed. Sticky: every later call gives the same.
///
/// ```
/// use halocline::{Array, Cause, Communicator, Decomposed, Error, Failure, HaloExchange, RegularGrid};
///
/// let rank = |comm: Communicator| -> Result<(), Error> {
///     let pattern = RegularGrid::new([8]).decompose(2)?.pattern(&comm, 1)?;
///     let t = Array::<f64>::zeros(&comm, &pattern.domain()?.extents())?;
///     let halo = HaloExchange::bind(&comm, [(&pattern, &t)])?;
///     if comm.rank() == 1 {
///         return Ok(()); // drops its exchange
///     }
///     let Err(Error::Failed(failure)) = halo.exchange()?.wait() else { panic!("rank 1 takes no part") };
///     let Failure { epoch, cause, culprit, .. } = *failure;
///     assert_eq!((epoch, cause, culprit), (1, Cause::Dropped, 1));
///     Ok(())
/// };
/// std::thread::scope(|threads| {
///     let ranks = Communicator::threads(2).into_iter().map(|comm| threads.spawn(move || rank(comm)));
///     ranks.collect::<Vec<_>>().into_iter().try_for_each(|rank| rank.join().expect("no panic"))
/// })?;
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Failure {
    /// This rank.
    pub rank: usize,
    /// The first exchange that failed; those before it are complete.
    pub epoch: u64,
    /// The link that reported the failure. `None`: a device of this rank failed, or checked mode found a fault in copies within it.
    pub link: Option<FailedLink>,
    /// What happened.
    pub cause: Cause,
    /// The rank that failed, or that detected the failure.
    pub culprit: usize,
    /// Details for people, on the ranks that detected the failure: the finding of checked mode, or the elements sent and expected.
    pub report: Option<String>,
}

/// The link that reported a [`Failure`].
///
/// ```
/// use halocline::{Array, Communicator, Decomposed, Error, FailedLink, HaloExchange, RegularGrid};
///
/// let rank = |comm: Communicator| -> Result<(), Error> {
///     let pattern = RegularGrid::new([8]).decompose(2)?.pattern(&comm, 1)?;
///     let t = Array::<f64>::zeros(&comm, &pattern.domain()?.extents())?;
///     let halo = HaloExchange::bind(&comm, [(&pattern, &t)])?;
///     if comm.rank() == 1 {
///         return Ok(()); // drops its exchange
///     }
///     let Err(Error::Failed(failure)) = halo.exchange()?.wait() else { panic!("rank 1 takes no part") };
///     let Some(FailedLink { peer, direction, path }) = failure.link else { panic!("it is of a link") };
///     assert_eq!(peer, 1);
///     assert!(halo.links().any(|link| (link.peer, link.direction, link.path) == (peer, direction, path)));
///     Ok(())
/// };
/// std::thread::scope(|threads| {
///     let ranks = Communicator::threads(2).into_iter().map(|comm| threads.spawn(move || rank(comm)));
///     ranks.collect::<Vec<_>>().into_iter().try_for_each(|rank| rank.join().expect("no panic"))
/// })?;
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailedLink {
    /// The other rank.
    pub peer: usize,
    /// Whether the link sends or receives.
    pub direction: Direction,
    /// Its path.
    pub path: LinkPath,
}

/// The reason that an exchange can never complete.
///
/// ```
/// use halocline::{
///     Cause, Communicator, Decomposed, Difference, ElementType, Error, Field, Layout, PatternLinks, RegularGrid,
/// };
///
/// let rank = |comm: Communicator| -> Result<(), Error> {
///     let pattern = RegularGrid::new([8]).decompose(2)?.pattern(&comm, 1)?;
///     let links = PatternLinks::new(&comm, &[&pattern])?;
///     // The ranks give fields of different element types.
///     let element = [ElementType::F64, ElementType::F32][comm.rank()];
///     let t = Field::allocate(&comm, Layout::c_order(element, &pattern.domain()?.extents())?)?;
///     let exchanged = links.exchange(&[(&pattern, &t)])?.wait();
///     let Err(Error::Failed(failure)) = exchanged else { panic!("the fields differ") };
///     assert_eq!(failure.cause, Cause::Fields(Difference::Element { field: 0 }));
///     Ok(comm.barrier()?)
/// };
/// std::thread::scope(|threads| {
///     let ranks = Communicator::threads(2).into_iter().map(|comm| threads.spawn(move || rank(comm)));
///     ranks.collect::<Vec<_>>().into_iter().try_for_each(|rank| rank.join().expect("no panic"))
/// })?;
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// The culprit's process has died.
    Died,
    /// The culprit has dropped its object, or its communicator, before this epoch.
    Dropped,
    /// The culprit missed a deadline: of this rank, with the time waited, or of another rank.
    Deadline(Option<Duration>),
    /// The culprit sent a malformed message.
    Malformed,
    /// In the unbound form: the fields that the culprit sends do not match those of their receiver.
    Fields(Difference),
    /// The culprit detected this in checked mode.
    Check(Fault),
    /// A device of the culprit has failed.
    Device,
    /// The culprit's transport has failed, or MPI was finalised.
    Transport,
}

/// A violation that checked mode detects.
///
/// ```
/// use halocline::{Array, BindOptions, Cause, Communicator, Decomposed, Error, Fault, HaloExchange, RegularGrid};
///
/// let rank = |comm: Communicator| -> Result<(), Error> {
///     let pattern = RegularGrid::new([8]).decompose(2)?.pattern(&comm, 1)?;
///     let (old, new) = (Array::<f64>::zeros(&comm, &[6])?, Array::<f64>::zeros(&comm, &[6])?);
///     let options = BindOptions::default().checked(true);
///     let halo = HaloExchange::bind_alternatives(&comm, &[[(&pattern, &*old)], [(&pattern, &*new)]], &options)?;
///     // Rank 0 exchanges the old time level, rank 1 the new one.
///     let exchanged = halo.begin().set(comm.rank()).start()?.wait();
///     let Err(Error::Failed(failure)) = exchanged else { panic!("the sets differ") };
///     assert_eq!(failure.cause, Cause::Check(Fault::OtherSet));
///     Ok(comm.barrier()?)
/// };
/// std::thread::scope(|threads| {
///     let ranks = Communicator::threads(2).into_iter().map(|comm| threads.spawn(move || rank(comm)));
///     ranks.collect::<Vec<_>>().into_iter().try_for_each(|rank| rank.join().expect("no panic"))
/// })?;
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// Halo cells were not written by their exchange.
    NotWritten,
    /// Halo cells are not what their owner held when the exchange began.
    Changed,
    /// Owned cells were written while an exchange was in flight.
    OwnedWritten,
    /// Two ranks exchange different sets of fields.
    OtherSet,
    /// Halo cells were overwritten after they arrived, before the wait returned.
    HaloWritten,
    /// One rank exchanges while another one reduces, or reduces by another operation.
    OtherOperation,
    /// In a reduce, halo cells have changed on the way to their owner.
    ChangedOnTheWay,
}

impl Fault {
    const ALL: [Self; 7] = [
        Self::NotWritten,
        Self::Changed,
        Self::OwnedWritten,
        Self::OtherSet,
        Self::HaloWritten,
        Self::OtherOperation,
        Self::ChangedOnTheWay,
    ];
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotWritten => "halo cells were not written",
            Self::Changed => "halo cells are not what their owner held",
            Self::OwnedWritten => "owned cells were written while the exchange was in flight",
            Self::OtherSet => "ranks exchange different sets of fields",
            Self::HaloWritten => "halo cells were overwritten before the wait had returned",
            Self::OtherOperation => "ranks begin different operations at the same time",
            Self::ChangedOnTheWay => "halo cells have changed on the way to their owner",
        })
    }
}

/// How fields that two ranks give to one exchange differ.
///
/// ```
/// use halocline::{Array, Cause, Communicator, Decomposed, Difference, Error, PatternLinks, RegularGrid};
///
/// let rank = |comm: Communicator| -> Result<(), Error> {
///     let pattern = RegularGrid::new([8]).decompose(2)?.pattern(&comm, 1)?;
///     let links = PatternLinks::new(&comm, &[&pattern])?;
///     // Rank 0 gives a field of 2 levels for each cell, rank 1 one of 3.
///     let t = Array::<f64>::zeros(&comm, &[6, 2 + comm.rank()])?;
///     let Err(Error::Failed(failure)) = links.exchange(&[(&pattern, &t)])?.wait() else { panic!("2 and 3 levels") };
///     assert_eq!(failure.cause, Cause::Fields(Difference::Extents { field: 0 }));
///     Ok(comm.barrier()?)
/// };
/// std::thread::scope(|threads| {
///     let ranks = Communicator::threads(2).into_iter().map(|comm| threads.spawn(move || rank(comm)));
///     ranks.collect::<Vec<_>>().into_iter().try_for_each(|rank| rank.join().expect("no panic"))
/// })?;
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Difference {
    /// Their number or their patterns differ.
    Fields,
    /// One has another element type: the field with this number, counted within its pattern.
    Element {
        /// Which field.
        field: u32,
    },
    /// One has other extra dimensions: the field with this number, counted within its pattern.
    Extents {
        /// Which field.
        field: u32,
    },
    /// One has its dimensions in another order in memory: the field with this number, counted within its pattern. Fields on devices
    /// only.
    Order {
        /// Which field.
        field: u32,
    },
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fields => f.write_str("their number or their patterns differ"),
            Self::Element { field } => write!(f, "field {field} of its pattern has another element type"),
            Self::Extents { field } => write!(f, "field {field} of its pattern has other extra dimensions"),
            Self::Order { field } => {
                write!(
                    f,
                    "field {field} of its pattern has its dimensions in another order in memory (use the same order \
                     on all ranks, or bind the fields)"
                )
            }
        }
    }
}

/// Bits of the culprit, and of the field of a [`Difference`], in an encoded [`Cause`].
const RANK: u32 = 32;
const FIELD: u32 = 20;

impl Cause {
    /// The cause and its culprit in the 64 bits that accompany a poisoned flag: the kind of cause, the
    /// difference, the field, the rank.
    pub(crate) fn encode(self, culprit: usize) -> u64 {
        let last = (1 << FIELD) - 1;
        let (code, differs, field): (u64, u64, u32) = match self {
            Self::Died => (1, 0, 0),
            Self::Dropped => (2, 0, 0),
            Self::Deadline(_) => (3, 0, 0),
            Self::Malformed => (4, 0, 0),
            Self::Fields(Difference::Fields) => (5, 0, 0),
            Self::Fields(Difference::Element { field }) => (5, 1, field),
            Self::Fields(Difference::Extents { field }) => (5, 2, field),
            Self::Fields(Difference::Order { field }) => (5, 3, field),
            Self::Check(fault) => (6, fault as u64, 0),
            Self::Device => (7, 0, 0),
            Self::Transport => (8, 0, 0),
        };
        code << 56 | differs << (RANK + FIELD) | u64::from(field.min(last)) << RANK | culprit as u64
    }

    /// The inverse of [`Cause::encode`].
    pub(crate) fn decode(word: u64) -> (Self, usize) {
        let field = (word >> RANK) as u32 & ((1 << FIELD) - 1);
        let cause = match (word >> 56, word >> (RANK + FIELD) & 0xf) {
            (1, _) => Self::Died,
            (2, _) => Self::Dropped,
            (3, _) => Self::Deadline(None),
            (5, 0) => Self::Fields(Difference::Fields),
            (5, 1) => Self::Fields(Difference::Element { field }),
            (5, 2) => Self::Fields(Difference::Extents { field }),
            (5, 3) => Self::Fields(Difference::Order { field }),
            (6, fault) => Fault::ALL.get(fault as usize).map_or(Self::Malformed, |&fault| Self::Check(fault)),
            (7, _) => Self::Device,
            (8, _) => Self::Transport,
            _ => Self::Malformed,
        };
        (cause, (word & ((1 << RANK) - 1)) as usize)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rank, epoch, link, cause, culprit, report } = self;
        write!(f, "rank {rank}: exchange {epoch} failed")?;
        match link {
            None => f.write_str(" within the rank: ")?,
            Some(FailedLink { peer, direction: Direction::Send, path }) => {
                write!(f, " on the link to rank {peer} ({path}): ")?;
            }
            Some(FailedLink { peer, direction: Direction::Receive, path }) => {
                write!(f, " on the link from rank {peer} ({path}): ")?;
            }
        }
        match cause {
            Cause::Died => write!(f, "rank {culprit} has died")?,
            Cause::Dropped => write!(f, "rank {culprit} dropped its end before this exchange")?,
            Cause::Deadline(Some(after)) => write!(f, "rank {culprit} missed the deadline after {after:?}")?,
            Cause::Deadline(None) => write!(f, "rank {culprit} missed the deadline of another rank")?,
            Cause::Malformed => write!(f, "rank {culprit} sent a malformed message")?,
            Cause::Fields(difference) => {
                write!(
                    f,
                    "the fields that rank {culprit} sends do not match those of their receiver: {difference}"
                )?;
                if let Some(report) = report {
                    write!(f, ": {report}")?;
                }
            }
            Cause::Device => match report {
                Some(report) => f.write_str(report)?,
                None => write!(f, "a device of rank {culprit} has failed")?,
            },
            Cause::Transport => match report {
                Some(report) => f.write_str(report)?,
                None => write!(f, "rank {culprit} can no longer send or receive")?,
            },
            Cause::Check(fault) => match report {
                Some(report) => f.write_str(report)?,
                None => write!(f, "rank {culprit} has found that {fault}")?,
            },
        }
        if let Some(FailedLink { peer, .. }) = link
            && culprit != peer
            && report.is_none()
        {
            write!(f, ", so rank {peer} gave up")?;
        }
        match epoch.saturating_sub(1) {
            0 => f.write_str("; the halo is undefined")?,
            last => {
                write!(f, "; exchange {last} is complete, the halo is undefined from exchange {epoch} on")?
            }
        }
        f.write_str("; drop the object and bind again")
    }
}

impl std::error::Error for Failure {}

halocline_plan::debug_as_text!(Failure);
