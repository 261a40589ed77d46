use halocline::Element;

#[derive(Clone, Copy, Element)]
#[repr(C)]
union Bits {
    number: f64,
    word: u64,
}

fn main() {}
