//! What a field on patches holds.

use crate::options::{self, Options, OptionsPtr};
use crate::status::Refusal;
use halocline::{Along, Quantity};

/// `halocline_quantity`.
#[repr(C)]
pub(crate) struct Places {
    pub(crate) size: usize,
    pub(crate) components: usize,
    pub(crate) places: [[i32; 2]; 2],
}

// SAFETY: `repr(C)`, begins with its size, and consists of integers.
unsafe impl Options for Places {
    const FIRST_SIZE: usize = 32;
    const NAME: &'static str = "halocline_quantity";
}

/// The quantity that a struct describes; cells for a null pointer.
pub(super) fn quantity(given: &OptionsPtr<'_, Places>) -> Result<Quantity, Refusal> {
    let Places { components, places, .. } = given.optional()?;
    let along = |number: i32| {
        options::choice(
            number,
            [Along::Centre, Along::Faces, Along::HighFaces, Along::LowFaces],
            "a place of the quantity",
            "set it to HALOCLINE_ALONG_CENTRE, HALOCLINE_ALONG_FACES, HALOCLINE_ALONG_HIGH_FACES or HALOCLINE_ALONG_LOW_FACES",
        )
    };
    let place = |[rows, columns]: [i32; 2]| Ok::<_, Refusal>([along(rows)?, along(columns)?]);
    match components {
        // 0, as in a struct that was not set, is a scalar.
        0 | 1 => Ok(Quantity::scalar(place(places[0])?)),
        2 => Ok(Quantity::vector(place(places[0])?, place(places[1])?)),
        _ => Err(Refusal::argument(format!(
            "components of the quantity is {components}; set it to 1 for scalars or to 2 for vectors"
        ))),
    }
}
