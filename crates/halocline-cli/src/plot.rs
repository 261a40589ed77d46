//! What all pictures of this program share: their font, and the kinds of file.

use plotters::style::{FontStyle, register_font};
use std::path::{Path, PathBuf};

const FONT: &[u8] = include_bytes!("../assets/DejaVuSans-subset.ttf");

/// The picture cannot be made or written.
#[derive(Debug, thiserror::Error)]
#[error("cannot draw {}: {reason}", path.display())]
pub(crate) struct PlotError {
    /// The file.
    pub(crate) path: PathBuf,
    /// Why not.
    pub(crate) reason: String,
}

/// Kinds of file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Pixels.
    Png,
    /// Lines.
    Svg,
}

/// The kind that the name asks for.
pub(crate) fn kind(path: &Path) -> Result<Kind, PlotError> {
    let is = |kind: &str| path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case(kind));
    match (is("png"), is("svg")) {
        (true, _) => Ok(Kind::Png),
        (_, true) => Ok(Kind::Svg),
        _ => Err(PlotError {
            path: path.to_owned(),
            reason: "a plot is a PNG or SVG file; give a name that ends in .png or .svg".to_owned(),
        }),
    }
}

/// Makes the program's own font that of "sans-serif": no fonts of the system are needed.
pub(crate) fn use_own_font(path: &Path) -> Result<(), PlotError> {
    register_font("sans-serif", FontStyle::Normal, FONT)
        .map_err(|_| PlotError { path: path.to_owned(), reason: "the font is damaged".to_owned() })
}
