//! The common parts of all pictures: font, colours, and file formats.

pub(crate) mod chart;
pub(crate) mod colour;
mod palette;
mod svg;

use crate::error::CommandError;
use halocline_device::file;
use palette::Indexed;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::register_font;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::fmt::Display;
use std::path::{Path, PathBuf};

const FONT: &[u8] = include_bytes!("../../assets/DejaVuSans-subset.ttf");

/// The action in errors of plot files.
const WRITE: &str = "write the plot to";

/// Text and axes.
pub(crate) const INK: RGBColor = RGBColor(35, 35, 40);
/// Lines of a scale behind the data.
pub(crate) const FAINT: RGBColor = RGBColor(215, 215, 220);

/// The drawing area.
pub(crate) type Area<B> = DrawingArea<B, Shift>;
/// The result of drawing.
pub(crate) type Drawn<B> = Result<(), DrawingAreaErrorKind<<B as DrawingBackend>::ErrorType>>;

/// Kinds of file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Pixels.
    Png,
    /// Lines.
    Svg,
}

/// The kind that the name asks for.
pub(crate) fn kind(path: &Path) -> Result<Kind, CommandError> {
    let is = |kind: &str| path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case(kind));
    match (is("png"), is("svg")) {
        (true, _) => Ok(Kind::Png),
        (_, true) => Ok(Kind::Svg),
        _ => Err(CommandError::failed(format!(
            "cannot draw {}: a plot is a PNG or SVG file; give a name that ends in .png or .svg",
            path.display()
        ))),
    }
}

/// Refuses files of a kind that is not drawn and files that cannot be written. To be called before the work
/// that a plot shows.
pub(crate) fn check<'a>(paths: impl IntoIterator<Item = &'a PathBuf>) -> Result<(), CommandError> {
    paths.into_iter().try_for_each(|path| kind(path).and_then(|_| check_file(path)))
}

/// Refuses a file that is not named as a PNG image, or cannot be written. To be called before the work that the plot shows.
pub(crate) fn check_png(path: &Path) -> Result<(), CommandError> {
    if path.extension().is_none_or(|extension| !extension.eq_ignore_ascii_case("png")) {
        return Err(CommandError::usage(format!(
            "the plot is to be written to {}, but it is a PNG image; give a name that ends in .png",
            path.display()
        )));
    }
    check_file(path)
}

/// Refuses a file that cannot be written. One that was not there is not there afterwards.
pub(crate) fn check_file(path: &Path) -> Result<(), CommandError> {
    file::check(path).map_err(CommandError::file(WRITE, path))
}

/// Makes the program's own font that of "sans-serif": no fonts of the system are needed.
fn use_own_font(path: &Path) -> Result<(), CommandError> {
    register_font("sans-serif", FontStyle::Normal, FONT).map_err(|_| undrawn(path, "the font is damaged"))
}

/// A picture that can be drawn as pixels and as lines.
pub(crate) trait Picture {
    /// Width and height.
    fn size(&self) -> (u32, u32);

    /// Draws all of it.
    fn draw<B: DrawingBackend>(&self, area: &Area<B>) -> Drawn<B>;
}

/// Draws a picture into a file of the kind that its name asks for.
pub(crate) fn save(path: &Path, picture: &impl Picture) -> Result<(), CommandError> {
    match kind(path)? {
        Kind::Png => save_png(path, picture.size(), |area| picture.draw(area)),
        Kind::Svg => {
            let mut text = String::new();
            onto(path, SVGBackend::with_string(&mut text, picture.size()), |area| picture.draw(area))?;
            write(path, svg::compact(&text).as_bytes())
        }
    }
}

/// Draws pixels into a PNG file.
pub(crate) fn save_png(
    path: &Path,
    (width, height): (u32, u32),
    draw: impl for<'a> FnOnce(&Area<BitMapBackend<'a>>) -> Drawn<BitMapBackend<'a>>,
) -> Result<(), CommandError> {
    let mut pixels = vec![0; 3 * width as usize * height as usize];
    onto(path, BitMapBackend::with_buffer(&mut pixels, (width, height)), draw)?;
    let encoded = encode(&pixels, (width, height));
    write(path, &encoded.map_err(|error| undrawn(path, error))?)
}

fn encode(pixels: &[u8], (width, height): (u32, u32)) -> Result<Vec<u8>, png::EncodingError> {
    let (pixels, _) = pixels.as_chunks::<3>();
    let Indexed { palette, pixels } = palette::reduce(pixels);
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(png::ColorType::Indexed);
    encoder.set_palette(palette.concat());
    encoder.set_compression(png::Compression::High);
    // Differences of numbers of colours mean nothing.
    encoder.set_filter(png::Filter::NoFilter);
    encoder.write_header()?.write_image_data(&pixels)?;
    Ok(bytes)
}

fn onto<B: DrawingBackend>(
    path: &Path,
    backend: B,
    draw: impl FnOnce(&Area<B>) -> Drawn<B>,
) -> Result<(), CommandError> {
    use_own_font(path)?;
    let area = backend.into_drawing_area();
    let drawn = area.fill(&WHITE).and_then(|()| draw(&area)).and_then(|()| area.present());
    drawn.map_err(|error| undrawn(path, error))
}

fn undrawn(path: &Path, error: impl Display) -> CommandError {
    CommandError::failed(format!(
        "cannot draw {}: {error}; please report this with the command",
        path.display()
    ))
}

fn write(path: &Path, content: &[u8]) -> Result<(), CommandError> {
    file::replace(path, &[content]).map_err(CommandError::file(WRITE, path))
}

/// Writes one line of text, centred upon the place from top to bottom.
pub(crate) fn text<B: DrawingBackend>(
    area: &Area<B>,
    text: &str,
    place: (i32, i32),
    size: f64,
    side: HPos,
) -> Drawn<B> {
    let style =
        TextStyle::from(("sans-serif", size).into_font()).color(&INK).pos(Pos::new(side, VPos::Center));
    area.draw(&Text::new(text.to_owned(), place, style))
}

/// The next of 1, 2, 5, 10, … that is no less.
pub(crate) fn round_step(value: f64) -> f64 {
    let decade = 10f64.powf(value.max(f64::MIN_POSITIVE).log10().floor());
    [1.0, 2.0, 5.0]
        .into_iter()
        .map(|digit| digit * decade)
        .find(|&step| step >= value)
        .unwrap_or(10.0 * decade)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unwritable_pictures_are_refused_before_the_work() {
        let folder = tempfile::tempdir().unwrap();
        let within = |name: &str| folder.path().join(name);
        assert!(check(&[within("a.png"), within("b.SVG")]).is_ok());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "a check leaves files behind");
        assert!(check(&[within("a.pdf")]).unwrap_err().to_string().contains(".svg"));
        assert!(matches!(check(&[within("none/a.png")]), Err(CommandError::File { .. })));
    }

    struct Broken;

    impl Picture for Broken {
        fn size(&self) -> (u32, u32) {
            (8, 8)
        }

        fn draw<B: DrawingBackend>(&self, _: &Area<B>) -> Drawn<B> {
            Err(DrawingAreaErrorKind::LayoutError)
        }
    }

    #[test]
    fn a_picture_that_cannot_be_drawn_is_named() {
        let error = save(Path::new("a.svg"), &Broken).unwrap_err().to_string();
        assert!(error.starts_with("cannot draw a.svg: "), "{error}");
        assert!(error.ends_with("; please report this with the command"), "{error}");
    }

    #[test]
    fn steps_are_round() {
        assert_eq!(round_step(3.2), 5.0);
        assert_eq!(round_step(0.12), 0.2);
        assert_eq!(round_step(7.0), 10.0);
    }
}
