//! Why a case failed: a text and the line that detected it.

use std::fmt;
use std::panic::Location;

/// Why a case failed on this rank, and where in the suite.
///
/// Made from any error by `?`, or by [`crate::ensure`] and [`crate::fail`].
#[derive(Debug, Clone)]
pub struct Trouble {
    text: String,
    place: &'static Location<'static>,
}

impl Trouble {
    /// A failure noticed by the caller.
    #[track_caller]
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), place: Location::caller() }
    }
}

impl<E: std::error::Error> From<E> for Trouble {
    #[track_caller]
    fn from(error: E) -> Self {
        Self::new(format!("unexpected error: {error}"))
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}:{})", self.text, self.place.file(), self.place.line())
    }
}

/// Ends the calling function with a [`Trouble`] of the given text.
#[macro_export]
macro_rules! fail {
    ($($text:tt)*) => {
        return Err($crate::Trouble::new(format!($($text)*)))
    };
}

/// Ends the calling function with a [`Trouble`] of the given text unless the condition holds.
#[macro_export]
macro_rules! ensure {
    ($condition:expr, $($text:tt)*) => {
        if !$condition {
            $crate::fail!($($text)*);
        }
    };
}
