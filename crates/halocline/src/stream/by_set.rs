//! A list with one entry for each set of an object: for those that were bound, and for those made later, up to a limit.

use std::ops::Index;
use std::sync::OnceLock;

/// A list to which one thread at a time adds while others read what is there.
pub(crate) struct BySet<T>(Box<[OnceLock<T>]>);

impl<T> BySet<T> {
    /// A list for up to `max_sets` sets.
    pub(crate) fn new(max_sets: usize, first: impl IntoIterator<Item = T>) -> Self {
        let this = Self((0..max_sets).map(|_| OnceLock::new()).collect());
        this.extend(first);
        this
    }

    /// Adds entries; the limit allows them.
    pub(crate) fn extend(&self, more: impl IntoIterator<Item = T>) {
        let free = &self.0[self.len()..];
        for (at, value) in more.into_iter().enumerate() {
            assert!(free[at].set(value).is_ok(), "two threads add sets to one object");
        }
    }

    /// The number of entries.
    pub(crate) fn len(&self) -> usize {
        self.0.partition_point(|value| value.get().is_some())
    }

    /// The limit.
    pub(crate) fn max_sets(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map_while(OnceLock::get)
    }
}

impl<T> Index<usize> for BySet<T> {
    type Output = T;

    #[inline]
    fn index(&self, set: usize) -> &T {
        self.0[set].get().unwrap_or_else(|| panic!("there is no set {set}"))
    }
}
