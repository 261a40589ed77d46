use halocline::Element;

#[derive(Clone, Copy, Element)]
#[repr(C)]
struct Cell {
    is_wet: bool,
}

fn main() {}
