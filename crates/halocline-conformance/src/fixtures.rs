//! Fixtures: a pattern, its fields under test, and the steps that every case takes with them.

use crate::by_hand;
use crate::form::{Form, Kind};
use crate::numbers::{Numbers, mix};
use crate::stage::Stage;
use crate::subject::{Home, Place, Role, Subject};
use crate::{Outcome, Trouble, ensure};
use halocline::{
    BindOptions, Communicator, Decomposed, Decomposition, Direction, DomainShape, Error, Field, Halo,
    HaloExchange, LinkChoice, LinkInfo, MeshDomains, Neighbours, Pattern, PatternLinks, Reduce, RegularGrid,
    Stream, UnstructuredDomain,
};
use halocline_comm::{Endpoint, Tag};
use std::collections::HashSet;
use std::sync::Arc;

/// All link choices.
pub const CHOICES: [LinkChoice; 5] =
    [LinkChoice::Auto, LinkChoice::Push, LinkChoice::Pull, LinkChoice::Mailbox, LinkChoice::Message];

/// All link choices; those that these ranks cannot take are replaced by messages.
pub fn choices(comm: &Communicator) -> [LinkChoice; 5] {
    if shares_memory(comm) { CHOICES } else { CHOICES.map(without_memory) }
}

fn without_memory(link: LinkChoice) -> LinkChoice {
    if link == LinkChoice::Auto { LinkChoice::Auto } else { LinkChoice::Message }
}

/// Whether all ranks share memory; the same on all of them.
pub fn shares_memory(comm: &Communicator) -> bool {
    (0..comm.size()).all(|rank| comm.link().bell(rank).is_some())
}

/// Options that force a path.
pub fn by(link: LinkChoice) -> BindOptions {
    BindOptions::default().link(link)
}

/// A regular grid with halos.
#[derive(Debug, Clone)]
pub struct Grid {
    /// The grid of domains.
    pub decomposition: Decomposition,
    /// Periodic axes.
    pub periodic: Vec<bool>,
    /// Halo widths of each axis, low and high.
    pub widths: Vec<(usize, usize)>,
    /// Which halo cells are filled.
    pub neighbours: Neighbours,
    /// How far from the domain halo cells are filled: the widths, unless the pattern is narrowed.
    pub filled: Vec<(usize, usize)>,
}

impl Grid {
    /// A grid decomposed over all ranks with the least surface.
    pub fn new(ranks: usize, extents: &[usize], periodic: &[bool], width: usize) -> Result<Self, Trouble> {
        let grid = RegularGrid::new(extents).periodic(periodic);
        Ok(Self::cut(grid.decompose(ranks)?, periodic, &vec![(width, width); extents.len()]))
    }

    /// A grid with the given decomposition.
    pub fn cut(decomposition: Decomposition, periodic: &[bool], widths: &[(usize, usize)]) -> Self {
        let (periodic, widths) = (periodic.to_vec(), widths.to_vec());
        Self { decomposition, periodic, filled: widths.clone(), widths, neighbours: Neighbours::All }
    }

    /// The halo spec.
    pub fn halo(&self) -> Halo {
        Halo::per_axis(self.widths.clone()).neighbours(self.neighbours)
    }

    /// The pattern. Collective.
    pub fn pattern(&self, comm: &Communicator) -> Result<Pattern, Error> {
        self.decomposition.pattern(comm, self.halo())
    }

    /// Global number and role of the cell at coordinate `at`, relative to the first owned cell of a domain. Computed independently
    /// of the code under test.
    fn cell(&self, first: &[i64], owned: &[usize], at: &[i64]) -> (u64, Role) {
        let (mut id, mut outside, mut spare) = (0, 0, false);
        for axis in 0..at.len() {
            let extent = self.decomposition.extents()[axis] as i64;
            let (low, high) = (self.filled[axis].0 as i64, self.filled[axis].1 as i64);
            let owned = owned[axis] as i64;
            let global = first[axis] + at[axis];
            outside += usize::from(at[axis] < 0 || at[axis] >= owned);
            spare |= at[axis] < -low || at[axis] >= owned + high;
            spare |= !self.periodic[axis] && (global < 0 || global >= extent);
            id = id * extent as u64 + global.rem_euclid(extent) as u64;
        }
        let most = match self.neighbours {
            Neighbours::Faces => 1,
            Neighbours::FacesAndEdges => 2,
            Neighbours::All => usize::MAX,
        };
        let role = match outside {
            0 => Role::Owned,
            _ if spare || outside > most => Role::Spare,
            _ => Role::Halo,
        };
        (id, if spare { Role::Spare } else { role })
    }

    /// Field number `number` of every domain of this rank.
    pub fn subjects(
        &self,
        comm: &Communicator,
        pattern: &Pattern,
        number: u64,
        (kind, home): (&Kind, Home),
        form: impl Fn(u64) -> Form,
    ) -> Result<Vec<Subject>, Trouble> {
        let mut subjects = Vec::new();
        for (domain, shape) in &pattern.plan().domains {
            let DomainShape::Regular { first, owned, halo } = shape else {
                return Err(Trouble::new("a regular pattern has an unstructured domain"));
            };
            ensure!(*halo == self.widths, "domain {domain} has other halo widths: {halo:?}");
            let form = form(*domain);
            let axes = 0..owned.len();
            let origin: Vec<usize> = axes.clone().map(|a| form.slack(a).0 + self.widths[a].0).collect();
            let extents: Vec<usize> =
                axes.map(|a| origin[a] + owned[a] + self.widths[a].1 + form.slack(a).1).collect();
            let places: Vec<Place> = indices(&extents)
                .map(|index| {
                    let at: Vec<i64> =
                        index.iter().zip(&origin).map(|(&i, &o)| i as i64 - o as i64).collect();
                    let (id, role) = self.cell(first, owned, &at);
                    (index, id, role)
                })
                .collect();
            let what = (kind, &form, home);
            subjects.push(Subject::new(comm, (*domain, number), what, (&extents, &origin), places)?);
        }
        Ok(subjects)
    }
}

/// All indices of an array, the last dimension fastest.
fn indices(extents: &[usize]) -> impl Iterator<Item = Vec<usize>> {
    let count: usize = extents.iter().product();
    (0..count).map(move |mut rest| {
        let mut index = vec![0; extents.len()];
        for (i, &extent) in index.iter_mut().zip(extents).rev() {
            *i = rest % extent;
            rest /= extent;
        }
        index
    })
}

/// One unstructured domain and the roles of its local cells.
#[derive(Debug, Clone)]
pub struct Piece {
    /// The domain for the library.
    pub domain: UnstructuredDomain,
    /// Global number and role of each local cell.
    pub roles: Vec<Role>,
}

impl Piece {
    /// A domain of a mesh, whose owned cells come first.
    pub fn of_mesh(domain: &UnstructuredDomain, owned: usize) -> Self {
        let halo = (0..domain.cells().len()).map(|local| local >= owned);
        Self::new(domain.clone(), halo)
    }

    /// A domain, and for each local cell whether it is halo.
    pub fn new(domain: UnstructuredDomain, halo: impl IntoIterator<Item = bool>) -> Self {
        let role = |halo| if halo { Role::Halo } else { Role::Owned };
        Self { domain, roles: halo.into_iter().map(role).collect() }
    }

    /// The same domain where only a halo of that depth is filled.
    pub fn narrowed(mut self, depth: usize) -> Self {
        let end = self.domain.levels()[depth];
        for role in self.roles[end..].iter_mut().filter(|role| **role == Role::Halo) {
            *role = Role::Spare;
        }
        self
    }

    /// Vertices and elements of a rank's part of a mesh.
    pub fn pair_of(mesh: &MeshDomains) -> (Self, Self) {
        (
            Self::of_mesh(mesh.vertices(), mesh.owned_vertices()),
            Self::of_mesh(mesh.elements(), mesh.owned_elements()),
        )
    }
}

/// The form in which a random domain is described to the library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DomainForm {
    /// Owned cells, then halo cells.
    OwnedThenHalo,
    /// Cells in any order, and the indices of the halo.
    ByIndices,
    /// Cells in any order, and the owner of each.
    ByOwners,
}

/// A random distribution of cells over domains. Every rank generates the same one and takes its part.
#[derive(Debug, Clone)]
pub struct Cloud {
    /// The seed.
    pub seed: u64,
    /// Number of cells.
    pub cells: usize,
    /// Domains of each rank.
    pub domains_per_rank: usize,
    /// Halo cells wanted by each domain.
    pub halo: usize,
    /// The form of its domains.
    pub form: DomainForm,
    /// Chance of a cell to follow its predecessor into its domain, in percent.
    pub coherence: usize,
}

impl Cloud {
    /// The global id of cell `cell`: spread over all 64 bits.
    fn id(&self, cell: usize) -> u64 {
        mix(self.seed ^ mix(cell as u64))
    }

    /// The domains of a rank.
    pub fn pieces(&self, rank: usize, ranks: usize) -> Vec<Piece> {
        let domains = ranks * self.domains_per_rank;
        let mut numbers = Numbers::new(self.seed);
        let mut owner: Vec<usize> = Vec::with_capacity(self.cells);
        for _ in 0..self.cells {
            let follows = numbers.below(100) < self.coherence;
            let next = numbers.below(domains);
            owner.push(owner.last().copied().filter(|_| follows).unwrap_or(next));
        }
        let mine = (0..domains).filter(|domain| domain % ranks == rank);
        mine.map(|domain| self.piece(domain, (rank, ranks), &owner)).collect()
    }

    fn piece(&self, domain: usize, (rank, ranks): (usize, usize), owner: &[usize]) -> Piece {
        let mut numbers = Numbers::new(self.seed ^ mix(domain as u64 + 1));
        let owned: Vec<usize> = (0..self.cells).filter(|&cell| owner[cell] == domain).collect();
        // The owners form cannot tell a halo cell that another domain of the same rank owns.
        let foreign = |cell: &usize| match self.form {
            DomainForm::ByOwners => owner[*cell] % ranks != rank,
            _ => owner[*cell] != domain,
        };
        let mut others: Vec<usize> = (0..self.cells).filter(foreign).collect();
        numbers.shuffle(&mut others);
        others.truncate(self.halo);
        let number = domain as u64 * 1001 + 7;
        let ids = |cells: &[usize]| cells.iter().map(|&cell| self.id(cell)).collect::<Vec<u64>>();
        if self.form == DomainForm::OwnedThenHalo {
            let domain = UnstructuredDomain::new(number, ids(&owned), ids(&others));
            return Piece::of_mesh(&domain, owned.len());
        }
        let mut local: Vec<usize> = owned.iter().chain(&others).copied().collect();
        numbers.shuffle(&mut local);
        let halo: Vec<bool> = local.iter().map(|&cell| owner[cell] != domain).collect();
        let domain = match self.form {
            DomainForm::ByOwners => {
                let owners = local.iter().map(|&cell| owner[cell] % ranks).collect();
                UnstructuredDomain::from_owners(number, rank, ids(&local), owners)
            }
            _ => {
                let indices: Vec<usize> = (0..local.len()).filter(|&at| halo[at]).collect();
                UnstructuredDomain::from_indices(number, ids(&local), &indices)
            }
        };
        Piece::new(domain, halo)
    }
}

/// The pattern of a rank's pieces. Collective.
pub fn pattern_of(comm: &Communicator, pieces: &[Piece]) -> Result<Pattern, Error> {
    let domains: Vec<UnstructuredDomain> = pieces.iter().map(|piece| piece.domain.clone()).collect();
    Pattern::unstructured(comm, &domains)
}

/// Field number `number` of every piece.
pub fn subjects_of(
    comm: &Communicator,
    pieces: &[Piece],
    number: u64,
    (kind, home): (&Kind, Home),
    form: impl Fn(u64) -> Form,
) -> Result<Vec<Subject>, Trouble> {
    let subject = |piece: &Piece| {
        let form = form(piece.domain.id());
        let cells = piece.domain.cells();
        let extent = cells.len() + form.slack(0).1;
        let known = cells.iter().enumerate().map(|(at, &id)| (vec![at], id, piece.roles[at]));
        let spare = (cells.len()..extent).map(|at| (vec![at], 0, Role::Spare));
        let what = (kind, &form, home);
        Subject::new(comm, (piece.domain.id(), number), what, (&[extent], &[0]), known.chain(spare))
    };
    pieces.iter().map(subject).collect()
}

/// Patterns with their fields.
#[derive(Default)]
pub struct Fixture {
    groups: Vec<(Pattern, Vec<Subject>)>,
    step: u64,
}

impl Fixture {
    /// A fixture of one group of fields.
    pub fn of(pattern: Pattern, subjects: Vec<Subject>) -> Self {
        Self { groups: vec![(pattern, subjects)], step: 0 }
    }

    /// A field of doubles in C order on a grid.
    pub fn simple(comm: &Stage<'_>, grid: &Grid) -> Result<Self, Trouble> {
        let pattern = grid.pattern(comm)?;
        let kind = Kind::plain(halocline::ElementType::F64);
        let subjects = grid.subjects(comm, &pattern, 0, (&kind, comm.home()), |_| Form::default())?;
        Ok(Self::of(pattern, subjects))
    }

    /// More fields, of the same or of another pattern.
    pub fn add(&mut self, pattern: &Pattern, subjects: Vec<Subject>) {
        self.groups.push((pattern.clone(), subjects));
    }

    /// All fields, in the order of the bind.
    pub fn subjects(&self) -> impl Iterator<Item = &Subject> {
        self.groups.iter().flat_map(|(_, subjects)| subjects)
    }

    /// Number of halo cells that exchanges of this fixture fill here.
    pub fn halo_cells(&self) -> usize {
        self.subjects().map(|subject| subject.count(Role::Halo)).sum()
    }

    /// All fields with their patterns, as a bind takes them.
    pub fn fields(&self) -> Vec<(&Pattern, &Field)> {
        self.groups
            .iter()
            .flat_map(|(pattern, subjects)| subjects.iter().map(move |subject| (pattern, subject.field())))
            .collect()
    }

    /// Binds all fields. Collective.
    pub fn bind(&self, comm: &Communicator, options: &BindOptions) -> Result<HaloExchange, Error> {
        HaloExchange::bind_with(comm, self.fields(), options)
    }

    /// Begins the next step: writes new data everywhere. No exchange may be in flight.
    pub fn next(&mut self) {
        self.step += 1;
        let step = self.step;
        self.groups.iter_mut().flat_map(|(_, subjects)| subjects).for_each(|subject| subject.fill(step));
    }

    /// Compares everything with the oracle after the exchange of the step.
    pub fn check(&self) -> Outcome {
        self.subjects().try_for_each(Subject::check)
    }

    /// Fills, exchanges, waits and compares, `steps` times.
    pub fn steps(&mut self, halo: &HaloExchange, count: usize) -> Outcome {
        (0..count).try_for_each(|_| self.step_of(halo, 0))
    }

    /// One step of one of several sets. Every other exchange of device fields is a scheduled one, unless only a wait on the host carries it
    /// on: that is refused.
    pub fn step_of(&mut self, halo: &HaloExchange, set: usize) -> Outcome {
        self.next();
        match self.stream().filter(|_| self.step.is_multiple_of(2)) {
            None => halo.begin().set(set).start()?.wait()?,
            Some(stream) => match halo.begin().set(set).after(&[&stream]).schedule() {
                Err(Error::NotDriven) => {
                    let pending = halo.begin().set(set).after(&[&stream]).start()?;
                    let refused = pending.schedule_wait(&stream);
                    ensure!(matches!(refused, Err(Error::NotDriven) | Ok(())), "{refused:?}");
                    pending.wait()?;
                }
                pending => {
                    pending?.schedule_wait(&stream)?;
                    stream.synchronise()?;
                }
            },
        }
        self.check()
    }

    /// A stream of the device that fields of this rank lie on, if any do.
    fn stream(&self) -> Option<Arc<Stream>> {
        self.subjects().find_map(Subject::stream)
    }

    /// As [`Fixture::steps`], but sends packed messages without the library's exchange. Only for fixtures without transfers within a rank.
    /// Collective.
    pub fn packed_step(&mut self, comm: &Communicator, halo: &HaloExchange) -> Outcome {
        let operation = comm.begin();
        let (tag, stream) = (Tag { operation, round: 0 }, self.stream());
        self.next();
        for LinkInfo { peer, .. } in halo.links().filter(|link| link.direction == Direction::Send) {
            comm.send(peer, tag, by_hand::pack(halo, peer, stream.as_deref())?)?;
        }
        for LinkInfo { peer, .. } in halo.links().filter(|link| link.direction == Direction::Receive) {
            let message = comm.receive(Some(peer), tag, "a packed message")?;
            by_hand::unpack(halo, peer, &message.payload, stream.as_deref())?;
        }
        self.check()
    }

    /// Whether domains of one rank exchange with each other, on any rank. Collective.
    pub fn stays_within(&self, comm: &Communicator) -> Result<bool, Error> {
        let within = self.groups.iter().any(|(pattern, _)| !pattern.plan().local.is_empty());
        Ok(comm.all_reduce(&[u8::from(within)], Reduce::Max)? == [1])
    }

    /// Jumps to a step.
    pub fn go_to(&mut self, step: u64) {
        self.step = step - 1;
        self.next();
    }

    /// Links for all patterns, without fields. Collective.
    pub fn links(&self, comm: &Communicator, options: &BindOptions) -> Result<PatternLinks, Error> {
        let patterns: Vec<&Pattern> = self.groups.iter().map(|(pattern, _)| pattern).collect();
        PatternLinks::new_with(comm, &patterns, options)
    }

    /// As [`Fixture::steps`], giving the fields to each exchange.
    pub fn unbound_steps(&mut self, links: &PatternLinks, count: usize) -> Outcome {
        for _ in 0..count {
            self.next();
            links.exchange(&self.fields())?.wait()?;
            self.check()?;
        }
        Ok(())
    }

    /// Binds with every path and makes a few steps with each, also packed by hand; host fields also unbound.
    pub fn every_path(&mut self, comm: &Stage<'_>, count: usize) -> Outcome {
        for link in comm.paths() {
            let halo = self.bind(comm, &by(link))?;
            self.steps(&halo, count).map_err(|trouble| Trouble::new(format!("{link:?}: {trouble}")))?;
            if !self.stays_within(comm)? {
                let ended = self.packed_step(comm, &halo);
                ended.map_err(|trouble| Trouble::new(format!("packed, {link:?}: {trouble}")))?;
            }
        }
        let unbound: &[LinkChoice] =
            if comm.is_on_device() { &[] } else { &[LinkChoice::Auto, LinkChoice::Message] };
        for &link in unbound {
            let links = self.links(comm, &by(link))?;
            let ended = self.unbound_steps(&links, count);
            ended.map_err(|trouble| Trouble::new(format!("unbound, {link:?}: {trouble}")))?;
        }
        Ok(())
    }
}

/// A ring: a periodic grid of one axis, the same number of cells on each rank, width 1.
pub fn ring(comm: &Communicator) -> Result<Grid, Trouble> {
    Grid::new(comm.size(), &[4 * comm.size()], &[true], 1)
}

/// The neighbours of this rank in [`ring`], without itself.
pub fn ring_neighbours(rank: usize, ranks: usize) -> HashSet<usize> {
    let both = [(rank + 1) % ranks, (rank + ranks - 1) % ranks];
    both.into_iter().filter(|&other| other != rank).collect()
}
