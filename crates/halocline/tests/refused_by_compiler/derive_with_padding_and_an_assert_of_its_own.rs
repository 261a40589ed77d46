use halocline::Element;

macro_rules! assert {
    ($($tokens:tt)*) => {};
}

#[derive(Clone, Copy, Element)]
#[repr(C)]
struct Cell {
    level: u8,
    temperature: f64,
}

fn main() {
    assert!(false);
}
