//! Layouts of arrays: element type, extents, byte strides.

use crate::options::{self, Options, OptionsPtr};
use crate::pointer::{array, optional_array, text};
use crate::status::Refusal;
use halocline::{ElementType, Layout};
use std::ffi::c_char;

/// `halocline_layout`.
#[repr(C)]
pub(crate) struct LayoutOptions {
    pub(crate) size: usize,
    pub(crate) dimensions: usize,
    pub(crate) extents: *const usize,
    pub(crate) strides: *const isize,
    pub(crate) axis_count: usize,
    pub(crate) axes: *const usize,
    pub(crate) origin_count: usize,
    pub(crate) origin: *const usize,
    pub(crate) name: *const c_char,
    pub(crate) element: i32,
    pub(crate) padded: i32,
}

// SAFETY: `repr(C)`, begins with its size, and consists of integers and raw pointers.
unsafe impl Options for LayoutOptions {
    const FIRST_SIZE: usize = 80;
    const NAME: &'static str = "halocline_layout";
}

/// The most dimensions of an array.
const DIMENSIONS: usize = 64;

/// The layout that a struct describes.
pub(crate) fn layout(layout: &OptionsPtr<'_, LayoutOptions>) -> Result<Layout, Refusal> {
    let given = layout.required()?;
    let element = element(given.element)?;
    for (count, what) in [
        (given.dimensions, "dimensions"),
        (given.axis_count, "axis_count"),
        (given.origin_count, "origin_count"),
    ] {
        if count > DIMENSIONS {
            return Err(Refusal::argument(format!(
                "{what} of the layout is {count}; at most {DIMENSIONS} are possible"
            )));
        }
    }
    // SAFETY: by the contract of `OptionsPtr` and the header, `extents` is null or has `dimensions` elements that may be read until
    // the call ends. Any bytes are a `usize`.
    let extents = unsafe { array(given.extents, given.dimensions, "extents of the layout") }?;
    // SAFETY: by the contract of `OptionsPtr` and the header, `strides` is null or has `dimensions` elements that may be read until
    // the call ends. Any bytes are an `isize`.
    let strides = unsafe { optional_array(given.strides, given.dimensions, "strides of the layout") }?;
    let mut layout = match strides {
        Some(strides) => Layout::strided(element, extents, strides)?,
        None => Layout::c_order(element, extents)?,
    };
    if given.axis_count > 0 {
        // SAFETY: by the contract of `OptionsPtr` and the header, `axes` is null or has `axis_count` elements that may be read until
        // the call ends. Any bytes are a `usize`.
        layout = layout.with_axes(unsafe { array(given.axes, given.axis_count, "axes of the layout") }?)?;
    }
    if given.origin_count > 0 {
        // SAFETY: by the contract of `OptionsPtr` and the header, `origin` is null or has `origin_count` elements that may be read
        // until the call ends. Any bytes are a `usize`.
        layout =
            layout.with_origin(unsafe { array(given.origin, given.origin_count, "origin of the layout") }?);
    }
    if !given.name.is_null() {
        // SAFETY: by the contract of `OptionsPtr` and the header, `name` is null or a string with a closing zero that may be read
        // until the call ends.
        layout = layout.named(unsafe { text(given.name, "name of the layout") }?);
    }
    if options::flag(given.padded, "padded of the layout")? { Ok(layout.padded()) } else { Ok(layout) }
}

/// HALOCLINE_BOOL or another type.
fn element(code: i32) -> Result<ElementType, Refusal> {
    let known = u16::try_from(code).ok().and_then(ElementType::from_code);
    known.ok_or_else(|| {
        Refusal::argument(format!(
            "element of the layout is {code}; set it to an element type such as HALOCLINE_F64, or to \
             HALOCLINE_OPAQUE(bytes) of 1 to {} bytes",
            ElementType::MOST
        ))
    })
}
