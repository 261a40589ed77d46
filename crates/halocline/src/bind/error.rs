//! The errors of a bind: arguments that do not fit together, and messages of peers that cannot be used.

use crate::error::which_domain;
use crate::link::LinkPath;
use crate::options::LinkChoice;
use crate::pattern::DomainName;
use halocline_comm::CommError;
use halocline_comm::mappings::MappingError;
use halocline_plan::Side;
use halocline_plan::wire::WireError;

/// Why fields, patterns and options cannot be bound, or a bound object cannot be narrowed.
///
/// ```
/// use halocline::{BindError, BindOptions, Communicator, Error, HaloExchange};
///
/// let comm = Communicator::single();
/// let error = HaloExchange::bind_alternatives(&comm, &[(); 0], &BindOptions::default()).expect_err("no set");
/// assert!(matches!(error, Error::Bind(BindError::NoSets)));
/// ```
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// There is no set of fields.
    #[error("there is no set of fields to bind; give at least one, it may be empty")]
    NoSets,
    /// Ranks bind different numbers of sets.
    #[error("rank {rank} binds {sets} sets of fields, rank 0 binds {first}; bind as many on all ranks")]
    SetCount {
        /// A rank that differs from rank 0.
        rank: usize,
        /// Its number of sets.
        sets: usize,
        /// The number of sets of rank 0.
        first: usize,
    },
    /// Ranks pass different link choices.
    #[error(
        "link choice mismatch: rank {rank} asks for {choice}, rank 0 for {first}; pass the same link choice on all ranks"
    )]
    LinkChoice {
        /// A rank that differs from rank 0.
        rank: usize,
        /// Its choice.
        choice: LinkChoice,
        /// The choice of rank 0.
        first: LinkChoice,
    },
    /// NCCL for a rank with fields on several devices.
    #[error(
        "the fields of this rank lie on {devices} devices, and NCCL connects one device of each rank; use one a rank, or another link \
         than nccl"
    )]
    NcclDevices {
        /// Their number.
        devices: usize,
    },
    /// NCCL for ranks that share a device.
    #[error(
        "ranks {rank} and {peer} have fields on the same device, which NCCL refuses; give each rank a device of its own, or choose another \
         link than nccl"
    )]
    NcclShared {
        /// One of them.
        rank: usize,
        /// The other.
        peer: usize,
    },
    /// Some ranks bind in checked mode, others do not.
    #[error(
        "rank {rank} binds {} checked mode, rank 0 binds {} it; HALOCLINE_CHECK and the option must be the same on all ranks",
        in_or_without(*checked), in_or_without(!*checked)
    )]
    CheckedMode {
        /// A rank that differs from rank 0.
        rank: usize,
        /// Whether it binds in checked mode.
        checked: bool,
    },
    /// Ranks make links for different patterns.
    #[error("rank {rank} makes links for other patterns than rank 0; pass the same patterns on all ranks")]
    Patterns {
        /// A rank that differs from rank 0.
        rank: usize,
    },
    /// An object is narrowed whose ranks have bound different patterns.
    #[error(
        "rank {rank} has bound other patterns, or another number of sets, than rank 0; narrow only an object that binds the same \
         patterns on all ranks, and narrow it on all ranks together"
    )]
    NarrowedPatterns {
        /// A rank that differs from rank 0.
        rank: usize,
    },
    /// A pattern of a communicator with more ranks.
    #[error(
        "pattern {pattern} exchanges with rank {peer}, the communicator has {ranks} ranks; bind a pattern with the communicator \
         that it was made with"
    )]
    PatternRank {
        /// Which pattern, counted in the order of the bind.
        pattern: usize,
        /// The rank that the communicator lacks.
        peer: usize,
        /// Ranks of the communicator.
        ranks: usize,
    },
    /// A field that could be of several domains, or of none.
    #[error("pattern {pattern} has the domains {domains:?} on this rank; {}", which_domain(domains))]
    WhichDomain {
        /// Which pattern, counted in the order of the bind.
        pattern: usize,
        /// Its domains on this rank.
        domains: Vec<u64>,
    },
    /// A field of a domain of another rank.
    #[error("{domain} of pattern {pattern} is not on this rank; bind fields of this rank's own domains")]
    NotOnRank {
        /// Which pattern, counted in the order of the bind.
        pattern: usize,
        /// The domain.
        domain: DomainName,
    },
    /// Domains of one rank bind different numbers of fields.
    #[error(
        "{domain} of pattern {pattern} binds {fields} fields, {other} binds {other_fields}; every domain of a \
         pattern, and of a vector every component, needs as many"
    )]
    DomainFields {
        /// Which pattern, counted in the order of the bind.
        pattern: usize,
        /// A domain of this rank.
        domain: DomainName,
        /// Its number of fields.
        fields: usize,
        /// Another domain of this rank.
        other: DomainName,
        /// Its number of fields.
        other_fields: usize,
    },
    /// Two ranks that exchange with each other bind different numbers of fields of a pattern.
    #[error(
        "pattern {pattern} binds {fields} fields on rank {rank}, but {peer_fields} on rank {peer}; all ranks must bind as many"
    )]
    RankFields {
        /// Which pattern, counted in the order of the bind.
        pattern: usize,
        /// This rank.
        rank: usize,
        /// Its number of fields.
        fields: usize,
        /// The other rank.
        peer: usize,
        /// Its number of fields.
        peer_fields: usize,
    },
    /// A peer binds a pattern that this rank does not bind.
    #[error(
        "rank {peer} binds {peer_fields} fields of a pattern that connects it with rank {rank}, which binds 0 fields of it; all ranks \
         must bind as many"
    )]
    PatternNotBound {
        /// This rank.
        rank: usize,
        /// The other rank.
        peer: usize,
        /// Its number of fields of the pattern.
        peer_fields: usize,
    },
    /// A peer lacks a field.
    #[error(
        "rank {peer} binds no field {field} of {domain} (pattern {pattern} here); all ranks must bind as many"
    )]
    NoField {
        /// The other rank.
        peer: usize,
        /// Which pattern, counted in the order of the bind.
        pattern: usize,
        /// Which field of the domain, counted in the order of the bind.
        field: usize,
        /// The peer's domain.
        domain: DomainName,
    },
    /// Two fields share memory that an exchange writes.
    #[error(
        "fields {} and {} of the bind (field {} of {} and field {} of {}) share memory {}",
        fields[0], fields[1], numbers[0], domains[0], numbers[1], domains[1], shared(domains[0].side)
    )]
    Overlap {
        /// Which fields, counted in the order of the bind.
        fields: [usize; 2],
        /// Which fields of their domains.
        numbers: [usize; 2],
        /// Their domains.
        domains: [DomainName; 2],
    },
    /// The exchanged cells lie outside the memory of their field, here or at the peer.
    #[error(
        "the cells of field {field} of {domain} that are exchanged with rank {peer} exceed the memory of the field; \
         run the same version of Halocline on all ranks"
    )]
    FieldMemory {
        /// Which field of the domain, counted in the order of the bind.
        field: usize,
        /// The domain here.
        domain: DomainName,
        /// The other rank.
        peer: usize,
    },
    /// A field of too many dimensions for links without fields.
    #[error(
        "field {field} of {domain} has {dimensions} dimensions of more than one element, fields that are not bound can have {most}; \
         bind the field"
    )]
    TooManyDimensions {
        /// Which field of the domain, counted in the order given.
        field: usize,
        /// The domain.
        domain: DomainName,
        /// Dimensions of more than one element.
        dimensions: usize,
        /// How many there may be.
        most: usize,
    },
    /// The device fields of a bind have too many sets.
    #[error("{sets} sets of device fields are bound together, at most {most} can be; bind several objects")]
    TooManySets {
        /// The number of sets.
        sets: usize,
        /// How many there may be.
        most: usize,
    },
    /// The device fields of this rank lie on too many devices.
    #[error(
        "the device fields of this rank lie on {devices} devices, they can lie on {most}; bind several objects"
    )]
    TooManyDevices {
        /// The number of devices.
        devices: usize,
        /// How many there may be.
        most: usize,
    },
    /// A peer's device cannot work together with one here.
    #[error(
        "rank {peer} has fields on a device of another machine than device {device} here (a simulated one or a GPU); bind with \
         `LinkChoice::Mailbox` or `Message`"
    )]
    OtherMachine {
        /// The other rank.
        peer: usize,
        /// The device here.
        device: u32,
    },
    /// A link cannot take the path that the options ask for.
    #[error("the link with rank {peer} cannot be {path}: {reason}; {}", other_path(*path))]
    Path {
        /// The other rank.
        peer: usize,
        /// The path asked for.
        path: LinkPath,
        /// Why it is impossible.
        reason: String,
    },
    /// A direct path, or NCCL, asked for before there are fields.
    #[error(
        "links without fields cannot be {choice}, which needs memory of bound fields; make them with the link choice auto, mailbox or \
         message"
    )]
    DirectWithoutFields {
        /// The choice.
        choice: LinkChoice,
    },
    /// A link through shared memory with a rank that shares none.
    #[error("rank {peer} shares no memory with this one; pass the link choice auto or message")]
    NoSharedMemory {
        /// The other rank.
        peer: usize,
    },
    /// Memory of a peer was not mapped, or cannot be.
    #[error(transparent)]
    Mapping(#[from] MappingError),
    /// Memory of a peer did not arrive with its message.
    #[error("memory {number} of {announced} in the {what} of rank {peer} is missing: {error}")]
    MissingMemory {
        /// The other rank.
        peer: usize,
        /// The message.
        what: &'static str,
        /// The first missing memory, counted from 1.
        number: usize,
        /// How many there should be.
        announced: usize,
        /// Why.
        #[source]
        error: Box<CommError>,
    },
    /// A peer sent a message that is not of the expected form.
    #[error("rank {peer} sent a malformed {what}: {error}; run the same version of Halocline on all ranks")]
    Malformed {
        /// The sender.
        peer: usize,
        /// The message.
        what: &'static str,
        /// What is wrong with it.
        #[source]
        error: WireError,
    },
    /// A peer sent an address or an offset outside the memory that it sent.
    #[error("rank {peer} offers {what} outside its memory; run the same version of Halocline on all ranks")]
    OutsideMemory {
        /// The other rank.
        peer: usize,
        /// What lies outside.
        what: &'static str,
    },
    /// Both sides have the same fields but count different bytes.
    #[error(
        "this rank sends {sends} bytes to rank {peer}, which expects {peer_receives}; rank {peer} sends {peer_sends} bytes to this \
         rank, which expects {receives}; run the same version of Halocline on all ranks"
    )]
    Bytes {
        /// The other rank.
        peer: usize,
        /// Bytes that this rank sends.
        sends: usize,
        /// Bytes that this rank receives.
        receives: usize,
        /// Bytes that the peer sends.
        peer_sends: usize,
        /// Bytes that the peer receives.
        peer_receives: usize,
    },
}

halocline_plan::debug_as_text!(BindError);

fn in_or_without(checked: bool) -> &'static str {
    if checked { "in" } else { "without" }
}

fn other_path(path: LinkPath) -> &'static str {
    match path {
        // Of links without fields, which have no other path for fields of a device.
        LinkPath::DeviceMailbox => "bind the fields",
        _ => "bind with the link choice auto",
    }
}

fn shared(side: Option<Side>) -> &'static str {
    match side {
        Some(_) => "where cells are received; give each received cell its own memory",
        None => "where a halo is received; bind each halo cell in one field only",
    }
}
