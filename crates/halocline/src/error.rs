//! The errors of this crate.

mod array;
mod failure;
mod index_list;
mod reduce;
mod words;

pub use array::ArrayError;
pub use failure::{Cause, Difference, FailedLink, Failure, Fault};
pub use index_list::IndexListError;
pub use reduce::ReduceError;
pub(crate) use words::which_domain;

use crate::bind::BindError;
use crate::gather::GatherError;
use crate::link::Direction;
use crate::pattern::DomainName;
use halocline_comm::CommError;
use halocline_device::{Address, DeviceError, Place};
use halocline_plan::{
    LayoutError, MeshError, NamedElement, PartitionError, PatternError, RedistributeError, Side,
    UnstructuredError,
};
use std::path::PathBuf;
use std::sync::Arc;
use words::{components_of, known, verb};

/// Why a call failed. The text says what was wrong, where, and what to do; `Debug` prints the same, so that
/// `fn main() -> Result<(), Error>` prints it readably.
///
/// ```
/// use halocline::{Communicator, Decomposed, Error, RegularGrid};
///
/// let grid = RegularGrid::new((4, 4)).decompose(3)?;
/// let error = grid.pattern(&Communicator::single(), 1).expect_err("one rank");
/// assert!(matches!(error, Error::DecomposedFor { decomposed: 3, ranks: 1 }));
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Between ranks.
    #[error(transparent)]
    Comm(#[from] CommError),
    /// A device call failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A field exceeds the allocation of its base address.
    #[error(
        "the {bytes} bytes of a field at {base:#x} on device {device} are not within its memory: {} bytes at {:#x}, \
         {}; give a base and a layout within one allocation of that device",
        place.bytes, place.base, place.space
    )]
    OutsideMemory {
        /// The device given.
        device: u32,
        /// Address of element (0, 0, …).
        base: Address,
        /// Bytes from the lowest to the highest element.
        bytes: usize,
        /// The allocation that the address lies in.
        place: Place,
    },
    /// A stream is of a device without fields of the object.
    #[error(
        "stream {stream} is of device {device}, the fields of the object lie on devices {devices:?}; give streams of \
         those"
    )]
    StreamDevice {
        /// Which stream, counted in the order given.
        stream: usize,
        /// Its device.
        device: u32,
        /// The devices of the object's fields on this rank.
        devices: Vec<u32>,
    },
    /// Streams of several captures, or of one and of none.
    #[error(
        "stream {stream} does not take part in the capture of the other streams, or of the exchange that it is to wait for; give streams of \
         one capture, or none that is being captured"
    )]
    OtherCapture {
        /// Which stream, counted in the order given.
        stream: usize,
    },
    /// A call on a stream under capture, of an object whose exchanges no graph can hold.
    #[error(
        "exchanges of this object cannot be captured into a CUDA graph: {why}; begin them between the launches of the graphs"
    )]
    NotCapturable {
        /// Why an exchange is not one launch on the device.
        why: &'static str,
    },
    /// The host is to wait for a captured exchange, or asks whether it is over.
    #[error(
        "the exchange was captured into a CUDA graph, which runs it at each launch; wait for the stream that the graph was launched on"
    )]
    Captured,
    /// The memory of a foreign field has changed since the bind.
    #[error(
        "the memory of device field {field} was freed, or has moved, since the bind; drop the object, and bind the field where it is \
         now"
    )]
    MemoryMoved {
        /// Which field, counted among those in memory of devices in the order of the bind.
        field: usize,
    },
    /// More ranks of this process share a device than it has queues for: their streams would deadlock.
    #[error(
        "{ranks} ranks of this process share device {device}, whose streams have {queues} queues, and each needs 3; start the \
         program with CUDA_DEVICE_MAX_CONNECTIONS=32 in its environment (32 is CUDA's maximum), or let fewer ranks share it"
    )]
    TooFewQueues {
        /// Which device.
        device: u32,
        /// Its queues.
        queues: u32,
        /// The ranks that have fields on it.
        ranks: usize,
    },
    /// The fields of one rank lie on devices that do not reach each other's memory.
    #[error(
        "the fields of this rank lie on devices {device} and {peer}, which cannot reach each other's memory; give each device a rank \
         of its own"
    )]
    NotPeers {
        /// One of them.
        device: u32,
        /// The other.
        peer: u32,
    },
    /// The object has the most exchanges in flight that it may have.
    #[error(
        "{limit} exchanges of this object are in flight, from {oldest} on; wait for that before the next"
    )]
    TooManyInFlight {
        /// How many there may be.
        limit: u64,
        /// The oldest.
        oldest: u64,
    },
    /// A device field, where only host fields are accepted.
    #[error("field {field} lies in memory of a device; {instead}")]
    NotOnHost {
        /// Which field, counted in the order given.
        field: usize,
        /// What can be done.
        instead: &'static str,
    },
    /// A field in memory of another device than that of the links.
    #[error(
        "field {field} lies in memory of device {device}, and these links are for fields of device {links}; make links for device \
         {device}, or copy the field"
    )]
    OtherDevice {
        /// Which field, counted in the order given.
        field: usize,
        /// Its device.
        device: u32,
        /// The device of the links.
        links: u32,
    },
    /// More fields of a device than one exchange takes.
    #[error(
        "{fields} fields of a device are given to one exchange, which takes {most} at most; exchange them in several, or bind them"
    )]
    TooManyFields {
        /// Their number.
        fields: usize,
        /// The most there can be.
        most: usize,
    },
    /// An operation that needs host fields, on an object of device fields.
    #[error("an object of device fields cannot be {what}; {instead}")]
    OfDevices {
        /// What was asked for.
        what: &'static str,
        /// What can be done.
        instead: &'static str,
    },
    /// An operation that needs device fields, on an object of host fields.
    #[error("an object of host fields cannot be {what}; {instead}")]
    OfHost {
        /// What was asked for.
        what: &'static str,
        /// What can be done.
        instead: &'static str,
    },
    /// A scheduled call that needs a progress thread, which the transport does not allow.
    #[error(
        "scheduled exchanges by messages need a progress thread, which this MPI does not allow; initialise it with \
         MPI_THREAD_MULTIPLE, or use exchange and wait"
    )]
    NotDriven,
    /// An invalid grid, decomposition or set of domains.
    #[error(transparent)]
    Pattern(#[from] PatternError),
    /// An invalid layout.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// A field that does not fit what it is bound to.
    #[error("field {field} of {domain} (pattern {pattern} of the bind): {error}")]
    Field {
        /// Which pattern, counted in the order of the bind.
        pattern: usize,
        /// Which field of that domain, counted in the order of the bind.
        field: usize,
        /// The domain.
        domain: DomainName,
        /// What is wrong.
        error: LayoutError,
    },
    /// A field that cannot be gathered.
    #[error("field {field} of the gathered fields: {error}")]
    GatheredField {
        /// Which field, in the order of the call.
        field: usize,
        /// What is wrong with it.
        error: Box<Error>,
    },
    /// A field that does not fit the peer's.
    #[error(
        "field {field} of pattern {pattern}: {domain} here and {peer_domain} of rank {peer} disagree: {error}"
    )]
    Peer {
        /// Which pattern, counted in the order of the bind.
        pattern: usize,
        /// Which field, counted in the order of the bind.
        field: usize,
        /// The domain here.
        domain: DomainName,
        /// The other rank.
        peer: usize,
        /// Its domain.
        peer_domain: DomainName,
        /// What is wrong.
        error: Box<LayoutError>,
    },
    /// One of several alternative sets of fields.
    #[error("set {set} of the alternatives: {error}")]
    Set {
        /// Which set, in the order of the bind.
        set: usize,
        /// What is wrong with it.
        error: Box<Error>,
    },
    /// A set of fields that the object does not have.
    #[error("there is no set {set}: the object has {sets}, counted from 0; give a number below {sets}")]
    NoSuchSet {
        /// The set asked for.
        set: usize,
        /// The object's number of sets.
        sets: usize,
    },
    /// An object of device fields has the most sets that it can have, narrowed ones included.
    #[error(
        "the object has {sets} sets of device fields, narrowed ones included, which is the limit of {limit}; bind an object of the \
         narrowed pattern"
    )]
    TooManySets {
        /// How many sets the object has.
        sets: usize,
        /// How many sets it can have.
        limit: usize,
    },
    /// Fields cannot be reduced or fetched from.
    #[error(transparent)]
    Reduce(#[from] ReduceError),
    /// Owned cells were requested while a reduce writes them.
    #[error("reduce {epoch} of this object writes owned cells; wait for it before you read them")]
    Reducing {
        /// The epoch of the reduce.
        epoch: u64,
    },
    /// A field for a pattern that has no links.
    #[error(
        "field {field} is of a pattern that is not among the {patterns} for which the links were made; make links \
         for all patterns"
    )]
    NoSuchPattern {
        /// Which field, counted in the order given.
        field: usize,
        /// The number of patterns that have links.
        patterns: usize,
    },
    /// A message for, or from, a rank with which nothing is exchanged in that direction.
    #[error("nothing is {} rank {peer}, {}", verb(*.direction), known(*.direction, .peers))]
    NoSuchPeer {
        /// The rank.
        peer: usize,
        /// The direction.
        direction: Direction,
        /// The ranks of that direction.
        peers: Vec<usize>,
    },
    /// A buffer that is not as long as the message.
    #[error(
        "the message to or from rank {peer} has {expected} bytes, the buffer {found}; give one of that length"
    )]
    MessageLength {
        /// The other rank.
        peer: usize,
        /// Bytes of the message.
        expected: usize,
        /// Bytes of the buffer.
        found: usize,
    },
    /// A buffer within a bound field.
    #[error(
        "the buffer of the message to or from rank {peer} lies within field {field} of the bind; give memory of its own"
    )]
    MessageInField {
        /// The other rank.
        peer: usize,
        /// Which field, counted in the order of the bind.
        field: usize,
    },
    /// A component that the pattern does not have.
    #[error("component {component} of a pattern with {components} of them; {}", components_of(components))]
    NoComponent {
        /// The component asked for.
        component: usize,
        /// The number that the pattern has, 0 if it is not one of vectors.
        components: usize,
    },
    /// A redistribution, asked for what only the pattern of a halo has.
    #[error(
        "a redistribution cannot be {what}: it moves all owned cells and fills no halo; use the pattern of one side"
    )]
    OfRedistribution {
        /// What was asked for.
        what: &'static str,
    },
    /// A view beyond the memory of its field.
    #[error(
        "the {bytes} bytes of a view are not within the {memory} bytes of its field's memory; give a base and a layout \
         within it"
    )]
    ViewOutside {
        /// Bytes of the view.
        bytes: usize,
        /// Bytes of the memory.
        memory: usize,
    },
    /// A decomposition for another number of ranks.
    #[error(
        "the grid is decomposed for {decomposed} ranks, the communicator has {ranks}; decompose it for as many"
    )]
    DecomposedFor {
        /// Ranks of the decomposition.
        decomposed: usize,
        /// Ranks of the communicator.
        ranks: usize,
    },
    /// An argument of a collective call that differs between ranks.
    #[error("rank {rank} has another {what} than rank 0; all ranks must give the same")]
    Differs {
        /// A rank whose argument differs from that of rank 0.
        rank: usize,
        /// The argument.
        what: &'static str,
    },
    /// A field of a domain that is not on this side of a redistribution.
    #[error(
        "domain {domain} is not on this rank on the {side} side, which has {domains:?}; bind fields of its own"
    )]
    NotOnSide {
        /// The domain.
        domain: u64,
        /// The side.
        side: Side,
        /// The domains of this rank on that side.
        domains: Vec<u64>,
    },
    /// A field that could be of several domains of a side of a redistribution, or of none.
    #[error("the {side} side has the domains {domains:?} on this rank; {}", which_domain(domains))]
    WhichDomain {
        /// The side.
        side: Side,
        /// The domains of this rank on that side.
        domains: Vec<u64>,
    },
    /// The domain of a rank that has none or several.
    #[error("the pattern has the domains {domains:?} on this rank, not one; use `Pattern::domains`")]
    NotOneDomain {
        /// The domains of this rank.
        domains: Vec<u64>,
    },
    /// An element type that a file format lacks.
    #[error("{format} has no element type {element}; save as {instead}")]
    FileElement {
        /// The format.
        format: &'static str,
        /// The elements.
        element: NamedElement,
        /// What can be done.
        instead: &'static str,
    },
    /// The fields, patterns or options of a bind do not fit together.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// Fields cannot be gathered.
    #[error(transparent)]
    Gather(#[from] GatherError),
    /// The elements of an array cannot be accessed.
    #[error(transparent)]
    Array(#[from] ArrayError),
    /// An index list cannot be made, or is not complete.
    #[error(transparent)]
    IndexList(#[from] IndexListError),
    /// A language binding refused the arguments of a collective call. The text is that of its own exception.
    #[error("{0}")]
    RefusedArguments(String),
    /// Another rank failed in this collective call.
    #[error("rank {rank} refused: {message}")]
    Elsewhere {
        /// The rank.
        rank: usize,
        /// Its error.
        message: String,
    },
    /// A field that was not written to a file.
    #[error(
        "cannot write {}: {reason}; check the path, its permissions and the free space (an older file is as it was)",
        path.display()
    )]
    Save {
        /// The file.
        path: PathBuf,
        /// What the system says.
        reason: String,
    },
    /// A grid file of ICON cannot be read.
    #[cfg(feature = "icon")]
    #[error(transparent)]
    IconGrid(#[from] crate::icon::IconGridError),
    /// An exchange was begun while the previous one is in flight.
    #[error("exchange {epoch} of this object is still in flight; wait for it before the next")]
    InFlight {
        /// The epoch in flight.
        epoch: u64,
    },
    /// An exchange was begun while a guard of one of its arrays is held.
    #[error("field {field} is borrowed by a guard; drop it before the exchange")]
    Borrowed {
        /// Which field, counted in the order of the bind.
        field: usize,
    },
    /// An exchange was begun while another object's exchange of the same host array is in flight, or after one of the same device array
    /// has failed and a peer may still write to it.
    #[error("field {field} is in flight in an exchange of another object; wait for that exchange first")]
    Shared {
        /// Which field, counted in the order given.
        field: usize,
    },
    /// The object has failed, here and at all ranks that it connects.
    #[error("{0}")]
    Failed(Arc<Failure>),
}

halocline_plan::debug_as_text!(Error);

macro_rules! through_pattern {
    ($($error:ty),*) => {$(
        impl From<$error> for Error {
            fn from(error: $error) -> Self {
                PatternError::from(error).into()
            }
        }
    )*};
}

through_pattern!(MeshError, PartitionError, RedistributeError, UnstructuredError);
