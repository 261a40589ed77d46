//! The argument of Python's call that an error of the library is about, where only one argument can be.

use halocline::comm::CommError;
use halocline::plan::{PatternError, RedistributeError};
use halocline::{Error, GatherError, IconGridError, MeshError, PartitionError, PatchError};

/// The name of the argument, with the index of the entry where the error names one: `owners[3]`.
pub(crate) fn argument_name(error: &Error) -> Option<String> {
    let name = match error {
        Error::Pattern(error) => return of_pattern(error),
        Error::IconGrid(IconGridError::Mesh(error)) => return of_mesh(error),
        Error::IconGrid(IconGridError::NoColumn { .. }) => "ids",
        Error::IconGrid(
            IconGridError::File { .. }
            | IconGridError::NoDimension { .. }
            | IconGridError::TooLarge { .. }
            | IconGridError::TooMany { .. },
        ) => "path",
        Error::NoSuchSet { .. } => "set",
        Error::NoSuchPeer { .. } => "peer",
        Error::MessageLength { .. } => "message",
        Error::Save { .. } | Error::Gather(GatherError::Format { .. } | GatherError::NotAnArray { .. }) => {
            "path"
        }
        Error::NoSuchPattern { field, .. } | Error::GatheredField { field, .. } => {
            return Some(format!("fields[{field}]"));
        }
        Error::Comm(CommError::NoSuchRank { .. }) => "root",
        Error::Comm(CommError::NoSuchTransport(_)) => "transport",
        _ => return None,
    };
    Some(name.to_owned())
}

fn of_pattern(error: &PatternError) -> Option<String> {
    use PatternError as E;
    let name = match error {
        E::Partition(error) => return of_partition(error),
        E::Mesh(error) => return of_mesh(error),
        E::Patch(error) => return Some(of_patches(error)),
        E::Unstructured(_) => "domains",
        E::Redistribute(RedistributeError::Ranks { .. } | RedistributeError::Grids { .. }) => "target",
        E::GridAxes(_) | E::EmptyAxis { .. } | E::GridTooLarge { .. } => "shape",
        E::AxisCount { what: "halo widths", .. } => "halo",
        E::AxisCount { what: "flags of staggered axes", .. } | E::StaggeredTwice { .. } => "axes",
        E::AxisCount { what: "numbers of blocks", .. } => "blocks",
        E::AxisCount { what: "lists of cuts", .. } => "cuts",
        E::AxisCount { .. } => "boxes",
        E::Zero { .. } | E::TooManyDomains { .. } | E::MoreRanksThanCells { .. } | E::NoFactors { .. } => {
            "comm"
        }
        E::BlocksOnAxis { axis, .. } => return Some(format!("blocks[{axis}]")),
        E::BlocksForRanks { .. } => "blocks",
        E::Cut { axis, .. } => return Some(format!("cuts[{axis}]")),
        E::BoxRank { number, .. } | E::BoxOutside { number, .. } => return Some(format!("boxes[{number}]")),
        E::BoxesOverlap { .. } | E::CellInNoBox { .. } => "boxes",
        E::NoSuchRank { .. } => "rank",
        E::HaloTooLarge { .. }
        | E::TooManyPieces { .. }
        | E::NarrowedWider { .. }
        | E::NarrowedDeeper { .. }
        | E::NarrowedByAxis => "halo",
        _ => return None,
    };
    Some(name.to_owned())
}

fn of_patches(error: &PatchError) -> String {
    use PatchError as E;
    match error {
        E::Empty { patch, .. } => format!("patches[{patch}]"),
        E::NoSuchSide { seam, .. } | E::JoinedWithItself { seam, .. } | E::Lengths { seam, .. } => {
            format!("seams[{seam}]")
        }
        E::JoinedTwice { other, .. } => format!("seams[{other}]"),
        E::BlocksOnAxis { patch, axis, .. } => format!("blocks[{patch}][{axis}]"),
        E::BlocksForPatches { .. } | E::FewerDomainsThanRanks { .. } => "blocks".to_owned(),
        E::NoBlocks { .. } | E::MoreRanksThanCells { .. } => "comm".to_owned(),
        E::HaloTooWide { .. } | E::TooManySeams { .. } => "halo".to_owned(),
        E::Places { .. } | E::NotHeld { .. } | E::TooManyPlaces { .. } => "quantity".to_owned(),
        E::NoSuchTile { .. } => "tile".to_owned(),
        E::OutsideOfTile { .. } => "along".to_owned(),
        E::CornerAxis { .. } | E::NoThreePatchCorners => "axis".to_owned(),
        // Of a grid with a name the extents are given, of others the patches.
        _ => "patches".to_owned(),
    }
}

fn of_partition(error: &PartitionError) -> Option<String> {
    use PartitionError as E;
    let name = match error {
        E::NoRanks | E::MoreRanksThanCells { .. } | E::TooManyRanks { .. } | E::Owner { ranks: 0, .. } => {
            "ranks"
        }
        E::Memory { .. } => "cells",
        E::Owner { cell, .. } => return Some(format!("owners[{cell}]")),
        E::Offsets { .. } => "offsets",
        E::Neighbour { .. } | E::OneWay { .. } => "neighbours",
        E::TooLarge { .. } | E::Metis(_) => "graph",
        _ => return None,
    };
    Some(name.to_owned())
}

fn of_mesh(error: &MeshError) -> Option<String> {
    use MeshError as E;
    let name = match error {
        E::Arity { .. } | E::Vertex { .. } | E::Solid { .. } => "connectivity",
        E::Offsets { .. } | E::EmptyElement { .. } => "offsets",
        E::TooLarge { what, .. } if *what == "vertices" => "vertices",
        E::TooLarge { what, .. } if *what == "elements" => "connectivity",
        E::TooLarge { what, .. } if *what == "parts" => "partition",
        E::PartitionLength { .. } => "partition",
        // `domains_by_vertex` and `domains_by_element` call it `rank`.
        E::Rank { .. } => "part",
        E::DepthBeyondMesh { .. } | E::TooDeep { .. } | E::DepthBeyondPart { .. } => "depth",
        E::Count { what, .. } | E::SameId { what, .. } => what,
        E::LonelyVertex { .. } | E::EdgeVertex { .. } => "vertices",
        E::Segments { .. } => "segments",
        E::Bisections { .. } => "bisections",
        _ => return None,
    };
    Some(name.to_owned())
}
