//! What a field on patches holds, and where its values lie.

/// Where values lie along one axis of a patch with n cells.
///
/// ```
/// use halocline_plan::Along;
///
/// let all = [Along::Centre, Along::Faces, Along::HighFaces, Along::LowFaces];
/// assert_eq!(all.map(|along| along.count(4)), [4, 5, 4, 4]);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Along {
    /// At the centres of the cells: n values.
    Centre,
    /// At all faces between cells, those of both sides included: n + 1 values, value i at the low face of cell i.
    Faces,
    /// At the high face of each cell: n values, as NEMO's U and V points.
    HighFaces,
    /// At the low face of each cell: n values, as the staggered arrays of Oceananigans and MITgcm.
    LowFaces,
}

impl Along {
    /// Number of values along an axis of so many cells.
    pub fn count(self, cells: usize) -> usize {
        cells + usize::from(self == Self::Faces)
    }

    /// The coordinate of value 0, in half cells.
    pub(super) fn first(self) -> i64 {
        match self {
            Self::Faces | Self::LowFaces => 0,
            Self::Centre => 1,
            Self::HighFaces => 2,
        }
    }
}

/// What a field holds: a scalar, or the two components of a vector, and where on the patches the values lie.
///
/// The components of a vector are along the axes of each patch. Where a seam turns the axes, component 0
/// continues as component 1, with the sign of the turn. So one pattern fills the halos of both, and each
/// component has its own domains: that of component c in domain d has the number 2 d + c.
///
/// ```
/// use halocline_plan::{Along, Quantity};
///
/// assert_eq!(Quantity::c_grid(), Quantity::vector([Along::Faces, Along::Centre], [Along::Centre, Along::Faces]));
/// assert_eq!((Quantity::cells().components(), Quantity::c_grid().components()), (1, 2));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Quantity {
    pub(super) places: Vec<[Along; 2]>,
}

impl Quantity {
    /// Scalars at the centres of the cells.
    pub fn cells() -> Self {
        Self::scalar([Along::Centre; 2])
    }

    /// Scalars at all corners of cells.
    pub fn corners() -> Self {
        Self::scalar([Along::Faces; 2])
    }

    /// Scalars at a place along each axis.
    pub fn scalar(place: [Along; 2]) -> Self {
        Self { places: vec![place] }
    }

    /// Vectors at the centres of the cells (an A grid).
    pub fn cell_vectors() -> Self {
        Self::vector([Along::Centre; 2], [Along::Centre; 2])
    }

    /// Vectors whose components lie at the faces that they cross (a C grid).
    pub fn c_grid() -> Self {
        Self::vector([Along::Faces, Along::Centre], [Along::Centre, Along::Faces])
    }

    /// Vectors whose components lie at the faces along which they point (a D grid).
    pub fn d_grid() -> Self {
        Self::vector([Along::Centre, Along::Faces], [Along::Faces, Along::Centre])
    }

    /// Vectors: the places of component 0, which is along axis 0, and of component 1.
    pub fn vector(first: [Along; 2], second: [Along; 2]) -> Self {
        Self { places: vec![first, second] }
    }

    /// 1 for scalars, 2 for vectors.
    pub fn components(&self) -> usize {
        self.places.len()
    }

    /// Where the values of a component lie along both axes; `None` if there is no such component.
    pub fn place(&self, component: usize) -> Option<[Along; 2]> {
        self.places.get(component).copied()
    }

    pub(super) fn is_vector(&self) -> bool {
        self.components() == 2
    }

    /// The component of the source that continues `component` of the target.
    pub(super) fn source_component(&self, component: usize, swapped: bool) -> usize {
        component ^ usize::from(self.is_vector() && swapped)
    }
}
