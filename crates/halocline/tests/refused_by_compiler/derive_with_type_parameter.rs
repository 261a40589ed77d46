use halocline::Element;

#[derive(Clone, Copy, Element)]
#[repr(C)]
struct Cell<T> {
    value: T,
}

fn main() {}
