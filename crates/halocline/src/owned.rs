//! Owned cells of an array, read while an exchange fills its halo.

use crate::error::{ArrayError, Error};
use crate::exchange::Pending;
use crate::field::{Array, Field, State};
use crate::set::Set;
use halocline_device::Element;
use halocline_plan::OwnedElements;
use std::fmt;
use std::ops::{Index, Range};
use std::sync::Arc;

/// Read access to the owned cells of an [`Array`] whose exchange is in flight ([`Pending::owned`]).
///
/// Elements have the same positions as in [`Array::read`]: from the lowest address on, gaps of the layout included.
/// With the feature `ndarray`, `OwnedGuard::view` gives a view of the owned cells. Threads may share the guard. It may outlive the
/// wait; until it is dropped the next exchange of the array, and [`Array::write`], are refused.
///
/// ```
/// use halocline::{Array, Communicator, Decomposed, HaloExchange, OwnedGuard, RegularGrid};
///
/// let comm = Communicator::single();
/// let pattern = RegularGrid::new([3]).periodic([true]).decompose(1)?.pattern(&comm, 1)?;
/// let t = Array::<f64>::zeros(&comm, &[5])?;
/// t.write()?.copy_from_slice(&[0.0, 1.0, 2.0, 3.0, 0.0]);
/// let halo = HaloExchange::bind(&comm, [(&pattern, &t)])?;
/// let pending = halo.exchange()?;
/// let owned: OwnedGuard<'_, f64> = pending.owned(&t)?;
/// assert_eq!(owned[1..4], [1.0, 2.0, 3.0]);
/// assert_eq!(owned.get(0), None, "a halo cell");
/// pending.wait()?;
/// # Ok::<(), halocline::Error>(())
/// ```
pub struct OwnedGuard<'a, T: Element> {
    array: &'a Array<T>,
    set: Arc<Set>,
    field: usize,
    /// Dropped last: nothing is read without it.
    _reading: Reading<'a>,
}

/// While it lives, exchanges and writing guards are refused.
struct Reading<'a>(&'a State);

impl<'a> Reading<'a> {
    /// Of memory in flight.
    fn new(state: &'a State) -> Self {
        state.show_owned();
        Self(state)
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.0.hide_owned();
    }
}

impl Pending {
    /// The owned cells of an array of this exchange, for work on the interior while it is in flight. It succeeds at any time
    /// between the begin and the wait. An owned cell that the exchange fills, as a redistribution does, is excluded.
    ///
    /// Fails with [`Error::Reducing`] in a reduce, which writes owned cells.
    /// Fails with [`ArrayError::NotInFlight`] once the program has observed the end of the exchange: [`Array::read`] then has all cells.
    /// Fails with [`ArrayError::NotExchanged`] for an array that is no field of the exchange, or shares its memory with several. (For a
    /// domain that lists its halo cells by index, narrowed to depth 0, halo cells may be included.)
    ///
    /// ```
    /// use halocline::{Array, Communicator, Decomposed, Halo, HaloExchange, RegularGrid};
    ///
    /// # fn main() -> Result<(), halocline::Error> {
    /// let comm = Communicator::init()?;
    /// let pattern = RegularGrid::new([6, 8]).pattern(&comm, Halo::uniform(1))?;
    /// let t = Array::<f64>::zeros(&comm, &[8, 10])?;
    /// let halo = HaloExchange::bind(&comm, &[(&pattern, &t)])?;
    /// let pending = halo.exchange()?;
    /// let owned = pending.owned(&t)?;
    /// // Row 2 of the array, without the halo at its ends.
    /// let sum: f64 = owned[21..29].iter().sum();
    /// assert_eq!(owned.get(20), None);
    /// assert_eq!(owned.rows().count(), 6);
    /// pending.wait()?;
    /// # assert_eq!(sum, 0.0);
    /// # Ok(())
    /// # }
    /// ```
    pub fn owned<'a, T: Element>(&self, array: &'a Array<T>) -> Result<OwnedGuard<'a, T>, Error> {
        if let Some(host) = &self.host {
            return host.owned(array);
        }
        let epoch = self.epoch;
        let exchanged = self.bound.while_held(epoch, |in_flight| {
            if in_flight.reduction().is_some() {
                return Err(Error::Reducing { epoch });
            }
            let field = in_flight.only_field(array);
            Ok(field.map(|field| (Arc::clone(in_flight.set()), field, Reading::new(&array.memory.state))))
        })??;
        match exchanged {
            // The first call makes it here: later calls cannot fail.
            Some((set, field, reading)) if set.owned(field).is_some() => {
                Ok(OwnedGuard { array, set, field, _reading: reading })
            }
            _ => Err(Error::Array(ArrayError::NotExchanged { epoch })),
        }
    }
}

impl<T: Element> OwnedGuard<'_, T> {
    /// The element at a position, if it is of an owned cell.
    pub fn get(&self, position: usize) -> Option<&T> {
        self.slice(position..position.checked_add(1)?)?.first()
    }

    /// The elements at these positions, if all are of owned cells and lie without a gap.
    pub fn slice(&self, positions: Range<usize>) -> Option<&[T]> {
        let count = positions.end.checked_sub(positions.start)?;
        if self.elements()?.count_from(positions.start) < count.max(1) {
            return None;
        }
        let (base, _) = self.array.elements();
        // SAFETY: the elements are of owned cells, hence within the array's memory, aligned, and initialised; any bytes are a `T`, by
        // the contract of `Element`. Nobody writes them: the exchange that is in flight with the array, if it still is, is
        // the one of `set`, which fills other cells; no other one begins, and no writing guard is given out, while `_reading` is held.
        Some(unsafe { std::slice::from_raw_parts(base.as_ptr().add(positions.start), count) })
    }

    /// All elements of owned cells, in pieces without a gap, each with the position of its first one; lowest first.
    pub fn rows(&self) -> impl Iterator<Item = (usize, &[T])> {
        let rows = self.elements().into_iter().flat_map(OwnedElements::rows);
        rows.filter_map(|row| Some((row.start, self.slice(row)?)))
    }

    #[cfg(feature = "ndarray")]
    pub(crate) fn array(&self) -> &Array<T> {
        self.array
    }

    pub(crate) fn elements(&self) -> Option<&OwnedElements> {
        self.set.owned(self.field)
    }
}

/// Panics if the element is not of an owned cell, as the index of a slice does beyond its end.
impl<T: Element> Index<usize> for OwnedGuard<'_, T> {
    type Output = T;

    #[track_caller]
    fn index(&self, position: usize) -> &T {
        self.get(position).unwrap_or_else(|| panic!("position {position} is not that of an owned cell"))
    }
}

/// Panics if not all are of owned cells without a gap, as the index of a slice does beyond its end.
impl<T: Element> Index<Range<usize>> for OwnedGuard<'_, T> {
    type Output = [T];

    #[track_caller]
    fn index(&self, positions: Range<usize>) -> &[T] {
        let Range { start, end } = positions;
        let wrong = || panic!("positions {start}..{end} are not those of owned cells without a gap");
        self.slice(positions).unwrap_or_else(wrong)
    }
}

impl<T: Element> fmt::Debug for OwnedGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let field: &Field = self.array;
        write!(f, "OwnedGuard({field:?})")
    }
}
