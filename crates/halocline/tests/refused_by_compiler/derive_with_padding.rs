use halocline::Element;

#[derive(Clone, Copy, Element)]
#[repr(C)]
struct Cell {
    level: u8,
    temperature: f64,
}

fn main() {}
