//! Patterns that all ranks of a communicator agree on.

use crate::agree::{agree, same_as_rank_0};
use crate::directory;
use crate::error::Error;
use crate::patches::Patches;
use halocline_comm::{Communicator, Endpoint};
use halocline_plan::{Decomposition, Halo, PatternPlan, RegularGrid, Side, UnstructuredDomain};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// The cells that the domains of this rank send to and receive from other domains. Made collectively, once; it contains
/// no fields. A clone is the same pattern.
///
/// ```
/// use halocline::{Communicator, Decomposed, RegularGrid};
///
/// let comm = Communicator::init()?;
/// let pattern = RegularGrid::new((8, 6)).pattern(&comm, 1)?;
/// assert_eq!(pattern.domains().len(), 1);
/// # Ok::<(), halocline::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Pattern {
    id: u64,
    plan: Arc<PatternPlan>,
    kind: Kind,
    /// Of a pattern of vectors: the component that its fields are.
    pub(crate) component: Option<usize>,
}

/// The source of a pattern.
#[derive(Debug, Clone)]
pub(crate) enum Kind {
    Regular(Arc<Grid>),
    Patches(Arc<Patches>),
    /// The domains of this rank as they were given.
    Unstructured(Arc<[UnstructuredDomain]>),
    /// Its domains are those of two sides ([`Side::number`]).
    Redistribution,
}

#[derive(Debug)]
pub(crate) struct Grid {
    pub(crate) decomposition: Decomposition,
    /// Of the arrays.
    pub(crate) around: Halo,
    /// What is filled of it.
    filled: Halo,
}

impl Pattern {
    /// The pattern of a regular grid. Collective: all ranks give the same decomposition and halo. They
    /// communicate only to check that and to agree on errors. Blocks until all ranks have called it.
    ///
    /// Fails with [`Error::DecomposedFor`] for a decomposition for another number of ranks, [`Error::Pattern`] for a halo that the grid
    /// cannot have, [`Error::Differs`] if a rank gives other arguments than rank 0; and with [`Error::Elsewhere`] on the other ranks.
    pub fn regular(comm: &Communicator, decomposition: &Decomposition, halo: &Halo) -> Result<Self, Error> {
        let grid = Grid { decomposition: decomposition.clone(), around: halo.clone(), filled: halo.clone() };
        Self::of_grid(comm, grid)
    }

    fn of_grid(comm: &Communicator, grid: Grid) -> Result<Self, Error> {
        let comm = &comm.within("pattern");
        let Grid { decomposition, around, filled } = &grid;
        let plan = for_ranks_of(comm, decomposition).and_then(|()| {
            decomposition.narrowed_pattern_of(comm.rank(), around, filled).map_err(Error::from)
        });
        let same = same_everywhere(comm, (decomposition, around, filled), "decomposition or halo")?;
        let plan = plan.and_then(|plan| same.map(|()| plan));
        Self::agreed(comm, plan, Kind::Regular(Arc::new(grid)))
    }

    /// The pattern of domains given by global ids or owners. Collective: each rank gives its own domains, any number of them. Blocks
    /// until all ranks have called it. A distributed directory finds the owners of halo cells: no rank holds more than its share of
    /// the ids.
    ///
    /// Fails with [`Error::Pattern`] for domains that contradict themselves or those of other ranks: an id that no domain owns or that
    /// two own, for instance; and with [`Error::Elsewhere`] on the other ranks.
    pub fn unstructured(comm: &Communicator, domains: &[UnstructuredDomain]) -> Result<Self, Error> {
        let comm = &comm.within("pattern");
        let plan = directory::unstructured(comm, domains);
        Self::agreed(comm, plan, Kind::Unstructured(domains.into()))
    }

    /// The pattern that fills only the narrower halo `to`. Collective: all ranks give the same, on the communicator of this
    /// pattern.
    ///
    /// The domains and their arrays stay the same: fields bound to this pattern can be bound to the narrowed one, too. A regular pattern takes any `to` that is no wider on any side
    /// ([`Halo::narrowed`]). An unstructured one takes [`Halo::uniform`] of a depth that all its domains
    /// have ([`UnstructuredDomain::with_levels`]), and costs one message from each rank to those that fill
    /// its halos. One of a redistribution is refused: it fills no halo.
    pub fn narrowed(&self, comm: &Communicator, to: &Halo) -> Result<Self, Error> {
        let comm = &comm.within("narrowed");
        if let Kind::Regular(grid) = &self.kind {
            let Grid { decomposition, around, filled } = &**grid;
            let narrowed = filled.narrowed(to, decomposition.extents().len()).map_err(Error::from);
            let grid = |filled| Grid { filled, around: around.clone(), decomposition: decomposition.clone() };
            return Self::of_grid(comm, grid(agree(comm, narrowed)?));
        }
        if let Kind::Patches(patches) = &self.kind {
            let narrowed = patches.narrowed(to).map_err(Error::from);
            let narrowed = Self::patches_within(comm, agree(comm, narrowed)?)?;
            return Ok(Self { component: self.component, ..narrowed });
        }
        let same = same_everywhere(comm, to, "halo to narrow to")?;
        let ends = same.and_then(|()| match self.kind {
            Kind::Redistribution => Err(Error::OfRedistribution { what: "narrowed" }),
            _ => Ok(self.plan.depth_ends(to)?),
        });
        let (ends, messages) = agree(comm, ends)?;
        let narrowed = self.plan.narrowed(&ends, &comm.sparse_exchange(messages)?);
        Self::agreed(comm, narrowed.map_err(Error::from), self.kind.clone())
    }

    /// The pattern of `plan` on all ranks, unless it is an error or fails its check on one of them.
    pub(crate) fn agreed(
        comm: &Communicator,
        plan: Result<PatternPlan, Error>,
        kind: Kind,
    ) -> Result<Self, Error> {
        let id = comm.begin();
        let checked = plan.and_then(|plan| {
            match kind {
                Kind::Redistribution => plan.check_redistribution(),
                Kind::Patches(_) => plan.check_patches(),
                Kind::Regular(_) | Kind::Unstructured(_) => plan.check(),
            }?;
            Ok(plan)
        });
        Ok(Self { id, plan: Arc::new(agree(comm, checked)?), kind, component: None })
    }

    /// The pattern of a redistribution, unless its plan is an error, or fails its check, on one of the ranks.
    pub(crate) fn of_redistribution(
        comm: &Communicator,
        plan: Result<PatternPlan, Error>,
    ) -> Result<Self, Error> {
        Self::agreed(comm, plan, Kind::Redistribution)
    }

    /// The domains of this rank as they were given, of an unstructured pattern.
    pub(crate) fn listed(&self) -> &[UnstructuredDomain] {
        match &self.kind {
            Kind::Unstructured(domains) => domains,
            Kind::Regular(_) | Kind::Patches(_) | Kind::Redistribution => &[],
        }
    }

    /// The transfers of this rank as pure data.
    pub fn plan(&self) -> &PatternPlan {
        &self.plan
    }

    pub(crate) fn kind(&self) -> &Kind {
        &self.kind
    }

    /// The number of the pattern: the same on all ranks, and unique.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// The user's name of domain `number` of the pattern.
    pub(crate) fn domain_name(&self, number: u64) -> DomainName {
        let (number, component) = self.split(number);
        let (side, number) = match self.kind {
            Kind::Redistribution => {
                let (side, number) = Side::of(number);
                (Some(side), number)
            }
            Kind::Regular(_) | Kind::Patches(_) | Kind::Unstructured(_) => (None, number),
        };
        // There are two at most.
        DomainName { number, side, component: component.map(|component| component as u8) }
    }

    /// The number in the plan of a domain that the user names, or of the only one; otherwise, all numbers that the user could name.
    pub(crate) fn domain_of(&self, named: Option<u64>) -> Result<u64, Vec<u64>> {
        let own = |number: &u64| self.component.is_none_or(|own| self.split(*number).1 == Some(own));
        match (named, self.component) {
            (Some(number), Some(component)) => {
                Ok(number.saturating_mul(self.components()) + component as u64)
            }
            (Some(number), None) => Ok(number),
            (None, _) => {
                let all: Vec<u64> = self.plan.domains.iter().map(|(number, _)| *number).filter(own).collect();
                match all[..] {
                    [only] => Ok(only),
                    _ if self.component.is_some() => {
                        Err(all.iter().map(|number| self.split(*number).0).collect())
                    }
                    _ => Err(all),
                }
            }
        }
    }

    /// The same pattern for fields of one component of its vectors. It has the domains of that component. Not collective.
    ///
    /// [`Error::NoComponent`] if the pattern is not one of vectors, or has no such component.
    pub fn component(&self, component: usize) -> Result<Self, Error> {
        let components = match self.kind() {
            Kind::Patches(patches) if patches.quantity.components() > 1 => patches.quantity.components(),
            _ => 0,
        };
        match component < components {
            true => Ok(Self { component: Some(component), ..self.clone() }),
            false => Err(Error::NoComponent { component, components }),
        }
    }

    /// The component that its fields are, of a pattern made by [`Pattern::component`].
    pub fn component_of_fields(&self) -> Option<usize> {
        self.component
    }

    /// The same pattern with domains as they are numbered in its plan.
    pub(crate) fn all_components(&self) -> Self {
        Self { component: None, ..self.clone() }
    }

    /// A domain of the plan as a domain of patches and a component, if the pattern is one of vectors.
    fn split(&self, number: u64) -> (u64, Option<usize>) {
        match self.components() {
            1 => (number, None),
            components => (number / components, Some((number % components) as usize)),
        }
    }

    /// Domains of the plan for each domain of a grid.
    fn components(&self) -> u64 {
        match &self.kind {
            Kind::Patches(patches) => patches.quantity.components() as u64,
            _ => 1,
        }
    }
}

/// The number that the user gave a domain.
///
/// ```
/// use halocline::{DomainName, Side};
///
/// let name = DomainName { number: 3, side: None, component: None };
/// assert_eq!(name.to_string(), "domain 3");
/// // One of a redistribution.
/// let name = DomainName { side: Some(Side::Second), ..name };
/// assert_eq!(name.to_string(), "domain 3 of the second side");
/// // One of a pattern of vectors.
/// let name = DomainName { side: None, component: Some(1), ..name };
/// assert_eq!(name.to_string(), "component 1 of domain 3");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DomainName {
    /// Its number.
    pub number: u64,
    /// In a redistribution: the side of the domain.
    pub side: Option<Side>,
    /// In a pattern of vectors: the component.
    pub component: Option<u8>,
}

impl fmt::Display for DomainName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.component.map_or(Ok(()), |component| write!(f, "component {component} of "))?;
        write!(f, "domain {}", self.number)?;
        self.side.map_or(Ok(()), |side| write!(f, " of the {side} side"))
    }
}

pub(crate) fn for_ranks_of(comm: &Communicator, decomposition: &Decomposition) -> Result<(), Error> {
    match decomposition.ranks() {
        ranks if ranks == comm.size() => Ok(()),
        decomposed => Err(Error::DecomposedFor { decomposed, ranks: comm.size() }),
    }
}

/// Compares an argument with that of rank 0. Ranks whose patterns do not fit would deadlock later.
pub(crate) fn same_everywhere(
    comm: &Communicator,
    given: impl Hash,
    what: &'static str,
) -> Result<Result<(), Error>, Error> {
    let mut hasher = DefaultHasher::new();
    given.hash(&mut hasher);
    let same = same_as_rank_0(comm, &[hasher.finish()])?;
    Ok(same.map_err(|_| Error::Differs { rank: comm.rank(), what }))
}

/// The pattern of a grid or of its decomposition: `grid.pattern(&comm, halo)`. A number is a [`Halo::uniform`].
///
/// ```
/// use halocline::{Communicator, Decomposed, Halo, RegularGrid};
///
/// let comm = Communicator::single();
/// let grid = RegularGrid::new((8, 6));
/// // One width, or a width for each side of each axis.
/// let uniform = grid.pattern(&comm, 1)?;
/// let per_axis = grid.pattern(&comm, Halo::per_axis([(2, 2), (0, 1)]))?;
/// assert_eq!(uniform.domain()?.extents(), [10, 8]);
/// assert_eq!(per_axis.domain()?.extents(), [12, 7]);
/// // Columns instead of the decomposition with the fewest cells to exchange.
/// let columns = grid.decompose_into((1, comm.size()), comm.size())?.pattern(&comm, 1)?;
/// assert_eq!(columns.domain()?.extents(), [10, 8]);
/// # Ok::<(), halocline::Error>(())
/// ```
pub trait Decomposed {
    /// As [`Pattern::regular`]. A [`RegularGrid`] is first decomposed for the ranks of `comm`.
    fn pattern(&self, comm: &Communicator, halo: impl Into<Halo>) -> Result<Pattern, Error>;
}

impl Decomposed for Decomposition {
    fn pattern(&self, comm: &Communicator, halo: impl Into<Halo>) -> Result<Pattern, Error> {
        Pattern::regular(comm, self, &halo.into())
    }
}

impl Decomposed for RegularGrid {
    fn pattern(&self, comm: &Communicator, halo: impl Into<Halo>) -> Result<Pattern, Error> {
        let decomposition = self.decompose(comm.size()).map_err(Error::from);
        agree(&comm.within("pattern"), decomposition)?.pattern(comm, halo)
    }
}
