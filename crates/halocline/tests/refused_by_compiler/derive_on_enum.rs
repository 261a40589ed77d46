use halocline::Element;

#[derive(Clone, Copy, Element)]
#[repr(u8)]
enum State {
    Wet,
    Dry,
}

fn main() {}
