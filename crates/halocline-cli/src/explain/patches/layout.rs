//! The grids of patches that the command line names.

use crate::options::Grid;
use halocline::{Along, PatchGrid, PatternError, Pivot, Quantity};
use std::fmt;
use std::str::FromStr;

/// A grid of patches by its name, such as `cubed:96`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::explain) enum PatchLayout {
    /// The cubed sphere of n x n cells on each of its tiles.
    Cubed(usize),
    /// The patches of an LLC grid.
    LatLonCap(usize),
    /// Rows and columns, folded at the northern side.
    Tripolar([usize; 2], Pivot),
    /// Rows and columns from pole to pole.
    LatLon([usize; 2]),
}

impl PatchLayout {
    pub(super) fn grid(self) -> Result<PatchGrid, PatternError> {
        match self {
            Self::Cubed(n) => PatchGrid::cubed_sphere(n),
            Self::LatLonCap(n) => PatchGrid::lat_lon_cap(n),
            Self::Tripolar(extents, pivot) => PatchGrid::tripolar(extents, pivot),
            Self::LatLon(extents) => PatchGrid::latitude_longitude(extents),
        }
    }
}

impl FromStr for PatchLayout {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is no grid; give numbers above 0, such as 64x64x64, or a grid of patches: cubed:N, llc:N, \
                 latlon:ROWSxCOLUMNS, tripolar:ROWSxCOLUMNS or tripolar:ROWSxCOLUMNS:cell"
            )
        };
        let (name, numbers) = text.split_once(':').ok_or_else(wrong)?;
        let pair = |numbers: &str| match numbers.parse::<Grid>().map(|grid| grid.0).as_deref() {
            Ok(&[rows, columns]) => Ok([rows, columns]),
            _ => Err(wrong()),
        };
        let one = || numbers.parse().map_err(|_| wrong());
        match (name, numbers.split_once(':')) {
            ("cubed", None) => Ok(Self::Cubed(one()?)),
            ("llc", None) => Ok(Self::LatLonCap(one()?)),
            ("latlon", None) => Ok(Self::LatLon(pair(numbers)?)),
            ("tripolar", None) => Ok(Self::Tripolar(pair(numbers)?, Pivot::Corner)),
            ("tripolar", Some((numbers, "cell"))) => Ok(Self::Tripolar(pair(numbers)?, Pivot::Cell)),
            ("tripolar", Some((numbers, "corner"))) => Ok(Self::Tripolar(pair(numbers)?, Pivot::Corner)),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for PatchLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cubed(n) => write!(f, "cubed:{n}"),
            Self::LatLonCap(n) => write!(f, "llc:{n}"),
            Self::Tripolar([rows, columns], Pivot::Cell) => write!(f, "tripolar:{rows}x{columns}:cell"),
            Self::Tripolar([rows, columns], Pivot::Corner) => write!(f, "tripolar:{rows}x{columns}"),
            Self::LatLon([rows, columns]) => write!(f, "latlon:{rows}x{columns}"),
        }
    }
}

/// What the fields hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(in crate::explain) enum Values {
    Cells,
    Corners,
    CellVectors,
    CGrid,
    DGrid,
    /// A scalar at the high corner of each cell: NEMO's F points.
    HighCorners,
    /// Each component at the high face of each cell that it crosses: NEMO's V and U points.
    HighFaces,
    /// A scalar at the low corner of each cell.
    LowCorners,
    /// Each component at the low face of each cell that it crosses: Oceananigans, MITgcm.
    LowFaces,
}

impl Values {
    pub(super) fn quantity(self) -> Quantity {
        match self {
            Self::Cells => Quantity::cells(),
            Self::Corners => Quantity::corners(),
            Self::CellVectors => Quantity::cell_vectors(),
            Self::CGrid => Quantity::c_grid(),
            Self::DGrid => Quantity::d_grid(),
            Self::HighCorners => Quantity::scalar([Along::HighFaces; 2]),
            Self::HighFaces => {
                Quantity::vector([Along::HighFaces, Along::Centre], [Along::Centre, Along::HighFaces])
            }
            Self::LowCorners => Quantity::scalar([Along::LowFaces; 2]),
            Self::LowFaces => {
                Quantity::vector([Along::LowFaces, Along::Centre], [Along::Centre, Along::LowFaces])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_written() {
        for (text, layout) in [
            ("cubed:96", PatchLayout::Cubed(96)),
            ("llc:90", PatchLayout::LatLonCap(90)),
            ("latlon:90x180", PatchLayout::LatLon([90, 180])),
            ("tripolar:332x362", PatchLayout::Tripolar([332, 362], Pivot::Corner)),
            ("tripolar:148x180:cell", PatchLayout::Tripolar([148, 180], Pivot::Cell)),
        ] {
            assert_eq!(text.parse(), Ok(layout));
            assert_eq!(layout.to_string(), text);
        }
        for text in
            ["", "cubed", "cubed:", "cubed:4x4", "llc:-1", "latlon:4", "latlon:4x4x4", "tripolar:4x8:edge"]
        {
            assert!(text.parse::<PatchLayout>().unwrap_err().contains("cubed:N"), "{text}");
        }
    }
}
