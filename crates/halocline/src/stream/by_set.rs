//! What there is for each set of an object: those that were bound, and further ones, made later, of which there are so many at most.

use std::ops::Index;
use std::sync::OnceLock;

/// A list to which one thread at a time adds while others read what is there.
pub(crate) struct BySet<T>(Box<[OnceLock<T>]>);

impl<T> BySet<T> {
    /// Room for so many.
    pub(crate) fn new(room: usize, first: impl IntoIterator<Item = T>) -> Self {
        let this = Self((0..room).map(|_| OnceLock::new()).collect());
        this.extend(first);
        this
    }

    /// Adds some; there is room for them.
    pub(crate) fn extend(&self, more: impl IntoIterator<Item = T>) {
        let free = &self.0[self.len()..];
        for (at, value) in more.into_iter().enumerate() {
            assert!(free[at].set(value).is_ok(), "two threads add sets to one object");
        }
    }

    /// How many are there.
    pub(crate) fn len(&self) -> usize {
        self.0.partition_point(|value| value.get().is_some())
    }

    /// How many there can be.
    pub(crate) fn room(&self) -> usize {
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
