//! The four messages of the directory and their encoding. Decoders accept any bytes and return
//! either a well-formed message or a [`WireError`].

use crate::wire::{Reader, WireError, Writer};

/// A message of one step of the directory.
pub trait Message: Sized {
    /// Name of the message in errors.
    const NAME: &'static str;

    /// The message as bytes.
    fn encode(&self) -> Vec<u8>;

    /// Decodes a message. Memory use is proportional to the number of bytes.
    fn decode(bytes: &[u8]) -> Result<Self, WireError>;
}

/// Step A, to the home of the ids: the cells that the sender owns, and the cells whose owners it
/// needs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Lookup {
    /// Domains of the sender.
    pub domains: Vec<u64>,
    /// The sender's domains and the ids of their owned cells.
    pub owned: Vec<(u64, Vec<u64>)>,
    /// Ids of halo cells whose owners the sender requests.
    pub queries: Vec<u64>,
}

/// The owner of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Owner {
    /// The rank, never [`usize::MAX`].
    pub rank: usize,
    /// The domain of that rank.
    pub domain: u64,
}

/// Consecutive queries with one answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnerRun {
    /// Number of queries, at least 1.
    pub count: u64,
    /// Their owner, `None` if no rank registered them.
    pub owner: Option<Owner>,
}

/// A cell or domain that the receiver of a [`Reply`] claims and another rank, or the same one
/// again, claims as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clash {
    /// The cell `id`, which the receiver registered for `domain`.
    Cell {
        /// Global id of the cell.
        id: u64,
        /// The receiver's domain.
        domain: u64,
        /// The other owner.
        other: Owner,
    },
    /// A domain that another rank also has.
    Domain {
        /// Number of the domain.
        domain: u64,
        /// The other rank.
        other: usize,
    },
}

/// Step B, from a home: answers to the queries in their order, and at most one clash of each kind.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reply {
    /// Claims that contradict those of another rank.
    pub clashes: Vec<Clash>,
    /// Owners of the queried ids.
    pub owners: Vec<OwnerRun>,
}

/// Step C, to an owner: the cells that the sender needs, one part for each pair of domains, in
/// ascending order of (`to`, `from`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Request {
    /// The pairs of domains, at least one.
    pub parts: Vec<RequestPart>,
}

/// The cells that one domain of the sender needs from one domain of the receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestPart {
    /// The sender's domain.
    pub to: u64,
    /// The receiver's domain.
    pub from: u64,
    /// Global ids of the cells, at least one.
    pub ids: Vec<u64>,
    /// Local indices of the same cells in `to`, ascending, below [`u32::MAX`].
    pub targets: Vec<u32>,
}

/// Step D, from an owner: for each part of the request, in its order, the local indices of the cells
/// in the owner's domain, each below [`u32::MAX`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Answer {
    /// The parts of the request.
    pub parts: Vec<Vec<u32>>,
}

// Each message starts with its own magic number, so no step decodes a message of another step.
const LOOKUP: u32 = 0x4c41_0001;
const REPLY: u32 = 0x4c41_0002;
const REQUEST: u32 = 0x4c41_0003;
const ANSWER: u32 = 0x4c41_0004;
pub(crate) const ENDS: u32 = 0x4c41_0005;

const NOBODY: u64 = u64::MAX;
const CELL: u32 = 0;
const DOMAIN: u32 = 1;

pub(crate) fn start(kind: u32) -> Writer {
    let mut writer = Writer::new();
    writer.u32(kind);
    writer
}

pub(crate) fn open(bytes: &[u8], kind: u32) -> Result<Reader<'_>, WireError> {
    let mut reader = Reader::new(bytes);
    if reader.u32()? == kind {
        Ok(reader)
    } else {
        Err(WireError::Content("it does not begin like this kind of message"))
    }
}

fn local_indices(reader: &mut Reader<'_>) -> Result<Vec<u32>, WireError> {
    let indices = reader.u32s()?;
    // A domain has at most u32::MAX cells, so `start + len` of every run fits in 32 bits.
    if indices.contains(&u32::MAX) {
        return Err(WireError::Content("a local index exceeds what a domain can have"));
    }
    Ok(indices)
}

impl Message for Lookup {
    const NAME: &'static str = "lookup";

    fn encode(&self) -> Vec<u8> {
        let mut writer = start(LOOKUP);
        writer.u64s(&self.domains);
        writer.size(self.owned.len());
        for (domain, ids) in &self.owned {
            writer.u64(*domain);
            writer.u64s(ids);
        }
        writer.u64s(&self.queries);
        writer.finish()
    }

    fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut reader = open(bytes, LOOKUP)?;
        let domains = reader.u64s()?;
        let owned =
            (0..reader.count(16)?).map(|_| Ok((reader.u64()?, reader.u64s()?))).collect::<Result<_, _>>()?;
        let queries = reader.u64s()?;
        reader.finish()?;
        Ok(Self { domains, owned, queries })
    }
}

impl Message for Reply {
    const NAME: &'static str = "reply";

    fn encode(&self) -> Vec<u8> {
        let mut writer = start(REPLY);
        writer.size(self.clashes.len());
        for clash in &self.clashes {
            match *clash {
                Clash::Cell { id, domain, other } => {
                    writer.u32(CELL);
                    writer.u64(id);
                    writer.u64(domain);
                    writer.size(other.rank);
                    writer.u64(other.domain);
                }
                Clash::Domain { domain, other } => {
                    writer.u32(DOMAIN);
                    writer.u64(domain);
                    writer.size(other);
                }
            }
        }
        writer.size(self.owners.len());
        for run in &self.owners {
            writer.u64(run.count);
            writer.u64(run.owner.map_or(NOBODY, |owner| owner.rank as u64));
            writer.u64(run.owner.map_or(0, |owner| owner.domain));
        }
        writer.finish()
    }

    fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut reader = open(bytes, REPLY)?;
        let clashes = (0..reader.count(20)?).map(|_| clash(&mut reader)).collect::<Result<_, _>>()?;
        let owners = (0..reader.count(24)?).map(|_| owner_run(&mut reader)).collect::<Result<_, _>>()?;
        reader.finish()?;
        Ok(Self { clashes, owners })
    }
}

fn clash(reader: &mut Reader<'_>) -> Result<Clash, WireError> {
    match reader.u32()? {
        CELL => {
            let (id, domain) = (reader.u64()?, reader.u64()?);
            Ok(Clash::Cell { id, domain, other: Owner { rank: reader.size()?, domain: reader.u64()? } })
        }
        DOMAIN => Ok(Clash::Domain { domain: reader.u64()?, other: reader.size()? }),
        _ => Err(WireError::Content("it holds a clash of an unknown kind")),
    }
}

fn owner_run(reader: &mut Reader<'_>) -> Result<OwnerRun, WireError> {
    let (count, rank, domain) = (reader.u64()?, reader.u64()?, reader.u64()?);
    if count == 0 {
        return Err(WireError::Content("it answers a run of no queries"));
    }
    let owner = match rank {
        NOBODY => None,
        rank => {
            let rank = usize::try_from(rank).map_err(|_| WireError::Content("it names no possible rank"))?;
            Some(Owner { rank, domain })
        }
    };
    Ok(OwnerRun { count, owner })
}

impl Message for Request {
    const NAME: &'static str = "request";

    fn encode(&self) -> Vec<u8> {
        let mut writer = start(REQUEST);
        writer.size(self.parts.len());
        for part in &self.parts {
            writer.u64(part.to);
            writer.u64(part.from);
            writer.u64s(&part.ids);
            writer.u32s(&part.targets);
        }
        writer.finish()
    }

    fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut reader = open(bytes, REQUEST)?;
        let parts: Vec<RequestPart> =
            (0..reader.count(32)?).map(|_| request_part(&mut reader)).collect::<Result<_, _>>()?;
        reader.finish()?;
        if parts.is_empty() {
            return Err(WireError::Content("it asks for nothing"));
        }
        if !parts.is_sorted_by(|a, b| (a.to, a.from) < (b.to, b.from)) {
            return Err(WireError::Content("its pairs of domains are not in ascending order"));
        }
        Ok(Self { parts })
    }
}

fn request_part(reader: &mut Reader<'_>) -> Result<RequestPart, WireError> {
    let (to, from) = (reader.u64()?, reader.u64()?);
    let (ids, targets) = (reader.u64s()?, local_indices(reader)?);
    if ids.is_empty() || ids.len() != targets.len() {
        return Err(WireError::Content("it does not name one halo cell for each id"));
    }
    if !targets.is_sorted_by(|a, b| a < b) {
        return Err(WireError::Content("its halo cells are not in ascending order"));
    }
    Ok(RequestPart { to, from, ids, targets })
}

impl Message for Answer {
    const NAME: &'static str = "answer";

    fn encode(&self) -> Vec<u8> {
        let mut writer = start(ANSWER);
        writer.size(self.parts.len());
        self.parts.iter().for_each(|sources| writer.u32s(sources));
        writer.finish()
    }

    fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut reader = open(bytes, ANSWER)?;
        let parts = (0..reader.count(8)?).map(|_| local_indices(&mut reader)).collect::<Result<_, _>>()?;
        reader.finish()?;
        Ok(Self { parts })
    }
}
