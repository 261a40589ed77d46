//! Array layouts of every kind that a user may bring, built from a few small numbers so that a property test can shrink them.

use halocline::{ElementType, Layout, LayoutError};

/// What a cell carries: the same on all ranks for fields that are exchanged with each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kind {
    /// The type of an element.
    pub element: ElementType,
    /// Extents of the extra dimensions, in the order of the array.
    pub extra: Vec<usize>,
}

impl Kind {
    /// One element a cell.
    pub fn plain(element: ElementType) -> Self {
        Self { element, extra: Vec::new() }
    }

    /// Several elements a cell.
    pub fn with_extra(element: ElementType, extra: &[usize]) -> Self {
        Self { element, extra: extra.to_vec() }
    }
}

/// How an array lies in memory: different on every rank if it likes. Lists shorter than the array has
/// dimensions are continued by zeros, so that the default is plain C order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Form {
    /// Sorts the dimensions of the array. Axes come before extra dimensions, so that zeros keep them
    /// first; the extra ones keep their order among each other.
    pub order: Vec<u8>,
    /// Sorts the dimensions in memory, the coarsest first; zeros keep the order of the array.
    pub memory: Vec<u8>,
    /// Bytes left free behind each step of a dimension, by its place in memory.
    pub pads: Vec<u8>,
    /// Dimensions of the array whose stride is negative.
    pub reversed: Vec<bool>,
    /// Spare cells along each axis, before the halo at the low side and behind that at the high side.
    pub slack: Vec<(u8, u8)>,
}

impl Form {
    /// The first dimension contiguous.
    pub fn fortran() -> Self {
        Self { memory: vec![9, 8, 7, 6, 5, 4, 3, 2], ..Self::default() }
    }

    /// Every dimension runs downwards in memory.
    pub fn negative() -> Self {
        Self { reversed: vec![true; 8], ..Self::default() }
    }

    /// Odd gaps between elements, rows and planes, and spare cells around the halo.
    pub fn padded() -> Self {
        Self {
            pads: vec![5, 3, 7, 1, 2, 3, 1, 2],
            slack: vec![(2, 1), (1, 3), (0, 2), (1, 0)],
            ..Self::default()
        }
    }

    /// Dimensions shuffled in the array and in memory, some of them negative.
    pub fn shuffled() -> Self {
        Self {
            order: vec![4, 1, 3, 2, 0, 5, 1, 4],
            memory: vec![2, 4, 1, 5, 3, 0, 2, 6],
            reversed: vec![false, true, true, false, true, false, true, false],
            slack: vec![(0, 1), (1, 0)],
            pads: vec![0, 8, 0, 16],
        }
    }

    /// Extra dimensions first, as in `field[component][i][j]`.
    pub fn extra_first() -> Self {
        Self { order: vec![1, 1, 1, 1, 0, 0, 0, 0], ..Self::default() }
    }

    /// All the forms above, and C order.
    pub fn all() -> Vec<Self> {
        let c_order = Self::default();
        vec![
            c_order,
            Self::fortran(),
            Self::negative(),
            Self::padded(),
            Self::shuffled(),
            Self::extra_first(),
        ]
    }

    /// Spare cells along an axis.
    pub fn slack(&self, axis: usize) -> (usize, usize) {
        self.slack.get(axis).map_or((0, 0), |&(low, high)| (low.into(), high.into()))
    }

    /// The layout of an array of `kind` whose axes have the given extents (spare cells included) and
    /// whose first owned cell is at `origin`, with the dimension of the array that each axis became and
    /// the extra dimensions in order.
    pub fn layout(&self, kind: &Kind, axes: &[usize], origin: &[usize]) -> Result<Shaped, LayoutError> {
        let key = |list: &[u8], at: usize| list.get(at).copied().unwrap_or(0);
        // Axes may come in any order, extra dimensions are dealt out in theirs.
        let dimensions = axes.len() + kind.extra.len();
        let mut places: Vec<usize> = (0..dimensions).collect();
        // `order` is indexed by axis, and from 4 on by extra dimension.
        let index = |item: usize| if item < axes.len() { item } else { 4 + item - axes.len() };
        places.sort_by_key(|&item| key(&self.order, index(item)));
        let mut next_extra = axes.len();
        let mut extents = vec![0; dimensions];
        let (mut axis_dims, mut extra_dims) = (vec![0; axes.len()], Vec::new());
        for (dim, item) in places.into_iter().enumerate() {
            if item < axes.len() {
                axis_dims[item] = dim;
                extents[dim] = axes[item];
            } else {
                extra_dims.push(dim);
                extents[dim] = kind.extra[next_extra - axes.len()];
                next_extra += 1;
            }
        }
        let mut memory: Vec<usize> = (0..dimensions).collect();
        memory.sort_by_key(|&dim| key(&self.memory, dim));
        let mut strides = vec![0isize; dimensions];
        let mut stride = kind.element.size() as isize;
        for (place, &dim) in memory.iter().rev().enumerate() {
            stride += isize::from(key(&self.pads, place));
            let down = self.reversed.get(dim).copied().unwrap_or(false);
            strides[dim] = if down { -stride } else { stride };
            stride *= extents[dim].max(1) as isize;
        }
        let layout = Layout::strided(kind.element, &extents, &strides)?;
        let layout = layout.with_axes(&axis_dims)?.with_origin(origin);
        Ok(Shaped { layout, axis_dims, extra_dims })
    }
}

/// A layout, and which dimensions of it are what.
#[derive(Debug, Clone)]
pub struct Shaped {
    /// The layout.
    pub layout: Layout,
    /// The dimension of each axis.
    pub axis_dims: Vec<usize>,
    /// The extra dimensions, ascending.
    pub extra_dims: Vec<usize>,
}
