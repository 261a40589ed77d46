//! The distributed directory that finds the owners of halo cells, as pure state machines. Ranks
//! know only their own cells.
//!
//! Every global id has a home: a rank that records its owner. Homes are blocks of the range of all
//! ids or, if the ids have large gaps, small blocks scattered over the ranks. A rank holds its own
//! cells and its share of the ids, and nothing for every other rank.
//!
//! One rank passes through these states, in step with all others. Each transition takes the
//! messages sent to this rank in the previous step, and returns those to send:
//!
//! | state | transition | what its messages are |
//! | --- | --- | --- |
//! | [`Directory`] | [`register`](Directory::register), given all ranks' [`bounds`](Directory::bounds) and [`counts`](Directory::counts) | to homes: ids owned here, ids looked for ([`Lookup`]) |
//! | [`Registered`] | [`reply`](Registered::reply) | from homes: the owners, and claims that clash ([`Reply`]) |
//! | [`Replied`] | [`request`](Replied::request) | to owners: the cells wanted and where they go ([`Request`]) |
//! | [`Requested`] | [`answer`](Requested::answer) | from owners: where the cells lie ([`Answer`]) |
//! | [`Answered`] | [`finish`](Answered::finish) | none: the [`PatternPlan`] |
//!
//! A rank's messages to itself take the same path without being sent. After an error a rank still
//! takes part in the remaining steps of the others, with no messages; see the driver.

mod home;
mod message;

pub use home::Registered;
pub use message::{Answer, Clash, Lookup, Message, Owner, OwnerRun, Reply, Request, RequestPart};

use crate::unstructured::CheckedDomain;
use crate::wire::WireError;
use crate::{
    AxisMap, Cells, DomainShape, PatternPlan, Peer, Transfer, UnstructuredDomain, UnstructuredError,
};
use home::{Homes, HomesOf};
use std::collections::BTreeMap;

/// Messages, each with the rank that it goes to or came from.
pub type Messages = Vec<(usize, Vec<u8>)>;

type Result<T> = std::result::Result<T, UnstructuredError>;

/// The domains of one rank, consistent in themselves.
#[derive(Debug)]
pub struct Directory {
    rank: usize,
    ranks: usize,
    /// Ascending by number.
    domains: Vec<CheckedDomain>,
}

impl Directory {
    /// The initial state on `rank` of `ranks`. Checks everything that one rank can check.
    pub fn new(rank: usize, ranks: usize, domains: &[UnstructuredDomain]) -> Result<Self> {
        let domains = domains.iter().map(|domain| domain.check(rank, ranks)).collect::<Result<Vec<_>>>()?;
        Self::of(rank, ranks, domains)
    }

    /// As [`Directory::new`], for domains that have been checked individually.
    pub(crate) fn of(rank: usize, ranks: usize, mut domains: Vec<CheckedDomain>) -> Result<Self> {
        domains.sort_by_key(|domain| domain.id);
        match domains.windows(2).find(|pair| pair[0].id == pair[1].id) {
            Some(pair) => Err(UnstructuredError::DomainTwice { domain: pair[0].id, rank, other: rank }),
            None => Ok(Self { rank, ranks, domains }),
        }
    }

    /// This rank's contribution to the range of all ids. [`Directory::register`] takes the
    /// element-wise minimum over all ranks.
    pub fn bounds(&self) -> [u64; 4] {
        let mut bounds = [u64::MAX; 4];
        let mut cover = |at: usize, id: u64| {
            bounds[at] = bounds[at].min(id);
            // The minimum of the complements is the complement of the maximum.
            bounds[at + 1] = bounds[at + 1].min(!id);
        };
        for domain in &self.domains {
            cover(2, domain.id);
            domain.owned.iter().for_each(|&(id, _)| cover(0, id));
            domain.halo.iter().for_each(|&(_, id)| cover(0, id));
        }
        bounds
    }

    /// How many cells and domains this rank owns. [`Directory::register`] takes the sums over all
    /// ranks.
    pub fn counts(&self) -> [u64; 2] {
        let owned: usize = self.domains.iter().map(|domain| domain.owned.len()).sum();
        [owned as u64, self.domains.len() as u64]
    }

    /// Registers the owned cells at their homes and queries the owners of the halo.
    pub fn register(self, bounds: [u64; 4], counts: [u64; 2]) -> (Registered, Messages) {
        let [low, not_high, low_domain, not_high_domain] = bounds;
        let homes = HomesOf {
            cells: Homes::new(low, !not_high, counts[0], self.ranks),
            domains: Homes::new(low_domain, !not_high_domain, counts[1], self.ranks),
        };
        let mut lookups: BTreeMap<usize, Lookup> = BTreeMap::new();
        let mut asked = Asked::new();
        for (index, domain) in self.domains.iter().enumerate() {
            lookups.entry(homes.domains.of(domain.id)).or_default().domains.push(domain.id);
            for chunk in domain.owned.chunk_by(|a, b| homes.cells.of(a.0) == homes.cells.of(b.0)) {
                let ids = chunk.iter().map(|&(id, _)| id).collect();
                lookups.entry(homes.cells.of(chunk[0].0)).or_default().owned.push((domain.id, ids));
            }
            for (position, &(_, id)) in domain.halo.iter().enumerate() {
                let home = homes.cells.of(id);
                lookups.entry(home).or_default().queries.push(id);
                asked.entry(home).or_default().push((index, position));
            }
        }
        let own = lookups.remove(&self.rank);
        let messages = encode_all(&lookups);
        (Registered::new(self, homes, asked, own), messages)
    }
}

/// For each home, the halo cells queried, in the order of the queries: index of the domain and
/// position in its halo.
type Asked = BTreeMap<usize, Vec<(usize, usize)>>;

/// Waits for the owners of its halo cells.
#[derive(Debug)]
pub struct Replied {
    me: Directory,
    asked: Asked,
    own: Option<Reply>,
}

impl Replied {
    /// Takes the homes' replies and requests the halo cells from their owners.
    pub fn request(self, received: &[(usize, Vec<u8>)]) -> Result<(Requested, Messages)> {
        let Self { me, asked, own } = self;
        let replies = decode_all(me.rank, own, received)?;
        me.check_clashes(&replies)?;
        let owners = me.owners(&asked, &replies)?;
        let requests = me.requests(&owners)?;
        let messages = encode_all(requests.iter().filter(|&(&rank, _)| rank != me.rank));
        Ok((Requested { me, requests }, messages))
    }
}

impl Directory {
    fn check_clashes(&self, replies: &BTreeMap<usize, Reply>) -> Result<()> {
        let rank = self.rank;
        match replies.values().flat_map(|reply| &reply.clashes).next() {
            None => Ok(()),
            Some(&Clash::Domain { domain, other }) => {
                Err(UnstructuredError::DomainTwice { domain, rank, other })
            }
            Some(&Clash::Cell { id, domain, other }) => Err(UnstructuredError::OwnedByTwo {
                id,
                rank,
                domain,
                other: other.rank,
                other_domain: other.domain,
            }),
        }
    }

    /// The owner of each halo cell of each domain, `None` if no domain owns it.
    fn owners(&self, asked: &Asked, replies: &BTreeMap<usize, Reply>) -> Result<Vec<Vec<Option<Owner>>>> {
        let mut owners: Vec<_> = self.domains.iter().map(|domain| vec![None; domain.halo.len()]).collect();
        for (&home, cells) in asked {
            let reply =
                replies.get(&home).ok_or(UnstructuredError::NoMessage { from: home, name: Reply::NAME })?;
            let mut cells = cells.iter();
            for run in &reply.owners {
                if run.owner.is_some_and(|owner| owner.rank >= self.ranks) {
                    return Err(wrong::<Reply>(home, "it names a rank that does not exist"));
                }
                for _ in 0..run.count {
                    let &(domain, position) = cells.next().ok_or_else(|| uneven::<Reply>(home))?;
                    owners[domain][position] = run.owner;
                }
            }
            if cells.next().is_some() {
                return Err(uneven::<Reply>(home));
            }
        }
        match replies.iter().find(|(home, reply)| !reply.owners.is_empty() && !asked.contains_key(home)) {
            Some((&home, _)) => Err(uneven::<Reply>(home)),
            None => Ok(owners),
        }
    }

    /// The requests to each owner, including this rank.
    fn requests(&self, owners: &[Vec<Option<Owner>>]) -> Result<BTreeMap<usize, Request>> {
        let mut parts: BTreeMap<(usize, u64, u64), RequestPart> = BTreeMap::new();
        for (domain, owners) in self.domains.iter().zip(owners) {
            let to = domain.id;
            for (position, (&(local, id), owner)) in domain.halo.iter().zip(owners).enumerate() {
                let owner = owner.ok_or(UnstructuredError::OwnedByNobody { domain: to, local, id })?;
                match domain.given.as_ref().map(|given| given[position]) {
                    Some(given) if given != owner.rank => {
                        let owner = owner.rank;
                        return Err(UnstructuredError::WrongOwner { domain: to, local, id, given, owner });
                    }
                    _ => {}
                }
                let part = parts.entry((owner.rank, to, owner.domain)).or_insert_with(|| RequestPart {
                    to,
                    from: owner.domain,
                    ids: Vec::new(),
                    targets: Vec::new(),
                });
                part.ids.push(id);
                part.targets.push(local);
            }
        }
        let mut requests: BTreeMap<usize, Request> = BTreeMap::new();
        for ((rank, ..), part) in parts {
            requests.entry(rank).or_default().parts.push(part);
        }
        Ok(requests)
    }
}

/// Waits for the requests of other ranks.
#[derive(Debug)]
pub struct Requested {
    me: Directory,
    /// The requests of this rank to each owner, including itself.
    requests: BTreeMap<usize, Request>,
}

impl Requested {
    /// Takes the requests of other ranks and answers with the local indices of their cells.
    pub fn answer(self, received: &[(usize, Vec<u8>)]) -> Result<(Answered, Messages)> {
        let Self { me, mut requests } = self;
        let theirs = decode_all(me.rank, requests.remove(&me.rank), received)?;
        let mut answers = BTreeMap::new();
        let mut sends = BTreeMap::new();
        for (&rank, request) in &theirs {
            let sources = request.parts.iter().map(|part| me.sources(rank, part));
            let answer = Answer { parts: sources.collect::<Result<_>>()? };
            sends.insert(rank, transfers(request, &answer));
            answers.insert(rank, answer);
        }
        answers.remove(&me.rank);
        let local = sends.remove(&me.rank).unwrap_or_default();
        Ok((Answered { me, requests, sends, local }, encode_all(&answers)))
    }
}

impl Directory {
    /// Local indices of the cells that `part` requests.
    fn sources(&self, rank: usize, part: &RequestPart) -> Result<Vec<u32>> {
        let content = |what| wrong::<Request>(rank, what);
        let at = self.domains.binary_search_by_key(&part.from, |domain| domain.id);
        let owned = &self.domains[at.map_err(|_| content("it asks a domain that is not here"))?].owned;
        let local = |id| match owned.binary_search_by_key(id, |&(id, _)| id) {
            Ok(at) => Ok(owned[at].1),
            Err(_) => Err(content("it asks for a cell that is not owned here")),
        };
        part.ids.iter().map(local).collect()
    }
}

/// Waits for the local indices of the cells that it receives.
#[derive(Debug)]
pub struct Answered {
    me: Directory,
    /// The requests of this rank to other owners.
    requests: BTreeMap<usize, Request>,
    sends: BTreeMap<usize, Vec<Transfer>>,
    local: Vec<Transfer>,
}

impl Answered {
    /// Takes the owners' answers. Transfers are in ascending order of (`to`, `from`), the same on
    /// both ranks; their cells ascend in `to`.
    pub fn finish(self, received: &[(usize, Vec<u8>)]) -> Result<PatternPlan> {
        let Self { me, requests, sends, local } = self;
        let answers = decode_all::<Answer>(me.rank, None, received)?;
        let mut peers: BTreeMap<usize, Peer> = BTreeMap::new();
        for (rank, sends) in sends {
            peers.insert(rank, Peer { rank, sends, receives: Vec::new() });
        }
        for (&rank, request) in &requests {
            let answer =
                answers.get(&rank).ok_or(UnstructuredError::NoMessage { from: rank, name: Answer::NAME })?;
            let lengths = request.parts.iter().map(|part| part.ids.len());
            if !lengths.eq(answer.parts.iter().map(Vec::len)) {
                return Err(uneven::<Answer>(rank));
            }
            let peer = peers.entry(rank).or_insert_with(|| Peer { rank, ..Peer::default() });
            peer.receives = transfers(request, answer);
        }
        if let Some(&rank) = answers.keys().find(|rank| !requests.contains_key(rank)) {
            return Err(uneven::<Answer>(rank));
        }
        let shape = |domain: &CheckedDomain| DomainShape::Unstructured {
            owned: domain.owned.len(),
            cells: domain.cells,
            levels: domain.levels.clone(),
        };
        Ok(PatternPlan {
            domains: me.domains.iter().map(|domain| (domain.id, shape(domain))).collect(),
            peers: peers.into_values().collect(),
            local,
        })
    }
}

fn transfers(request: &Request, answer: &Answer) -> Vec<Transfer> {
    let pairs = request.parts.iter().zip(&answer.parts);
    pairs
        .map(|(part, sources)| Transfer {
            from: part.from,
            to: part.to,
            source: Cells::from_indices(sources.iter().copied()),
            target: Cells::from_indices(part.targets.iter().copied()),
            map: AxisMap::IDENTITY,
            is_negated: false,
        })
        .collect()
}

fn wrong<M: Message>(from: usize, what: &'static str) -> UnstructuredError {
    UnstructuredError::Message { from, name: M::NAME, what: WireError::Content(what) }
}

fn uneven<M: Message>(from: usize) -> UnstructuredError {
    wrong::<M>(from, "it does not answer what was asked")
}

fn encode_all<'a, M: Message + 'a>(messages: impl IntoIterator<Item = (&'a usize, &'a M)>) -> Messages {
    messages.into_iter().map(|(&rank, message)| (rank, message.encode())).collect()
}

/// The messages received, by sender; `own` is this rank's message to itself.
fn decode_all<M: Message>(
    rank: usize,
    own: Option<M>,
    received: &[(usize, Vec<u8>)],
) -> Result<BTreeMap<usize, M>> {
    let mut messages: BTreeMap<usize, M> = own.map(|message| (rank, message)).into_iter().collect();
    for (from, bytes) in received {
        let wrong = |what| UnstructuredError::Message { from: *from, name: M::NAME, what };
        let message = M::decode(bytes).map_err(wrong)?;
        if messages.insert(*from, message).is_some() {
            return Err(wrong(WireError::Content("it came twice")));
        }
    }
    Ok(messages)
}
