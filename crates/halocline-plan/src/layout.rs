//! Memory layout of one array.

use crate::{ElementType, LayoutError, NamedElement};
use std::ops::Range;
use std::sync::Arc;

/// Extents, byte strides and element type of one array, and which of its dimensions are the axes of
/// a pattern. All other dimensions (levels, components) are extra: every cell carries all of them.
///
/// Along the pattern's axes an array has exactly the cells of the domain and its halo. With
/// [`Layout::with_origin`] or [`Layout::padded`] it may have more.
///
/// Offsets are in bytes from element (0, 0, …), which with negative strides is not at the lowest
/// address. Dimensions may come in any order.
///
/// ```
/// use halocline_plan::{ElementType, Layout};
///
/// // Levels first: dimensions 1 and 2 of the array are the axes of the pattern.
/// let wind = Layout::c_order(ElementType::F64, &[30, 12, 10])?.with_axes(&[1, 2])?;
/// assert_eq!(wind.strides(), [960, 80, 8]);
/// assert_eq!((wind.axes(2)?, wind.extra(&[1, 2])), (vec![1, 2], vec![0]));
///
/// // Rows padded to a multiple of 64 bytes.
/// let padded = Layout::strided(ElementType::F64, &[12, 10], &[128, 8])?;
/// assert_eq!((padded.len(), padded.span()), (120, 0..1488));
/// # Ok::<(), halocline_plan::LayoutError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    element: ElementType,
    name: Option<Arc<str>>,
    extents: Vec<usize>,
    strides: Vec<isize>,
    axes: Option<Vec<usize>>,
    origin: Option<Vec<usize>>,
    is_padded: bool,
}

impl Layout {
    /// An array whose last dimension is contiguous (NumPy's default).
    pub fn c_order(element: ElementType, extents: &[usize]) -> Result<Self, LayoutError> {
        Self::dense(element, extents, (0..extents.len()).rev())
    }

    /// An array whose first dimension is contiguous.
    pub fn fortran_order(element: ElementType, extents: &[usize]) -> Result<Self, LayoutError> {
        Self::dense(element, extents, 0..extents.len())
    }

    fn dense(
        element: ElementType,
        extents: &[usize],
        fastest_first: impl Iterator<Item = usize>,
    ) -> Result<Self, LayoutError> {
        let mut strides = vec![0; extents.len()];
        let mut stride = element.size() as isize;
        for dim in fastest_first {
            strides[dim] = stride;
            stride = isize::try_from(extents[dim])
                .ok()
                .and_then(|n| stride.checked_mul(n.max(1)))
                .ok_or(LayoutError::TooLarge)?;
        }
        Self::strided(element, extents, &strides)
    }

    /// An array with arbitrary byte strides, positive or negative.
    ///
    /// Errors: extents and strides of different length, an unsupported element size, a span that
    /// overflows the address space, or strides that make two elements overlap (a stride of 0 or
    /// less than an element, or two dimensions that interleave).
    pub fn strided(element: ElementType, extents: &[usize], strides: &[isize]) -> Result<Self, LayoutError> {
        if !(1..=ElementType::MOST).contains(&element.size()) {
            return Err(LayoutError::ElementSize(element.size()));
        }
        if extents.len() != strides.len() {
            return Err(LayoutError::Dimensions { extents: extents.len(), strides: strides.len() });
        }
        // In order of stride, each dimension must step over the whole span of the finer ones.
        let mut dims: Vec<usize> = (0..extents.len()).filter(|&d| extents[d] > 1).collect();
        dims.sort_by_key(|&d| strides[d].unsigned_abs());
        let mut span = element.size();
        for dim in dims {
            let stride = strides[dim].unsigned_abs();
            if stride < span && extents.iter().all(|&n| n > 0) {
                return Err(LayoutError::Overlap { dim, stride: strides[dim], span });
            }
            span = (extents[dim] - 1)
                .checked_mul(stride)
                .and_then(|s| s.checked_add(span))
                .filter(|&s| s <= isize::MAX as usize)
                .ok_or(LayoutError::TooLarge)?;
        }
        let (extents, strides) = (extents.to_vec(), strides.to_vec());
        Ok(Self { element, name: None, extents, strides, axes: None, origin: None, is_padded: false })
    }

    /// Names the dimensions that are the pattern's axes, in the order of those axes. The default is
    /// the first dimensions of the array. An array with levels first, `[levels, y, x]`, needs
    /// `with_axes(&[1, 2])`. The named dimensions also have exactly the cells of the domain and its
    /// halo.
    pub fn with_axes(mut self, axes: &[usize]) -> Result<Self, LayoutError> {
        for (i, &dim) in axes.iter().enumerate() {
            if dim >= self.extents.len() || axes[..i].contains(&dim) {
                return Err(LayoutError::Axis { dim, dimensions: self.extents.len() });
            }
        }
        self.axes = Some(axes.to_vec());
        Ok(self)
    }

    /// Sets the array index, along each axis of a regular pattern, of the domain's first owned
    /// cell. The default is the halo width at the low side; a larger origin leaves padding there.
    pub fn with_origin(mut self, origin: &[usize]) -> Self {
        self.origin = Some(origin.to_vec());
        self
    }

    /// Allows more cells along the pattern's axes than the domain and its halo have. The spare
    /// cells are at the high sides; an exchange leaves them unchanged.
    pub fn padded(mut self) -> Self {
        self.is_padded = true;
        self
    }

    /// Names the meaning of the elements where their type does not state it: `datetime64[ms]`, the
    /// members of a record. Fields whose elements have different names cannot exchange.
    pub fn named(mut self, name: &str) -> Self {
        self.name = Some(name).filter(|name| !name.is_empty()).map(Arc::from);
        self
    }

    /// The element type.
    pub fn element(&self) -> ElementType {
        self.element
    }

    /// The element type and the name given by [`Layout::named`].
    pub fn named_element(&self) -> NamedElement {
        NamedElement { element: self.element, name: self.name.clone() }
    }

    /// Elements along each dimension.
    pub fn extents(&self) -> &[usize] {
        &self.extents
    }

    /// Bytes from one element to the next along each dimension.
    pub fn strides(&self) -> &[isize] {
        &self.strides
    }

    /// The dimensions that are the axes of a pattern with `axes` axes.
    pub fn axes(&self, axes: usize) -> Result<Vec<usize>, LayoutError> {
        match &self.axes {
            Some(dims) if dims.len() == axes => Ok(dims.clone()),
            Some(dims) => Err(LayoutError::AxisCount { pattern: axes, layout: dims.len() }),
            None if self.extents.len() >= axes => Ok((0..axes).collect()),
            None => Err(LayoutError::AxisCount { pattern: axes, layout: self.extents.len() }),
        }
    }

    /// Checks that an array without an explicit origin or padding has `needed` cells along the
    /// pattern's axes.
    pub(crate) fn check_extents(&self, needed: &[usize]) -> Result<(), LayoutError> {
        if self.origin.is_some() || self.is_padded {
            return Ok(());
        }
        let named = self.axes.as_ref().map(|_| self.axes(needed.len())).transpose()?;
        let fits = match &named {
            Some(dims) => dims.iter().map(|&dim| self.extents[dim]).eq(needed.iter().copied()),
            None => self.extents.get(..needed.len()) == Some(needed),
        };
        if fits {
            return Ok(());
        }
        let (extents, needed) = (self.extents.clone(), needed.to_vec());
        let guess = likely_axes(&extents, &needed);
        let [named, guess] = [named, guess].map(|axes| axes.map(Vec::into_boxed_slice));
        Err(LayoutError::Extents { extents, needed, named, guess })
    }

    /// The origin given by [`Layout::with_origin`], if any.
    pub fn origin(&self) -> Option<&[usize]> {
        self.origin.as_deref()
    }

    /// The dimensions that are not among `axes`, in the order of the array.
    pub fn extra(&self, axes: &[usize]) -> Vec<usize> {
        (0..self.extents.len()).filter(|d| !axes.contains(d)).collect()
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.extents.iter().product()
    }

    /// True if the array has no element.
    pub fn is_empty(&self) -> bool {
        self.extents.contains(&0)
    }

    /// The byte range of the array, relative to element (0, 0, …).
    pub fn span(&self) -> Range<isize> {
        if self.is_empty() {
            return 0..0;
        }
        let (mut low, mut high) = (0, self.element.size() as isize);
        for (&n, &stride) in self.extents.iter().zip(&self.strides) {
            let reach = (n as isize - 1) * stride;
            low += reach.min(0);
            high += reach.max(0);
        }
        low..high
    }
}

/// The dimensions that most likely are the axes: those with exactly these extents, in the order of
/// the array if possible. If several choices match, the last dimensions.
fn likely_axes(extents: &[usize], needed: &[usize]) -> Option<Vec<usize>> {
    let in_order = || {
        let mut end = extents.len();
        let last = |wanted: &usize| {
            end = extents[..end].iter().rposition(|extent| extent == wanted)?;
            Some(end)
        };
        let mut axes = needed.iter().rev().map(last).collect::<Option<Vec<usize>>>()?;
        axes.reverse();
        Some(axes)
    };
    let in_any_order = || {
        let mut axes: Vec<usize> = Vec::new();
        for wanted in needed {
            axes.push((0..extents.len()).rfind(|dim| extents[*dim] == *wanted && !axes.contains(dim))?);
        }
        Some(axes)
    };
    in_order().or_else(in_any_order)
}

/// The dimensions with at least these extents and the fewest spare cells, in the order of the array
/// if possible. If several choices match, the last dimensions.
pub(crate) fn nearest_axes(extents: &[usize], needed: &[usize]) -> Option<Vec<usize>> {
    let in_order = || {
        // For each prefix of the pattern's axes: spare cells and dimensions of the best choice
        // among the dimensions seen so far.
        let mut best: Vec<Option<(usize, Vec<usize>)>> = vec![None; needed.len() + 1];
        best[0] = Some((0, Vec::new()));
        for (dim, &extent) in extents.iter().enumerate() {
            for (axis, &wanted) in needed.iter().enumerate().rev() {
                let (Some((spare, dims)), Some(more)) = (&best[axis], extent.checked_sub(wanted)) else {
                    continue;
                };
                let spare = spare.saturating_add(more);
                if best[axis + 1].as_ref().is_none_or(|(least, _)| spare <= *least) {
                    best[axis + 1] = Some((spare, [&dims[..], &[dim]].concat()));
                }
            }
        }
        best.pop()?.map(|(_, dims)| dims)
    };
    let in_any_order = || {
        let mut dims: Vec<Option<usize>> = vec![None; needed.len()];
        let mut axes: Vec<usize> = (0..needed.len()).collect();
        axes.sort_by_key(|&axis| std::cmp::Reverse(needed[axis]));
        for axis in axes {
            let free = (0..extents.len()).rev().filter(|&dim| !dims.contains(&Some(dim)));
            dims[axis] =
                Some(free.filter(|&dim| extents[dim] >= needed[axis]).min_by_key(|&dim| extents[dim])?);
        }
        dims.into_iter().collect()
    };
    in_order().or_else(in_any_order)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn guessed(extents: &[usize], needed: &[usize], expected: Option<&[usize]>) {
        assert_eq!(likely_axes(extents, needed).as_deref(), expected, "{extents:?} for {needed:?}");
    }

    #[track_caller]
    fn nearest(extents: &[usize], needed: &[usize], expected: Option<&[usize]>) {
        assert_eq!(nearest_axes(extents, needed).as_deref(), expected, "{extents:?} for {needed:?}");
    }

    #[test]
    fn axes_with_spare_cells_are_those_with_the_fewest() {
        nearest(&[30, 14, 14], &[12, 12], Some(&[1, 2]));
        nearest(&[30, 11, 10], &[10, 10], Some(&[1, 2]));
        nearest(&[14, 14, 30], &[12, 12], Some(&[0, 1]));
        nearest(&[14, 30, 14], &[12, 12], Some(&[0, 2]));
        nearest(&[14, 14, 14], &[12, 12], Some(&[1, 2]));
        nearest(&[12, 11, 3], &[10, 10], Some(&[0, 1]));
        nearest(&[65, 60], &[51], Some(&[1]));
        nearest(&[3, 16, 13], &[12, 15], Some(&[2, 1]));
        nearest(&[usize::MAX, usize::MAX], &[1, 1], Some(&[0, 1]));
        nearest(&[12, 9], &[10, 10], None);
        nearest(&[100], &[10, 10], None);
    }

    /// Checks that a domain of `needed` cells refuses the array with the advice `expected`.
    #[track_caller]
    fn refused(layout: &Layout, needed: &[usize], expected: &str) {
        let error = layout.check_extents(needed).expect_err("it does not fit").to_string();
        let (_, remedy) = error.split_once("): ").expect("extents, then the remedy");
        assert_eq!(remedy, expected, "{layout:?} for {needed:?}");
    }

    fn array(extents: &[usize]) -> Layout {
        Layout::c_order(ElementType::F64, extents).expect("a layout")
    }

    #[test]
    fn padding_alone_is_proposed_where_only_the_first_axes_can_be_meant() {
        for extents in [&[12, 11][..], &[12, 11, 3]] {
            refused(
                &array(extents),
                &[10, 10],
                "no axes fit; for spare cells along axes 0 and 1 pass `padded()` if all are at the high sides, \
                 otherwise the origin (the index of the first owned cell)",
            );
        }
        for (extents, needed, named, axes) in [
            (&[30, 14, 14][..], &[12, 12][..], "axes 1 and 2", "1, 2"),
            (&[30, 11, 10], &[10, 10], "axes 1 and 2", "1, 2"),
            (&[14, 14, 30], &[12, 12], "axes 0 and 1", "0, 1"),
            (&[13, 9, 10], &[12, 8], "axes 0 and 1", "0, 1"),
            (&[65, 60], &[51], "axis 1", "1"),
        ] {
            refused(
                &array(extents),
                needed,
                &format!(
                    "no axes fit, nearest {named} with spare cells; pass `with_axes(&[{axes}])` if meant, and with it \
                     the origin (the index of the first owned cell) or, if all spare cells are at the high sides, padding"
                ),
            );
        }
    }

    #[test]
    fn named_axes_have_exactly_the_cells_of_the_domain() {
        let named =
            |extents: &[usize], axes: &[usize]| array(extents).with_axes(axes).expect("they are its axes");
        assert_eq!(named(&[30, 12, 10], &[1, 2]).check_extents(&[12, 10]), Ok(()));
        assert_eq!(named(&[30, 10, 12], &[2, 1]).check_extents(&[12, 10]), Ok(()));
        let larger = named(&[30, 14, 14], &[1, 2]);
        refused(
            &larger,
            &[12, 12],
            "the named axes 1 and 2 have (14, 14); for spare cells give with them the origin (the index of the first \
             owned cell) or, if all are at the high sides, padding",
        );
        assert_eq!(larger.clone().with_origin(&[2, 2]).check_extents(&[12, 12]), Ok(()));
        assert_eq!(larger.padded().check_extents(&[12, 12]), Ok(()));
        refused(
            &named(&[12, 30, 10], &[0, 1]),
            &[12, 10],
            "the named axes 0 and 1 have (12, 30); axes 0 and 2 fit; pass `with_axes(&[0, 2])`",
        );
        refused(
            &named(&[9], &[0]),
            &[10],
            "the named axis 0 has (9); no axes fit; allocate the domain's shape, with extra dimensions after it",
        );
        assert_eq!(
            named(&[30, 12, 10], &[1]).check_extents(&[12, 10]),
            Err(LayoutError::AxisCount { pattern: 2, layout: 1 })
        );
    }

    #[test]
    fn the_likely_axes_are_those_with_the_extents_in_the_order_of_the_array() {
        guessed(&[30, 10, 10], &[10, 10], Some(&[1, 2]));
        guessed(&[65, 51], &[51], Some(&[1]));
        guessed(&[10, 5, 10], &[10, 10], Some(&[0, 2]));
        guessed(&[2, 10, 10, 10], &[10, 10], Some(&[2, 3]));
        guessed(&[5, 12, 10], &[10, 12], Some(&[2, 1]));
        guessed(&[12, 10], &[10, 10], None);
        guessed(&[10], &[10, 10], None);
    }
}
