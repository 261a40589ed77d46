//! Random grids, id sets and meshes with random fields, exchanged between threads and compared with the global oracle. Inputs shrink; a
//! hang prints its case and fails.

use halocline::{
    Communicator, Decomposition, ElementType, HaloExchange, LinkChoice, Mesh, Neighbours, Partition, Reduce,
    RegularGrid, UnstructuredDomain,
};
use halocline_conformance::fixtures::{CHOICES, Fixture, Grid, Piece, by, pattern_of, subjects_of};
use halocline_conformance::form::{Form, Kind};
use halocline_conformance::numbers::mix;
use halocline_conformance::subject::{Home, Role};
use halocline_conformance::watchdog::{LIMIT, Watchdog};
use halocline_conformance::{Outcome, Trouble, ensure};
use proptest::collection::vec;
use proptest::prelude::*;
use std::sync::{LazyLock, Mutex, PoisonError};

/// As many cases as `PROPTEST_CASES` says, else few enough for every day.
fn config(cases: u32) -> ProptestConfig {
    let asked = std::env::var_os("PROPTEST_CASES").is_some();
    let usual = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    if asked { usual } else { ProptestConfig { cases, ..usual } }
}

/// Runs `rank` on thread ranks. One case at a time, so that one watchdog does.
fn on_ranks(
    ranks: usize,
    case: &(impl std::fmt::Debug + Sync),
    rank: impl Fn(&Communicator) -> Outcome + Sync,
) -> Result<(), TestCaseError> {
    static WATCHDOG: LazyLock<Mutex<Watchdog>> = LazyLock::new(|| Mutex::new(Watchdog::new(LIMIT)));
    let watchdog = WATCHDOG.lock().unwrap_or_else(PoisonError::into_inner);
    watchdog.begin(format!("{case:?}"));
    let ended: Vec<Outcome> = std::thread::scope(|scope| {
        let rank = &rank;
        let threads: Vec<_> =
            Communicator::threads(ranks).into_iter().map(|comm| scope.spawn(move || rank(&comm))).collect();
        let ended = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err(Trouble::new("a rank has panicked"))));
        ended.collect()
    });
    watchdog.rest();
    let troubles: Vec<String> =
        ended.into_iter().filter_map(Result::err).map(|trouble| trouble.to_string()).collect();
    prop_assert!(troubles.is_empty(), "{}", troubles.join("\n"));
    Ok(())
}

/// What is bound and how, whatever the pattern is.
#[derive(Debug, Clone)]
struct Fields {
    kinds: Vec<(Kind, bool)>,
    /// Dealt out to domains and fields in turn.
    forms: Vec<Form>,
    link: LinkChoice,
    steps: usize,
}

impl Fields {
    fn form(&self, number: u64, domain: u64) -> Form {
        self.forms[((domain + 3 * number) % self.forms.len() as u64) as usize].clone()
    }

    /// Adds all fields to a fixture, by a function that makes the subjects of one.
    fn exchange(
        &self,
        comm: &Communicator,
        add: impl Fn(&mut Fixture, u64, (&Kind, Home), &dyn Fn(u64) -> Form) -> Outcome,
    ) -> Outcome {
        let mut fixture = Fixture::default();
        for (number, (kind, foreign)) in (0..).zip(&self.kinds) {
            let home = if *foreign { Home::Foreign } else { Home::Own };
            add(&mut fixture, number, (kind, home), &|domain| self.form(number, domain))?;
        }
        let halo = fixture.bind(comm, &by(self.link))?;
        fixture.steps(&halo, self.steps)?;
        if !fixture.stays_within(comm)? {
            fixture.packed_step(comm, &halo)?;
        }
        self.among_alternatives(comm, &mut fixture)?;
        let unbound =
            if matches!(self.link, LinkChoice::Message) { LinkChoice::Message } else { LinkChoice::Auto };
        let links = fixture.links(comm, &by(unbound))?;
        fixture.unbound_steps(&links, self.steps)?;
        fixture.steps(&halo, 1)
    }

    /// The same fields, and fewer, as sets of one object.
    fn among_alternatives(&self, comm: &Communicator, fixture: &mut Fixture) -> Outcome {
        let halo = {
            let fields = fixture.fields();
            HaloExchange::bind_alternatives(comm, &[&fields[..0], &fields, &fields], &by(self.link))?
        };
        for step in 0..2 * self.steps {
            halo.begin().set(0).start()?.wait()?;
            fixture.next();
            halo.begin().set(1 + step % 2).start()?.wait()?;
            fixture.check()?;
        }
        Ok(())
    }
}

fn element() -> impl Strategy<Value = ElementType> {
    const NAMED: [ElementType; 6] = [
        ElementType::F64,
        ElementType::F32,
        ElementType::Bool,
        ElementType::Bf16,
        ElementType::C128,
        ElementType::I64,
    ];
    prop_oneof![(0..6usize).prop_map(|at| NAMED[at]), (1..=48u16).prop_map(ElementType::Opaque)]
}

fn kind() -> impl Strategy<Value = Kind> {
    let extra = prop_oneof![Just(vec![]), vec(1..4usize, 1..3)];
    (element(), extra).prop_map(|(element, extra)| Kind { element, extra })
}

fn form() -> impl Strategy<Value = Form> {
    let lists = (vec(0..6u8, 0..7), vec(0..6u8, 0..7), vec(0..9u8, 0..6), vec(any::<bool>(), 0..6));
    (lists, vec((0..3u8, 0..3u8), 0..4)).prop_map(|((order, memory, pads, reversed), slack)| Form {
        order,
        memory,
        pads,
        reversed,
        slack,
    })
}

fn fields() -> impl Strategy<Value = Fields> {
    (vec((kind(), any::<bool>()), 1..4), vec(form(), 1..4), 0..5usize, 1..4usize)
        .prop_map(|(kinds, forms, link, steps)| Fields { kinds, forms, link: CHOICES[link], steps })
}

/// How a grid is cut.
#[derive(Debug, Clone)]
enum Cut {
    LeastSurface {
        domains_per_rank: usize,
    },
    /// Boxes: each split takes a box, an axis and a place; boxes are dealt out by `owners`.
    Boxes {
        splits: Vec<(u8, u8, u8)>,
        owners: Vec<u8>,
    },
}

#[derive(Debug, Clone)]
struct GridCase {
    ranks: usize,
    axes: Vec<(usize, bool, (usize, usize))>,
    neighbours: u8,
    cut: Cut,
    fields: Fields,
}

fn grid_case() -> impl Strategy<Value = GridCase> {
    let axes = prop_oneof![
        vec((1..13usize, any::<bool>(), (0..4usize, 0..4usize)), 1..3),
        vec((1..6usize, any::<bool>(), (0..3usize, 0..3usize)), 3..4),
        vec((1..4usize, any::<bool>(), (0..2usize, 0..2usize)), 4..5),
    ];
    let boxes = (vec(any::<(u8, u8, u8)>(), 0..9), vec(any::<u8>(), 1..10));
    let cut = prop_oneof![
        (1..4usize).prop_map(|domains_per_rank| Cut::LeastSurface { domains_per_rank }),
        boxes.prop_map(|(splits, owners)| Cut::Boxes { splits, owners }),
    ];
    (1..6usize, axes, 0..3u8, cut, fields()).prop_map(|(ranks, axes, neighbours, cut, fields)| GridCase {
        ranks,
        axes,
        neighbours,
        cut,
        fields,
    })
}

impl GridCase {
    fn periodic(&self) -> Vec<bool> {
        self.axes.iter().map(|axis| axis.1).collect()
    }

    /// `None` where the grid cannot be cut like that.
    fn decomposition(&self) -> Option<Decomposition> {
        let extents: Vec<usize> = self.axes.iter().map(|axis| axis.0).collect();
        let grid = RegularGrid::new(extents.clone()).periodic(self.periodic());
        match &self.cut {
            Cut::LeastSurface { domains_per_rank } => {
                grid.domains_per_rank(*domains_per_rank).decompose(self.ranks).ok()
            }
            Cut::Boxes { splits, owners } => {
                let mut boxes = vec![(vec![0; extents.len()], extents)];
                for &(which, axis, place) in splits {
                    let (which, count) = (usize::from(which), boxes.len());
                    let (first, extent) = &mut boxes[which % count];
                    let axis = usize::from(axis) % extent.len();
                    let lower = usize::from(place) % extent[axis];
                    if lower > 0 {
                        let mut upper = (first.clone(), extent.clone());
                        upper.0[axis] += lower;
                        upper.1[axis] -= lower;
                        extent[axis] = lower;
                        boxes.push(upper);
                    }
                }
                let owner = |at: usize| usize::from(owners[at % owners.len()]) % self.ranks;
                let owned =
                    boxes.into_iter().enumerate().map(|(at, (first, extent))| (owner(at), first, extent));
                grid.decompose_boxes(owned.collect(), self.ranks).ok()
            }
        }
    }

    fn grid(&self, decomposition: Decomposition) -> Grid {
        let widths: Vec<(usize, usize)> = self.axes.iter().map(|axis| axis.2).collect();
        let neighbours = [Neighbours::All, Neighbours::Faces, Neighbours::FacesAndEdges];
        let neighbours = neighbours[usize::from(self.neighbours)];
        Grid { neighbours, ..Grid::cut(decomposition, &self.periodic(), &widths) }
    }
}

fn run_grid(comm: &Communicator, grid: &Grid, fields: &Fields) -> Outcome {
    let pattern = grid.pattern(comm)?;
    fields.exchange(comm, |fixture, number, what, form| {
        let subjects = grid.subjects(comm, &pattern, number, what, form)?;
        let owned: usize = subjects.iter().map(|subject| subject.count(Role::Owned)).sum();
        let all = comm.all_reduce(&[owned as u64], Reduce::Sum)?;
        let cells: usize = grid.decomposition.extents().iter().product();
        ensure!(all == [cells as u64], "{all:?} cells are owned, the grid has {cells}");
        fixture.add(&pattern, subjects);
        Ok(())
    })
}

/// A set of ids: the owner of each cell, the halo cells of each domain, and their local order.
#[derive(Debug, Clone)]
struct IdsCase {
    ranks: usize,
    domains_per_rank: usize,
    owners: Vec<u8>,
    wants: Vec<(u8, u8)>,
    order: Vec<u8>,
    by_owners: bool,
    fields: Fields,
}

fn ids_case() -> impl Strategy<Value = IdsCase> {
    let sets = (vec(any::<u8>(), 1..60), vec(any::<(u8, u8)>(), 0..120), vec(any::<u8>(), 0..60));
    (1..6usize, 1..4usize, sets, any::<bool>(), fields()).prop_map(
        |(ranks, domains_per_rank, (owners, wants, order), by_owners, fields)| IdsCase {
            ranks,
            domains_per_rank,
            owners,
            wants,
            order,
            by_owners,
            fields,
        },
    )
}

impl IdsCase {
    fn owner(&self, cell: usize) -> usize {
        usize::from(self.owners[cell]) % (self.ranks * self.domains_per_rank)
    }

    fn pieces(&self, rank: usize) -> Vec<Piece> {
        let domains = self.ranks * self.domains_per_rank;
        (0..domains)
            .filter(|domain| domain % self.ranks == rank)
            .map(|domain| self.piece(rank, domain))
            .collect()
    }

    fn piece(&self, rank: usize, domain: usize) -> Piece {
        let cells = self.owners.len();
        let domains = self.ranks * self.domains_per_rank;
        // Owners cannot tell a halo cell that another domain of the same rank owns.
        let allowed = |cell: usize| !self.by_owners || self.owner(cell) % self.ranks != rank;
        let wanted = |&(by, cell): &(u8, u8)| {
            let cell = usize::from(cell) % cells;
            (usize::from(by) % domains == domain && self.owner(cell) != domain && allowed(cell))
                .then_some(cell)
        };
        let mut local: Vec<usize> = (0..cells).filter(|&cell| self.owner(cell) == domain).collect();
        local.extend(self.wants.iter().filter_map(wanted));
        let key = |cell: usize| (self.order.get(cell).copied().unwrap_or(0), cell);
        local.sort_by_key(|&cell| key(cell));
        local.dedup();
        let halo: Vec<bool> = local.iter().map(|&cell| self.owner(cell) != domain).collect();
        let ids = local.iter().map(|&cell| mix(cell as u64)).collect();
        let number = domain as u64;
        let domain = if self.by_owners {
            let owners = local.iter().map(|&cell| self.owner(cell) % self.ranks).collect();
            UnstructuredDomain::from_owners(number, rank, ids, owners)
        } else {
            let indices: Vec<usize> = (0..local.len()).filter(|&at| halo[at]).collect();
            UnstructuredDomain::from_indices(number, ids, &indices)
        };
        Piece::new(domain, halo)
    }
}

fn run_pieces(comm: &Communicator, kinds: &[Vec<Piece>], fields: &Fields) -> Outcome {
    let mut patterns = Vec::new();
    for pieces in kinds {
        patterns.push(pattern_of(comm, pieces)?);
    }
    fields.exchange(comm, |fixture, number, what, form| {
        // The fields take turns with the kinds of cells.
        let at = number as usize % kinds.len();
        fixture.add(&patterns[at], subjects_of(comm, &kinds[at], number, what, form)?);
        Ok(())
    })
}

#[derive(Debug, Clone)]
struct MeshCase {
    ranks: usize,
    vertices: usize,
    triangles: Vec<(u8, u8, u8)>,
    owners: Vec<u8>,
    by_element: bool,
    fields: Fields,
}

fn mesh_case() -> impl Strategy<Value = MeshCase> {
    let triangles = vec(any::<(u8, u8, u8)>(), 0..40);
    (1..6usize, 1..30usize, triangles, vec(any::<u8>(), 1..40), any::<bool>(), fields()).prop_map(
        |(ranks, vertices, triangles, owners, by_element, fields)| MeshCase {
            ranks,
            vertices,
            triangles,
            owners,
            by_element,
            fields,
        },
    )
}

fn run_mesh(comm: &Communicator, case: &MeshCase) -> Outcome {
    let vertex = |number: u8| u32::from(number) % case.vertices as u32;
    let corners = case.triangles.iter().flat_map(|&(a, b, c)| [vertex(a), vertex(b), vertex(c)]).collect();
    let mesh = Mesh::new(case.vertices, 3, corners)?;
    let cells = if case.by_element { mesh.elements().len() } else { mesh.vertices() };
    let owner = |cell: usize| usize::from(case.owners[cell % case.owners.len()]) % case.ranks;
    let partition = Partition::given((0..cells).map(owner).collect(), case.ranks)?;
    let domains = match case.by_element {
        true => mesh.domains_by_element(&partition, comm.rank())?,
        false => mesh.domains_by_vertex(&partition, comm.rank())?,
    };
    let (nodes, triangles) = Piece::pair_of(&domains);
    run_pieces(comm, &[vec![nodes], vec![triangles]], &case.fields)
}

proptest! {
    #![proptest_config(config(150))]

    #[test]
    fn regular_grids(case in grid_case()) {
        let decomposition = case.decomposition();
        prop_assume!(decomposition.is_some());
        if let Some(decomposition) = decomposition {
            let grid = case.grid(decomposition);
            on_ranks(case.ranks, &case, |comm| run_grid(comm, &grid, &case.fields))?;
        }
    }

    #[test]
    fn sets_of_ids(case in ids_case()) {
        on_ranks(case.ranks, &case, |comm| run_pieces(comm, &[case.pieces(comm.rank())], &case.fields))?;
    }

    #[test]
    fn meshes(case in mesh_case()) {
        on_ranks(case.ranks, &case, |comm| run_mesh(comm, &case))?;
    }
}
