//! Not every byte pattern is a `Season`: only an `unsafe impl` can say otherwise.
#![forbid(unsafe_code)]

#[derive(Clone, Copy)]
#[repr(u8)]
enum Season {
    Summer,
    Winter,
}

impl halocline::Element for Season {
    const TYPE: halocline::ElementType = halocline::ElementType::U8;
}

fn main() {}
