//! Errors of index lists.

use halocline_plan::ElementType;

/// Why an index list cannot be made, or is not complete.
///
/// ```
/// use halocline::{Array, Communicator, Error, IndexListError, IndexLists};
///
/// let comm = Communicator::single();
/// let (owners, cells) = (Array::<i32>::zeros(&comm, &[3])?, Array::<u32>::zeros(&comm, &[2])?);
/// let mut lists = IndexLists::new();
/// lists.owned(&owners, 1, &[0], &cells, None)?;
/// // All three cells are those of rank 0.
/// let error = lists.counts().expect_err("two fit");
/// assert!(matches!(error, Error::IndexList(IndexListError::Capacity { found: 3, capacity: 2 })));
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum IndexListError {
    /// An array that is no contiguous list.
    #[error(
        "`{array}` has shape {extents:?} and strides {strides:?} in bytes; give an array of one dimension without gaps"
    )]
    Shape {
        /// The argument.
        array: &'static str,
        /// Its extents.
        extents: Vec<usize>,
        /// Its strides in bytes.
        strides: Vec<isize>,
    },
    /// Elements that are no integers of 32 or 64 bits.
    #[error("`{array}` has elements of {element}; give int32, uint32, int64 or uint64")]
    Element {
        /// The argument.
        array: &'static str,
        /// Its elements.
        element: ElementType,
    },
    /// The result of unique ids has elements of another type.
    #[error("`unique` has elements of {unique}, `ids` of {ids}; give arrays of one type")]
    Types {
        /// Elements of the result.
        unique: ElementType,
        /// Elements of the ids.
        ids: ElementType,
    },
    /// Arrays in different memories, or streams without device memory.
    #[error(
        "`{array}` lies in {space}, `{other}` in {other_space}; give arrays of one device, or of the host"
    )]
    Space {
        /// An argument.
        array: &'static str,
        /// Its memory.
        space: halocline_device::MemorySpace,
        /// Another argument.
        other: &'static str,
        /// Its memory.
        other_space: halocline_device::MemorySpace,
    },
    /// Arrays that share bytes.
    #[error("`{array}` and `{other}` share memory; give arrays of their own")]
    Overlap {
        /// An argument.
        array: &'static str,
        /// Another argument.
        other: &'static str,
    },
    /// Arrays of a device without a stream.
    #[error("the arrays lie in memory of device {device}, but no stream is given; give one of that device")]
    NoStream {
        /// The device.
        device: u32,
    },
    /// A stream under capture.
    #[error("index lists cannot be captured into a CUDA graph; make them before the capture begins")]
    Captured,
    /// Ranks that are not in ascending order.
    #[error(
        "rank {rank} at position {position} of `ranks` follows rank {before}; give each rank once, in ascending order"
    )]
    Order {
        /// Where it is.
        position: usize,
        /// The rank.
        rank: usize,
        /// The one before it.
        before: usize,
    },
    /// A rank beyond the communicator.
    #[error("there is no rank {rank} at position {position} of `ranks`: there are {size}, counted from 0")]
    Rank {
        /// Where it is.
        position: usize,
        /// The rank.
        rank: usize,
        /// The number of ranks.
        size: usize,
    },
    /// More ranks than 32 bits count.
    #[error("{size} ranks are more than 2^32 - 1; give the size of the communicator")]
    Size {
        /// The number given.
        size: usize,
    },
    /// More cells than the elements of the list can number.
    #[error("{cells} cells are more than {index} can number; give `indices` of int64 or uint64")]
    TooMany {
        /// The number of cells.
        cells: usize,
        /// Elements of the list.
        index: ElementType,
    },
    /// A cell whose owner is no rank.
    #[error(
        "the owner of cell {cell} is {owner}, but there are {size} ranks, counted from 0; give each cell a rank of the communicator"
    )]
    Owner {
        /// The first such cell.
        cell: u64,
        /// Its owner.
        owner: i128,
        /// The number of ranks.
        size: usize,
    },
    /// The result is longer than its array.
    #[error(
        "the list has {found} elements, its array {capacity}; give a larger array, and make the list again"
    )]
    Capacity {
        /// Elements of the list.
        found: usize,
        /// Elements of the array.
        capacity: usize,
    },
    /// Arrays of different lengths.
    #[error("there are {ids} ids and {owners} owners; give the owner of each cell")]
    Lengths {
        /// The number of ids.
        ids: usize,
        /// The number of owners.
        owners: usize,
    },
    /// A negative id.
    #[error("cell {cell} has the id {id}; give ids from 0")]
    Id {
        /// The first such cell.
        cell: usize,
        /// Its id.
        id: i64,
    },
}

halocline_plan::debug_as_text!(IndexListError);
