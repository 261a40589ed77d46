//! The domains of a pattern on this rank: what a program computes with.

use crate::error::Error;
use crate::pattern::Pattern;
use halocline_plan::{DomainShape, LocalBox, PatternPlan, UnstructuredDomain};
use std::fmt;

/// A domain of this rank: which local indices are owned, interior, boundary and halo, and where they lie in the global grid.
/// Made by [`Pattern::domains`]. Local indices count in an array of [`Domain::extents`].
///
/// ```
/// use halocline::{Communicator, Decomposed, RegularGrid};
///
/// let comm = Communicator::single();
/// let pattern = RegularGrid::new((8, 6)).decompose(1)?.pattern(&comm, 1)?;
/// let domain = pattern.domain()?;
/// assert_eq!(domain.extents(), [10, 8]);
/// assert_eq!(domain.owned(), [1..9, 1..7]);
/// // Computed while the exchange is in flight; the boundary boxes come after its wait.
/// assert_eq!(domain.interior(1), [2..8, 2..6]);
/// assert_eq!(domain.boundary(1), [[1..2, 1..7], [8..9, 1..7], [2..8, 1..2], [2..8, 6..7]]);
/// assert_eq!(domain.global(&[1, 1]), Some(vec![0, 0]));
/// assert_eq!(domain.local(&[7, 5]), Some(vec![8, 6]));
/// # Ok::<(), halocline::Error>(())
/// ```
///
/// The cells of an unstructured domain have global ids:
///
/// ```
/// # use halocline::{Communicator, Pattern, UnstructuredDomain};
/// let comm = Communicator::single();
/// let ring = UnstructuredDomain::new(0, vec![10, 11, 12], vec![]);
/// let pattern = Pattern::unstructured(&comm, &[ring])?;
/// let domain = pattern.domain()?;
/// assert_eq!((domain.owned_count(), domain.global_id(2)), (3, Some(12)));
/// # Ok::<(), halocline::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct Domain<'a> {
    number: u64,
    plan: &'a PatternPlan,
    /// Its number in the plan.
    id: u64,
    shape: &'a DomainShape,
    listed: Option<&'a UnstructuredDomain>,
}

impl Pattern {
    /// The domain of this rank, of a pattern that has one domain on each rank. [`Error::NotOneDomain`] if this rank has none or
    /// several.
    pub fn domain(&self) -> Result<Domain<'_>, Error> {
        let mut domains = self.domains();
        match (domains.next(), domains.len()) {
            (Some(domain), 0) => Ok(domain),
            _ => Err(Error::NotOneDomain { domains: self.domains().map(|domain| domain.number).collect() }),
        }
    }

    /// The domains of this rank, in ascending order of their numbers.
    ///
    /// A pattern of vectors has each domain twice, once for each component; [`Pattern::component`] has those of one.
    pub fn domains(&self) -> impl ExactSizeIterator<Item = Domain<'_>> {
        let named = self.plan().domains.iter().map(|(id, shape)| (*id, self.domain_name(*id), shape));
        named
            .filter(|(_, name, _)| {
                self.component.is_none_or(|own| name.component.map(usize::from) == Some(own))
            })
            .map(|(id, name, shape)| {
                let listed = self.listed().iter().find(|domain| domain.id() == id);
                Domain { number: name.number, plan: self.plan(), id, shape, listed }
            })
            .collect::<Vec<_>>()
            .into_iter()
    }
}

impl<'a> Domain<'a> {
    /// The number of the domain, as in [`Field::on_domain`](crate::Field::on_domain).
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The shape that the pattern has for it.
    pub fn shape(&self) -> &'a DomainShape {
        self.shape
    }

    /// The extents of the smallest array that holds owned and halo cells.
    pub fn extents(&self) -> Vec<usize> {
        self.shape.extents()
    }

    /// The owned cells: a range for each axis. If an unstructured domain has halo cells before owned ones in its local order
    /// ([`Domain::owned_come_first`]), this box and those of the methods below do not hold its cells: take [`Domain::owned_indices`].
    pub fn owned(&self) -> LocalBox {
        self.shape.owned_cells()
    }

    /// Number of owned cells.
    pub fn owned_count(&self) -> usize {
        self.owned().into_iter().map(|range| range.len()).product()
    }

    /// The owned cells whose stencil of `width` cells to each side reads no cell that an exchange fills: neither a halo cell nor, on a
    /// [`PatchGrid`](crate::PatchGrid), a copy of a value that another patch owns. [`DomainShape::interior`] has the rule. At a side without
    /// a halo it includes cells whose stencil leaves the array. An unstructured domain has no axes: all owned cells if `width` is 0, else none
    /// ([`Domain::interior_by`]).
    pub fn interior(&self, width: usize) -> LocalBox {
        self.plan.interior(self.id, width).unwrap_or_default()
    }

    /// The owned cells that are not of [`Domain::interior`], in disjoint boxes: at most two for each axis. Of an unstructured domain
    /// all owned cells, unless `width` is 0.
    pub fn boundary(&self, width: usize) -> Vec<LocalBox> {
        self.plan.boundary(self.id, width).unwrap_or_default()
    }

    /// The halo cells in disjoint boxes: at most two for each axis.
    pub fn halo(&self) -> Vec<LocalBox> {
        self.shape.halo_cells()
    }

    /// The global coordinates of a local index. Halo cells beyond a periodic border keep counting: their coordinates are negative, or
    /// not below the grid's extents. `None`: the index is outside [`Domain::extents`], or the domain is unstructured.
    pub fn global(&self, local: &[usize]) -> Option<Vec<i64>> {
        self.shape.global(local)
    }

    /// The local index of global coordinates, the inverse of [`Domain::global`]. `None`: neither owned nor halo cells of the domain have
    /// these coordinates, or it is unstructured.
    pub fn local(&self, global: &[i64]) -> Option<Vec<usize>> {
        self.shape.local(global)
    }

    /// The global id of a local index of an unstructured domain. `None`: no such cell, or a regular domain.
    pub fn global_id(&self, local: usize) -> Option<u64> {
        self.listed?.cells().get(local).copied()
    }

    /// Whether [`Domain::owned`] and the other boxes hold the cells that they are for: false for an unstructured domain with halo cells
    /// before owned ones, whose cells are no boxes.
    pub fn owned_come_first(&self) -> bool {
        self.listed.is_none_or(UnstructuredDomain::owned_come_first)
    }

    /// The local indices of the owned cells of an unstructured domain, ascending. Empty for a regular domain: take [`Domain::owned`].
    pub fn owned_indices(&self) -> Vec<usize> {
        self.listed.map_or_else(Vec::new, UnstructuredDomain::owned_indices)
    }

    /// The owned cells of an unstructured domain all of whose neighbours are owned, ascending: those to compute while
    /// the exchange is in flight. `neighbours` gives the local indices of a cell's stencil.
    ///
    /// ```
    /// # use halocline::{Communicator, Pattern, UnstructuredDomain};
    /// // A row of three cells: the first and the last have a neighbour that is not owned.
    /// let row = UnstructuredDomain::new(0, vec![0, 1, 2], vec![]);
    /// let pattern = Pattern::unstructured(&Communicator::single(), &[row])?;
    /// let domain = pattern.domain()?;
    /// assert_eq!(domain.interior_by(|cell| [cell.wrapping_sub(1), cell + 1]), [1]);
    /// # Ok::<(), halocline::Error>(())
    /// ```
    pub fn interior_by<N: IntoIterator<Item = usize>>(&self, neighbours: impl Fn(usize) -> N) -> Vec<usize> {
        let owned = self.owned_indices();
        let is_owned = |cell: usize| owned.binary_search(&cell).is_ok();
        owned.iter().copied().filter(|&cell| neighbours(cell).into_iter().all(is_owned)).collect()
    }
}

impl fmt::Debug for Domain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Domain({}, {:?})", self.number, self.shape)
    }
}
