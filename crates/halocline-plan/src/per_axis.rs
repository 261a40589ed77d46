//! Values given one for each axis.

/// One value for each axis, as callers write it: an array, a slice, a `Vec`, or a tuple of up to six.
///
/// ```
/// use halocline_plan::{PerAxis, RegularGrid};
///
/// /// A grid that is periodic along all axes.
/// fn torus(extents: impl PerAxis<usize>) -> RegularGrid {
///     let extents = extents.into_vec();
///     let periodic = vec![true; extents.len()];
///     RegularGrid::new(extents).periodic(periodic)
/// }
///
/// assert_eq!(torus((64, 32)), torus([64, 32]));
/// ```
pub trait PerAxis<T> {
    /// The values, axis 0 first.
    fn into_vec(self) -> Vec<T>;
}

impl<T> PerAxis<T> for Vec<T> {
    fn into_vec(self) -> Vec<T> {
        self
    }
}

impl<T, const N: usize> PerAxis<T> for [T; N] {
    fn into_vec(self) -> Vec<T> {
        self.into()
    }
}

impl<T: Clone> PerAxis<T> for &Vec<T> {
    fn into_vec(self) -> Vec<T> {
        self.clone()
    }
}

impl<T: Clone, const N: usize> PerAxis<T> for &[T; N] {
    fn into_vec(self) -> Vec<T> {
        self.to_vec()
    }
}

impl<T: Clone> PerAxis<T> for &[T] {
    fn into_vec(self) -> Vec<T> {
        self.to_vec()
    }
}

macro_rules! same {
    ($name:ident) => {
        T
    };
}

macro_rules! tuples {
    ($first:ident $($rest:ident)*) => {
        impl<T> PerAxis<T> for (T, $(same!($rest),)*) {
            #[allow(non_snake_case)]
            fn into_vec(self) -> Vec<T> {
                let ($first, $($rest,)*) = self;
                vec![$first, $($rest),*]
            }
        }
        tuples!($($rest)*);
    };
    () => {};
}

tuples!(A B C D E F);
