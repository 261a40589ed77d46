//! Errors of access to an array's elements.

use halocline_plan::{Layout, NamedElement};

/// Why an array cannot be made, or its elements cannot be accessed.
///
/// ```
/// use halocline::{Array, ArrayError, Communicator, Error};
///
/// let t = Array::<f64>::zeros(&Communicator::single(), &[4, 4])?;
/// let reader = t.read()?;
/// let error = t.write().expect_err("a guard is held");
/// assert!(matches!(error, Error::Array(ArrayError::Borrowed)));
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ArrayError {
    /// The number of elements differs from that of the array.
    #[error("the array of shape {extents:?} takes {expected} elements, {found} are given; give {expected}")]
    Length {
        /// Extents of the array.
        extents: Vec<usize>,
        /// Elements of its memory.
        expected: usize,
        /// Elements given.
        found: usize,
    },
    /// The number of bytes differs from that of the field.
    #[error(
        "the memory of the field takes {expected} bytes from its lowest to its highest element, {found} are given; give {expected}"
    )]
    Bytes {
        /// Bytes of the field.
        expected: usize,
        /// Bytes given.
        found: usize,
    },
    /// A copy in the order of a stream, of a field in host memory.
    #[error(
        "the field lies in host memory, which no stream copies; access its elements directly, at the address of its base"
    )]
    OnHost,
    /// A guard of an array was requested between the begin of an exchange and the end of its wait.
    #[error(
        "an exchange of this array is in flight; wait for it first, or read its owned cells with `Pending::owned`"
    )]
    InFlight,
    /// Owned cells of a completed exchange were requested.
    #[error(
        "exchange {epoch} is not in flight; read the whole array with `Array::read`, unless another exchange of it is in flight"
    )]
    NotInFlight {
        /// The exchange.
        epoch: u64,
    },
    /// Owned cells were requested of an array that is no field of the exchange, or not the only field in its memory.
    #[error(
        "this array is not a field of exchange {epoch}, or shares its memory with other fields of it; pass the array that was \
         bound or given to the exchange, not one that a bound view is of"
    )]
    NotExchanged {
        /// The exchange.
        epoch: u64,
    },
    /// A guard of an array was requested while another guard excludes it.
    #[error("another guard of this array is held; drop it first")]
    Borrowed,
    /// The layout of an array does not consist of whole elements of its type.
    #[error(
        "an array of {wanted} ({} bytes) cannot have a layout of {} ({} bytes) with shape {:?} and strides {:?} in bytes; give a \
         layout of {wanted} whose strides are multiples of {} bytes",
        wanted.element.size(), layout.named_element(), layout.element().size(), layout.extents(), layout.strides(), wanted.element.size()
    )]
    Element {
        /// The array's elements.
        wanted: NamedElement,
        /// The layout asked for.
        layout: Box<Layout>,
    },
    /// A view with another number of dimensions than the array.
    #[error("a view of {wanted} dimensions was asked for, the array has {found}; ask for a view of {found}")]
    Dimensions {
        /// Dimensions asked for.
        wanted: usize,
        /// Dimensions of the array.
        found: usize,
    },
    /// A view of owned or halo cells of a domain in which they are no boxes.
    #[error(
        "domain {domain} has halo cells before owned ones, so that neither are a range; take the indices of \
         `Domain::owned_indices`"
    )]
    NoRange {
        /// The domain's number.
        domain: u64,
    },
    /// A view of owned cells while an exchange is in flight that has other owned cells in this array, or fills them.
    #[error(
        "cells that domain {domain} owns in this array are not owned in the exchange in flight, or are filled by it; give the domain \
         that the array was bound to, and wait first if it is the target of a redistribution"
    )]
    NotOwned {
        /// The domain's number.
        domain: u64,
    },
}

halocline_plan::debug_as_text!(ArrayError);
