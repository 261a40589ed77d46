use halocline::Element;

#[derive(Clone, Copy, Element)]
#[repr(C)]
struct Cell {
    tracers: [u8; 257],
}

fn main() {}
