use halocline::Element;

#[derive(Clone, Copy, Element)]
#[repr(C)]
struct Cell {
    name: &'static u64,
}

fn main() {}
