//! Errors of reduces and fetches.

use halocline_plan::{ElementType, ReduceOp};

/// Why fields cannot be reduced or fetched from. Nothing has changed, and no epoch was taken.
///
/// ```
/// use halocline::{Array, Communicator, Decomposed, Error, HaloExchange, ReduceError, ReduceOp, RegularGrid};
///
/// let comm = Communicator::single();
/// let pattern = RegularGrid::new([3]).periodic([true]).decompose(1)?.pattern(&comm, 1)?;
/// let mass = Array::<f64>::zeros(&comm, &[5])?;
/// let halo = HaloExchange::bind(&comm, [(&pattern, &mass)])?;
/// let error = halo.reduce(ReduceOp::Xor).expect_err("doubles have no xor");
/// assert!(matches!(error, Error::Reduce(ReduceError::Operation { field: 0, .. })));
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReduceError {
    /// The element type of a field, here or at a peer, does not have the operation.
    #[error(
        "field {field} of the bind has elements of {element}, which have no {op}; choose one that they have: {}",
        ReduceOp::names_for(*.element)
    )]
    Operation {
        /// Which host field, counted in the order of the bind.
        field: usize,
        /// Its element type, or that of the peer's field.
        element: ElementType,
        /// The operation asked for.
        op: ReduceOp,
    },
    /// Two fields share owned cells: the halo cells of both would be combined into them.
    #[error(
        "fields {} and {} of the bind share owned cells, into which a reduce would combine the halo of both; bind them apart",
        fields[0], fields[1]
    )]
    Overlap {
        /// Which host fields, counted in the order of the bind.
        fields: [usize; 2],
    },
    /// The fields of a rank that is no peer of this one have such a fault.
    #[error(
        "fields of this or another rank have no {op}, or share owned cells, so that no rank can reduce by it; choose an operation that the elements \
         of all fields have, and bind fields that share cells apart"
    )]
    Elsewhere {
        /// The operation asked for.
        op: ReduceOp,
    },
    /// A link between device fields, of this or another rank, can carry no reduce.
    #[error(
        "device fields of this or another rank are pulled or sent by NCCL, so that no rank can reduce them; let the bind choose the links"
    )]
    Links,
    /// The memory of a device, of this or another rank, had no space for the halos that peers reduce.
    #[error(
        "a device of this or another rank had no memory left for the halo of its peers when the object was bound, so that no rank can reduce \
         device fields; free memory there, or use smaller fields, and bind again"
    )]
    NoMemory,
    /// Ranks fetch by different operations.
    #[error("a rank fetches by {}, another by {}; give all ranks the same operation", ops[0], ops[1])]
    Operations {
        /// Two of the operations.
        ops: [ReduceOp; 2],
    },
}

halocline_plan::debug_as_text!(ReduceError);
