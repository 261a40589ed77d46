//! Errors of layouts and patterns.

mod layout;
mod pattern;

pub use layout::{CellContent, LayoutError, TooSmall};
pub use pattern::PatternError;

/// Implements `Debug` of errors as their text, because `fn main() -> Result<(), Error>` prints `Debug`.
#[doc(hidden)]
#[macro_export]
macro_rules! debug_as_text {
    ($($error:ty),*) => {$(
        impl ::std::fmt::Debug for $error {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                ::std::fmt::Display::fmt(self, f)
            }
        }
    )*};
}
