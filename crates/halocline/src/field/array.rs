//! Arrays of the library's memory, and the guards of their elements.

use super::Field;
use super::memory::{GUARDS, WRITER};
use crate::error::{ArrayError, Error};
use halocline_comm::Communicator;
use halocline_device::Element;
use halocline_plan::{Layout, NamedElement};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// An array in memory of the library, with elements of a Rust type. A clone is the same array.
///
/// Guards give access to its elements. From the begin of an exchange to the end of its wait the guards of the whole array are
/// refused; [`crate::Pending::owned`] reads its owned cells.
///
/// ```
/// use halocline::{Array, Communicator};
///
/// let t = Array::<f64>::zeros(&Communicator::single(), &[4, 6])?;
/// t.write()?.fill(1.0);
/// assert_eq!(t.read()?.iter().sum::<f64>(), 24.0);
/// # Ok::<(), halocline::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Array<T> {
    field: Field,
    element: PhantomData<T>,
}

impl<T: Element> Array<T> {
    /// The array in a field whose memory holds elements of `T`, initialised and aligned, that nobody else uses: made by
    /// [`Field::allocate`], or from a `Vec<T>`. Strides are whole elements.
    pub(crate) fn of_field(field: Field) -> Self {
        debug_assert_eq!(field.layout.element(), T::TYPE);
        Self { field, element: PhantomData }
    }

    /// A zeroed array in C order: the last dimension is contiguous. Its first dimensions are the axes of the pattern
    /// that it is bound to, with exactly the extents of the domain. [`Layout`] describes other arrays.
    ///
    /// The memory is of the transport of `comm`: as many of its ranks as possible access it directly. The call is local, other ranks
    /// need not make it. Fails with [`Error::Layout`] for more bytes than an address space has, and with [`Error::Comm`] if there is
    /// no memory.
    pub fn zeros(comm: &Communicator, extents: &[usize]) -> Result<Self, Error> {
        Self::with_layout(comm, Layout::c_order(T::TYPE, extents)?)
    }

    /// A zeroed array of any layout whose elements are `T` and whose strides are whole elements; other layouts are
    /// [`ArrayError::Element`], also those with the name of another struct. A layout without a name takes that of `T`
    /// ([`Element::RECORD`]). Local, in memory as for [`Array::zeros`].
    pub fn with_layout(comm: &Communicator, layout: Layout) -> Result<Self, Error> {
        Ok(Self { field: Field::allocate(comm, layout_of::<T>(layout)?)?, element: PhantomData })
    }

    /// The elements, lowest address first, gaps of the layout included. Fails with [`ArrayError::InFlight`] from the begin of an
    /// exchange of the array until the program has observed its end by [`crate::Pending::wait`], [`crate::Pending::is_ready`] or another
    /// wait, even if the exchange completed earlier. Once the exchange and its object are dropped, its completion is enough.
    /// Fails with [`ArrayError::Borrowed`] while a writing guard is held.
    pub fn read(&self) -> Result<ReadGuard<'_, T>, Error> {
        self.field.memory.state.guard(1, !GUARDS | WRITER)?;
        Ok(ReadGuard { array: self })
    }

    /// As [`Array::read`], for writing. Fails while any other guard is held, one of owned cells included.
    pub fn write(&self) -> Result<WriteGuard<'_, T>, Error> {
        self.field.memory.state.guard(WRITER, !0)?;
        Ok(WriteGuard { array: self })
    }

    /// The element at the lowest address, and the number of elements from there on, gaps of the layout included.
    pub(crate) fn elements(&self) -> (NonNull<T>, usize) {
        let span = self.field.layout.span();
        // SAFETY: the memory of the field was allocated or given for its layout: the span lies within its segment.
        let lowest = unsafe { self.field.base().offset(span.start) };
        (lowest.cast(), span.len() / size_of::<T>())
    }
}

impl<T> Deref for Array<T> {
    type Target = Field;

    fn deref(&self) -> &Field {
        &self.field
    }
}

/// The elements of an array of `T`.
pub(crate) fn element_of<T: Element>() -> NamedElement {
    NamedElement { element: T::TYPE, name: Some(T::RECORD).filter(|name| !name.is_empty()).map(Into::into) }
}

/// Whether elements found are those of an array of `wanted`.
pub(crate) fn is_element(found: &NamedElement, wanted: &NamedElement) -> bool {
    found.element == wanted.element && found.fits(wanted)
}

/// The layout of an array of `T`, if its elements are `T` and its strides whole elements; named as `T`, unless it has a name.
pub(crate) fn layout_of<T: Element>(layout: Layout) -> Result<Layout, Error> {
    let (wanted, size) = (element_of::<T>(), T::TYPE.size() as isize);
    let is_whole = layout.strides().iter().all(|stride| stride % size == 0);
    if !is_whole || !is_element(&layout.named_element(), &wanted) {
        return Err(Error::Array(ArrayError::Element { wanted, layout: Box::new(layout) }));
    }
    Ok(if layout.named_element().name.is_none() { layout.named(T::RECORD) } else { layout })
}

/// Read access to an [`Array`].
///
/// ```
/// use halocline::{Array, ArrayError, Communicator, Error};
///
/// let t = Array::<f64>::zeros(&Communicator::single(), &[2, 3])?;
/// let elements = t.read()?; // a slice of all elements
/// assert_eq!(elements.len(), 6);
/// // Any number of guards may read, and none may write meanwhile.
/// assert!(t.read().is_ok());
/// assert!(matches!(t.write(), Err(Error::Array(ArrayError::Borrowed))));
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct ReadGuard<'a, T: Element> {
    array: &'a Array<T>,
}

impl<T: Element> ReadGuard<'_, T> {
    #[cfg(feature = "ndarray")]
    pub(crate) fn array(&self) -> &Array<T> {
        self.array
    }
}

impl<T: Element> Deref for ReadGuard<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        let (base, len) = self.array.elements();
        // SAFETY: the segment has space for `len` elements, aligned and initialised: `Field::allocate` zeroed it, or
        // `from_ndarray` took it from a `Vec` of them. Any bytes are a `T`, by the contract of `Element`. The guard is counted in the memory's
        // `State`, which admits no writing guard and no exchange meanwhile.
        unsafe { std::slice::from_raw_parts(base.as_ptr(), len) }
    }
}

impl<T: Element> Drop for ReadGuard<'_, T> {
    fn drop(&mut self) {
        self.array.field.memory.state.unguard(1);
    }
}

/// Write access to an [`Array`].
///
/// ```
/// use halocline::{Array, ArrayError, Communicator, Error};
///
/// let t = Array::<f64>::zeros(&Communicator::single(), &[2, 3])?;
/// {
///     let mut elements = t.write()?; // a slice of all elements
///     elements[5] = 1.0;
///     assert!(matches!(t.read(), Err(Error::Array(ArrayError::Borrowed))));
/// }
/// assert_eq!(t.read()?[5], 1.0);
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct WriteGuard<'a, T: Element> {
    array: &'a Array<T>,
}

impl<T: Element> WriteGuard<'_, T> {
    #[cfg(feature = "ndarray")]
    pub(crate) fn array(&self) -> &Array<T> {
        self.array
    }
}

impl<T: Element> Deref for WriteGuard<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        let (base, len) = self.array.elements();
        // SAFETY: the segment has space for `len` elements, aligned and initialised: `Field::allocate` zeroed it, or
        // `from_ndarray` took it from a `Vec` of them. Any bytes are a `T`, by the contract of `Element`. The guard is marked in the memory's
        // `State`, which admits no other guard and no exchange meanwhile.
        unsafe { std::slice::from_raw_parts(base.as_ptr(), len) }
    }
}

impl<T: Element> DerefMut for WriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        let (base, len) = self.array.elements();
        // SAFETY: the segment has space for `len` elements, aligned and initialised: `Field::allocate` zeroed it, or
        // `from_ndarray` took it from a `Vec` of them. Any bytes are a `T`, by the contract of `Element`. The guard is marked in the memory's
        // `State`, which admits no other guard and no exchange meanwhile, and `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(base.as_ptr(), len) }
    }
}

impl<T: Element> Drop for WriteGuard<'_, T> {
    fn drop(&mut self) {
        self.array.field.memory.state.unguard(WRITER);
    }
}
