//! The grid and the time that a run is asked for.

use super::SphereError;
use std::fmt;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Cells along a tile of the cubed sphere. The halo is two cells wide.
pub(super) const CUBED: RangeInclusive<usize> = 4..=1024;
/// Bisections of the edges of the icosahedron. With fewer, the bell falls between the cells; with more, the mesh, which each rank makes
/// as a whole, becomes large.
pub(super) const ICOSAHEDRAL: RangeInclusive<usize> = 2..=8;
/// The fewest triangles that a file may have: those of the coarsest icosahedral grid.
pub(super) const FEWEST_CELLS: usize = 20 << (2 * *ICOSAHEDRAL.start());
/// Cells of the tripolar grid along each axis.
pub(super) const TRIPOLAR: RangeInclusive<usize> = 8..=2048;
/// The longest time to simulate, days.
pub(super) const MOST_DAYS: f64 = 10_000.0;

/// A grid of the Earth.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum GridChoice {
    /// Six tiles of n x n cells.
    Cubed { n: usize },
    /// An icosahedron whose edges are bisected `level` times.
    Icosahedral { level: usize },
    /// The triangles of a grid file of ICON.
    File { path: PathBuf },
    /// Folded at its northern side.
    Tripolar { rows: usize, columns: usize },
    /// The grid of a NetCDF file of NEMO.
    TripolarFile { path: PathBuf },
}

impl GridChoice {
    /// The file that holds the grid.
    pub(super) fn file(&self) -> Option<&Path> {
        match self {
            Self::File { path } | Self::TripolarFile { path } => Some(path),
            Self::Cubed { .. } | Self::Icosahedral { .. } | Self::Tripolar { .. } => None,
        }
    }

    fn checked(self) -> Result<Self, SphereError> {
        match self {
            Self::Cubed { n } if !CUBED.contains(&n) => Err(SphereError::Cubed { n }),
            Self::Icosahedral { level } if !ICOSAHEDRAL.contains(&level) => {
                Err(SphereError::Icosahedral { level })
            }
            Self::Tripolar { rows, columns } if !TRIPOLAR.contains(&rows) || !TRIPOLAR.contains(&columns) => {
                Err(SphereError::Tripolar { rows, columns })
            }
            Self::Tripolar { columns, .. } if !columns.is_multiple_of(2) => {
                Err(SphereError::OddColumns { columns })
            }
            valid => Ok(valid),
        }
    }

    /// The name for a title: of a file without its folder.
    pub(super) fn name(&self) -> String {
        let of_file =
            |kind: &str, path: &Path| format!("{kind}:{}", path.file_name().unwrap_or_default().display());
        match self {
            Self::File { path } => of_file("icosahedral", path),
            Self::TripolarFile { path } => of_file("tripolar", path),
            generated => generated.to_string(),
        }
    }
}

impl FromStr for GridChoice {
    type Err = SphereError;

    fn from_str(text: &str) -> Result<Self, SphereError> {
        let number = |digits: &str| digits.parse::<usize>().ok();
        // `halocline explain` has pivots in names of grids. Here generated grids are folded at corners.
        let is_extents = |text: &str| {
            let numbers = text.strip_suffix(":cell").or(text.strip_suffix(":corner")).unwrap_or(text);
            numbers.chars().all(|c| c.is_ascii_digit() || c == 'x')
        };
        let choice = match text.split_once(':') {
            Some(("cubed", n)) => number(n).map(|n| Self::Cubed { n }),
            Some(("icosahedral", "")) => None,
            Some(("icosahedral", given))
                if number(given).is_none()
                    && given.chars().all(|c| c.is_ascii_digit() || "+-.".contains(c)) =>
            {
                None
            }
            Some(("icosahedral", given)) => Some(match number(given) {
                Some(level) => Self::Icosahedral { level },
                None => Self::File { path: given.into() },
            }),
            Some(("tripolar", extents)) if is_extents(extents) => {
                extents.split_once('x').and_then(|(rows, columns)| {
                    Some(Self::Tripolar { rows: number(rows)?, columns: number(columns)? })
                })
            }
            Some(("tripolar", file)) => Some(Self::TripolarFile { path: file.into() }),
            _ => None,
        };
        choice.ok_or_else(|| SphereError::Grid { text: text.to_owned() })?.checked()
    }
}

impl fmt::Display for GridChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cubed { n } => write!(f, "cubed:{n}"),
            Self::Icosahedral { level } => write!(f, "icosahedral:{level}"),
            Self::File { path } => write!(f, "icosahedral:{}", path.display()),
            Self::Tripolar { rows, columns } => write!(f, "tripolar:{rows}x{columns}"),
            Self::TripolarFile { path } => write!(f, "tripolar:{}", path.display()),
        }
    }
}

/// A simulated time, days.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Days(pub(super) f64);

impl FromStr for Days {
    type Err = SphereError;

    fn from_str(text: &str) -> Result<Self, SphereError> {
        let days = text.parse().ok().filter(|&days: &f64| days > 0.0 && days <= MOST_DAYS);
        days.map(Self).ok_or_else(|| SphereError::Days { text: text.to_owned() })
    }
}

pub(super) fn days_in_words(days: f64) -> String {
    if days == 1.0 { "1 day".to_owned() } else { format!("{days} days") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grids_are_read_as_they_are_written() {
        let grids = ["cubed:48", "icosahedral:4", "icosahedral:./4", "icosahedral:a:b.nc", "tripolar:90x180"];
        for text in grids.into_iter().chain(["tripolar:orca:2/grid.nc"]) {
            assert_eq!(text.parse::<GridChoice>().unwrap().to_string(), text);
        }
        // As in `explain --grid tripolar:90x180`, and as the library gives extents.
        assert_eq!("tripolar:90x180".parse(), Ok(GridChoice::Tripolar { rows: 90, columns: 180 }));
        let name = |text: &str| text.parse::<GridChoice>().unwrap().name();
        let names = ["cubed:48", "icosahedral:./a.nc", "tripolar:orca:2/grid.nc"].map(name);
        assert_eq!(names, ["cubed:48", "icosahedral:a.nc", "tripolar:grid.nc"]);
    }

    #[test]
    fn grids_that_cannot_be_are_refused() {
        let error = |text: &str| text.parse::<GridChoice>().unwrap_err();
        for text in [
            "",
            "cubed",
            "cubed:",
            "cubed:-4",
            "cubed:4.5",
            "icosahedral:",
            "tripolar:8",
            "tripolar:8x8x8",
            "tripolar:20x40:cell",
            "tripolar:20x40:corner",
            "icosahedral:-1",
            "icosahedral:4.5",
            "octahedral:4",
        ] {
            assert_eq!(error(text), SphereError::Grid { text: text.to_owned() });
        }
        assert_eq!(error("cubed:3"), SphereError::Cubed { n: 3 });
        assert_eq!(error("cubed:1025"), SphereError::Cubed { n: 1025 });
        assert_eq!(error("icosahedral:1"), SphereError::Icosahedral { level: 1 });
        assert_eq!(error("icosahedral:9"), SphereError::Icosahedral { level: 9 });
        assert_eq!(error("tripolar:7x8"), SphereError::Tripolar { rows: 7, columns: 8 });
        assert_eq!(error("tripolar:8x9"), SphereError::OddColumns { columns: 9 });
        // More than a number holds.
        assert!(matches!(error("cubed:99999999999999999999"), SphereError::Grid { .. }));
    }

    #[test]
    fn one_day_is_no_days() {
        assert_eq!([0.5, 1.0, 12.0].map(days_in_words), ["0.5 days", "1 day", "12 days"]);
    }

    #[test]
    fn times_are_positive_numbers() {
        assert_eq!("0.5".parse(), Ok(Days(0.5)));
        for text in ["0", "-1", "nan", "inf", "10001", "twelve"] {
            assert_eq!(text.parse::<Days>(), Err(SphereError::Days { text: text.to_owned() }));
        }
    }
}
