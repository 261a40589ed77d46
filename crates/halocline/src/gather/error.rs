//! Errors of fields that are gathered.

use crate::error::which_domain;
use halocline_plan::{CellContent, NamedElement};
use std::path::PathBuf;

/// Why fields cannot be gathered.
///
/// ```
/// use halocline::{Communicator, Decomposed, Error, GatherError, RegularGrid};
///
/// let comm = Communicator::single();
/// let pattern = RegularGrid::new((4, 4)).decompose(1)?.pattern(&comm, 1)?;
/// let error = pattern.gather_to::<f64>(&comm, 0, ()).expect_err("no field");
/// assert!(matches!(error, Error::Gather(GatherError::FieldCount { domain: 0, fields: 0 })));
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum GatherError {
    /// No rank has a domain, so that there is no field.
    #[error("no rank has a domain of the pattern, and so no field; gather from a pattern with domains")]
    NoField,
    /// A domain without a field, or with several.
    #[error("domain {domain} of this rank has {fields} fields; give one field for each domain of this rank")]
    FieldCount {
        /// The domain.
        domain: u64,
        /// The fields given for it.
        fields: usize,
    },
    /// A field that could be of several domains, or of none.
    #[error("this rank has the domains {domains:?}; {}", which_domain(domains))]
    WhichDomain {
        /// The domains of this rank.
        domains: Vec<u64>,
    },
    /// A field of a domain of another rank.
    #[error(
        "domain {domain} is not on this rank, which has {domains:?}; give fields of this rank's own domains"
    )]
    NotOnRank {
        /// The domain.
        domain: u64,
        /// The domains of this rank.
        domains: Vec<u64>,
    },
    /// Fields whose cells hold different elements, or different numbers of them.
    #[error(
        "field {field} of rank {rank} has {found} for each cell, a field of rank {of} has {first}; give fields with the same \
         elements and extra dimensions"
    )]
    CellsDiffer {
        /// The rank of a field that differs.
        rank: usize,
        /// Which field of that rank, counted in the order given.
        field: usize,
        /// What its cells hold.
        found: Box<CellContent>,
        /// The rank of the field that it was compared with.
        of: usize,
        /// What the cells of that field hold.
        first: Box<CellContent>,
    },
    /// A field has other elements than the caller of `Pattern::gather_to` asks for.
    #[error(
        "field {field} has elements of {found}, not {wanted}; call gather_to with that type, or gather_field_to"
    )]
    OtherElements {
        /// Which field, counted in the order given.
        field: usize,
        /// Its elements.
        found: NamedElement,
        /// The elements asked for.
        wanted: NamedElement,
    },
    /// The name of a file does not say its format.
    #[error("{path:?} names no format; save to a name that ends in .npy or .zarr")]
    Format {
        /// The path given.
        path: PathBuf,
    },
    /// Vectors, which have two fields for each domain.
    #[error(
        "a pattern of vectors has two fields for each domain; gather those of one component (`Pattern::component`)"
    )]
    Vectors,
    /// Patches of different extents, whose values are no array.
    #[error(
        "patch {patch} has {found:?} values, patch 0 has {first:?}; only patches of equal extents make one array"
    )]
    PatchExtents {
        /// The patch.
        patch: usize,
        /// Its extents.
        found: [usize; 2],
        /// The extents of patch 0.
        first: [usize; 2],
    },
    /// This build of the library writes no Zarr.
    #[error(
        "{} is a Zarr array, which this build cannot write; enable the feature `zarr` of the crate halocline, or save to a name that \
         ends in .npy",
        path.display()
    )]
    WithoutZarr {
        /// The path given.
        path: PathBuf,
    },
    /// A Zarr array was to replace something else.
    #[error(
        "{} exists, and its metadata are not those of a Zarr array of version 3; remove it, or save elsewhere",
        path.display()
    )]
    NotAnArray {
        /// The path given.
        path: PathBuf,
    },
}

halocline_plan::debug_as_text!(GatherError);
