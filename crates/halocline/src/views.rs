//! Arrays seen as those of the crate `ndarray`, without a copy.

use crate::domain::Domain;
use crate::error::{ArrayError, Error};
use crate::field::{Array, Field, ReadGuard, WriteGuard};
use crate::owned::OwnedGuard;
use halocline_device::Element;
use halocline_plan::{Layout, LocalBox};
use ndarray::{ArrayView, ArrayViewMut, Axis, Dimension, IxDyn, RawArrayViewMut, ShapeBuilder, Slice};
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

/// The elements of an array from index (0, 0, …) on, in the order of its dimensions.
fn raw<T: Element>(array: &Array<T>) -> RawArrayViewMut<T, IxDyn> {
    let (lowest, _) = array.elements();
    let layout = array.layout();
    let strides: Vec<isize> =
        layout.strides().iter().map(|stride| stride / size_of::<T>() as isize).collect();
    let steps: Vec<usize> = strides.iter().map(|stride| stride.unsigned_abs()).collect();
    // SAFETY: the array holds all elements of its layout, the first of them at `lowest`: strides are whole elements, and
    // with all of them turned upwards the indices count from there.
    let mut all = unsafe {
        RawArrayViewMut::from_shape_ptr(IxDyn(layout.extents()).strides(IxDyn(&steps)), lowest.as_ptr())
    };
    for (axis, stride) in strides.into_iter().enumerate() {
        if stride < 0 {
            all.invert_axis(Axis(axis));
        }
    }
    all
}

/// A part of an array, with `D` dimensions.
fn part<T: Element, D: Dimension>(
    array: &Array<T>,
    indices: &[Range<usize>],
) -> Result<RawArrayViewMut<T, D>, Error> {
    let mut part = raw(array);
    for (axis, range) in indices.iter().enumerate() {
        part.slice_axis_inplace(Axis(axis), Slice::from(range.clone()));
    }
    let found = part.ndim();
    let wanted = D::NDIM.unwrap_or(found);
    part.into_dimensionality().map_err(|_| Error::Array(ArrayError::Dimensions { wanted, found }))
}

/// The indices of all elements.
fn all<T>(array: &Array<T>) -> LocalBox {
    array.layout().extents().iter().map(|&extent| 0..extent).collect()
}

/// Fails if the boxes of the domain are not those of its cells.
fn check_boxes(domain: &Domain<'_>) -> Result<(), Error> {
    if domain.owned_come_first() {
        Ok(())
    } else {
        Err(Error::Array(ArrayError::NoRange { domain: domain.number() }))
    }
}

/// The boxes of [`Domain::halo`], without the cells that a padded array does not hold.
fn halo_boxes<T>(array: &Array<T>, domain: &Domain<'_>) -> Result<Vec<LocalBox>, Error> {
    let held = array.layout().cells_held(domain.shape())?;
    let within = |(range, held): (&Range<usize>, &Range<usize>)| {
        range.start.clamp(held.start, held.end)..range.end.clamp(held.start, held.end)
    };
    Ok(domain.halo().iter().map(|cells| cells.iter().zip(&held).map(within).collect()).collect())
}

fn indices<T>(array: &Array<T>, domain: &Domain<'_>, cells: &[Range<usize>]) -> Result<LocalBox, Error> {
    Ok(array.layout().indices_of(domain.shape(), cells)?)
}

/// Views of the crate [`ndarray`], with the feature `ndarray`. The dimensions are those of the array, in its order. Fails with
/// [`ArrayError::Dimensions`] if `D` has another number of them, and with [`Error::Layout`] if the array is not of the domain.
///
/// ```
/// use halocline::{Array, Communicator, Decomposed, RegularGrid};
/// use ndarray::Ix2;
///
/// let comm = Communicator::single();
/// let pattern = RegularGrid::new((4, 3)).decompose(1)?.pattern(&comm, 1)?;
/// let domain = pattern.domain()?;
/// let t = Array::<f64>::zeros(&comm, &domain.extents())?;
/// t.write()?.owned_mut::<Ix2>(&domain)?.fill(1.0);
/// t.write()?.halo_mut::<Ix2>(&domain)?.iter_mut().for_each(|side| side.fill(0.5));
/// assert_eq!(t.read()?.view::<Ix2>()?.sum(), 12.0 + 0.5 * 18.0);
/// # Ok::<(), halocline::Error>(())
/// ```
impl<T: Element> ReadGuard<'_, T> {
    /// All elements.
    pub fn view<D: Dimension>(&self) -> Result<ArrayView<'_, T, D>, Error> {
        self.part(&all(self.array()))
    }

    /// The owned cells. [`ArrayError::NoRange`] for an unstructured domain with halo cells before owned ones
    /// ([`Domain::owned_come_first`]).
    pub fn owned<D: Dimension>(&self, domain: &Domain<'_>) -> Result<ArrayView<'_, T, D>, Error> {
        check_boxes(domain)?;
        self.cells(domain, &domain.owned())
    }

    /// The halo cells, in disjoint boxes as [`Domain::halo`] has them. [`ArrayError::NoRange`] as for the owned cells.
    pub fn halo<D: Dimension>(&self, domain: &Domain<'_>) -> Result<Vec<ArrayView<'_, T, D>>, Error> {
        check_boxes(domain)?;
        halo_boxes(self.array(), domain)?.iter().map(|cells| self.cells(domain, cells)).collect()
    }

    /// A box of cells: [`Domain::interior`], one of [`Domain::boundary`], or any other with a range of local indices for each axis of the
    /// domain, halo cells included. The view has all dimensions of the array, extra ones (levels, components) as a whole. Fails with
    /// [`Error::Layout`] if the box has another number of ranges, or cells that the array does not hold.
    pub fn cells<D: Dimension>(
        &self,
        domain: &Domain<'_>,
        cells: &[Range<usize>],
    ) -> Result<ArrayView<'_, T, D>, Error> {
        self.part(&indices(self.array(), domain, cells)?)
    }

    fn part<D: Dimension>(&self, indices: &[Range<usize>]) -> Result<ArrayView<'_, T, D>, Error> {
        let part = part(self.array(), indices)?;
        // SAFETY: the elements are the array's, initialised and aligned, and any bytes are a `T`, by the contract of
        // `Element`. While the guard is borrowed, the memory's `State` admits no writing guard and no exchange.
        Ok(unsafe { part.deref_into_view() })
    }
}

/// Mutable views.
impl<T: Element> WriteGuard<'_, T> {
    /// All elements.
    pub fn view<D: Dimension>(&self) -> Result<ArrayView<'_, T, D>, Error> {
        let part = part(self.array(), &all(self.array()))?;
        // SAFETY: the elements are the array's, initialised and aligned, and any bytes are a `T`, by the contract of
        // `Element`. The guard is the only one of the memory, no exchange is in flight, and it is borrowed shared meanwhile.
        Ok(unsafe { part.deref_into_view() })
    }

    /// All elements.
    pub fn view_mut<D: Dimension>(&mut self) -> Result<ArrayViewMut<'_, T, D>, Error> {
        let indices = all(self.array());
        self.part_mut(&indices)
    }

    /// The owned cells. [`ArrayError::NoRange`] for an unstructured domain with halo cells before owned ones
    /// ([`Domain::owned_come_first`]).
    pub fn owned_mut<D: Dimension>(&mut self, domain: &Domain<'_>) -> Result<ArrayViewMut<'_, T, D>, Error> {
        check_boxes(domain)?;
        self.cells_mut(domain, &domain.owned())
    }

    /// The halo cells, in disjoint boxes as [`Domain::halo`] has them. [`ArrayError::NoRange`] as for the owned cells.
    pub fn halo_mut<D: Dimension>(
        &mut self,
        domain: &Domain<'_>,
    ) -> Result<Vec<ArrayViewMut<'_, T, D>>, Error> {
        check_boxes(domain)?;
        let sides = halo_boxes(self.array(), domain)?;
        let sides = sides.iter().map(|cells| part(self.array(), &indices(self.array(), domain, cells)?));
        let sides: Vec<RawArrayViewMut<T, D>> = sides.collect::<Result<_, Error>>()?;
        // SAFETY: the elements are the array's, initialised and aligned, and any bytes are a `T`, by the contract of
        // `Element`. The boxes are disjoint, and so are their elements: a layout gives each index its own. The guard is
        // the only one of the memory, no exchange is in flight, and it is borrowed mutably while the views live.
        Ok(sides.into_iter().map(|side| unsafe { side.deref_into_view_mut() }).collect())
    }

    /// A box of cells: [`Domain::interior`], one of [`Domain::boundary`], or any other with a range of local indices for each axis of the
    /// domain, halo cells included. The view has all dimensions of the array, extra ones (levels, components) as a whole. Fails with
    /// [`Error::Layout`] if the box has another number of ranges, or cells that the array does not hold.
    pub fn cells_mut<D: Dimension>(
        &mut self,
        domain: &Domain<'_>,
        cells: &[Range<usize>],
    ) -> Result<ArrayViewMut<'_, T, D>, Error> {
        let indices = indices(self.array(), domain, cells)?;
        self.part_mut(&indices)
    }

    fn part_mut<D: Dimension>(&mut self, indices: &[Range<usize>]) -> Result<ArrayViewMut<'_, T, D>, Error> {
        let part = part(self.array(), indices)?;
        // SAFETY: the elements are the array's, initialised and aligned, and any bytes are a `T`, by the contract of
        // `Element`; a layout gives each index an element of its own. The guard is the only one of the memory, no
        // exchange is in flight, and it is borrowed mutably while the view lives.
        Ok(unsafe { part.deref_into_view_mut() })
    }
}

/// The owned cells as a view of the crate [`ndarray`], while an exchange fills the halo.
impl<T: Element> OwnedGuard<'_, T> {
    /// The box of owned cells of the domain that the array was bound to, without a copy. The dimensions are those of the array, in
    /// its order.
    ///
    /// Windows of this view lie around the cells of [`Domain::interior`]: a window of 3 along an axis with a halo at both sides is
    /// that of a cell of `interior(1)`.
    ///
    /// Fails as [`ReadGuard::owned`], and with [`ArrayError::NotOwned`] if the exchange may write cells of the box: those of another
    /// domain, or of the target of a redistribution.
    ///
    /// ```
    /// use halocline::{Array, Communicator, Decomposed, HaloExchange, RegularGrid};
    /// use ndarray::{Ix2, Zip};
    ///
    /// let comm = Communicator::single();
    /// let pattern = RegularGrid::new((8, 6)).periodic((true, true)).decompose(1)?.pattern(&comm, 1)?;
    /// let domain = pattern.domain()?;
    /// let (t, after) = (Array::<f64>::zeros(&comm, &[10, 8])?, Array::<f64>::zeros(&comm, &[10, 8])?);
    /// t.write()?.fill(0.5);
    /// let halo = HaloExchange::bind(&comm, [(&pattern, &t)])?;
    ///
    /// let pending = halo.exchange()?;
    /// let owned = pending.owned(&t)?;
    /// let windows = owned.view::<Ix2>(&domain)?;
    /// let mut guard = after.write()?;
    /// let interior = guard.cells_mut::<Ix2>(&domain, &domain.interior(1))?;
    /// Zip::from(interior).and(windows.windows((3, 3))).for_each(|sum, cells| *sum = cells.sum());
    /// pending.wait()?;
    /// assert_eq!(guard.view::<Ix2>()?.sum(), 4.5 * 6.0 * 4.0);
    /// # Ok::<(), halocline::Error>(())
    /// ```
    pub fn view<D: Dimension>(&self, domain: &Domain<'_>) -> Result<ArrayView<'_, T, D>, Error> {
        check_boxes(domain)?;
        let indices = indices(self.array(), domain, &domain.owned())?;
        if !self.elements().is_some_and(|owned| owned.contains(&indices)) {
            return Err(Error::Array(ArrayError::NotOwned { domain: domain.number() }));
        }
        let part = part(self.array(), &indices)?;
        // SAFETY: the elements are the array's, initialised and aligned, and any bytes are a `T`, by the contract of
        // `Element`. All are of owned cells that the exchange in flight leaves alone. While the guard is held, no other exchange
        // begins and no writing guard is given out.
        Ok(unsafe { part.deref_into_view() })
    }
}

impl<T: Element> Array<T> {
    /// The array of the crate [`ndarray`] as one that can be bound: it takes the memory over and copies nothing. Ranks of the same
    /// process reach such memory directly; others use a mailbox, so prefer [`Array::zeros`] where the program allocates. Fails with
    /// [`Error::Layout`] if [`Layout::strided`] refuses its shape and strides.
    ///
    /// ```
    /// use halocline::Array;
    ///
    /// let t = Array::from_ndarray(ndarray::arr2(&[[1.0, 2.0], [3.0, 4.0]]))?;
    /// assert_eq!(t.read()?[3], 4.0);
    /// # Ok::<(), halocline::Error>(())
    /// ```
    pub fn from_ndarray<D: Dimension>(mut array: ndarray::Array<T, D>) -> Result<Self, Error> {
        let size = size_of::<T>() as isize;
        let strides: Vec<isize> = array.strides().iter().map(|stride| stride * size).collect();
        let layout = Layout::strided(T::TYPE, array.shape(), &strides)?.named(T::RECORD);
        let base = NonNull::new(array.as_mut_ptr().cast()).unwrap_or(NonNull::dangling());
        let keepalive = Arc::new(Owner { _vec: array.into_raw_vec_and_offset().0 });
        // SAFETY: `base` is the address of index (0, 0, …) of an array that owns its memory, whose elements lie as its strides
        // say, within the `Vec`. The `Vec` keeps that memory at its address and is used by nobody else; `Array` hands the
        // elements out by guards alone. They are `Element`s, which any bytes are.
        let field = unsafe { Field::from_raw(base, layout, keepalive) };
        Ok(Self::of_field(field))
    }
}

/// Memory that an array of `ndarray` owned.
struct Owner<T> {
    _vec: Vec<T>,
}
