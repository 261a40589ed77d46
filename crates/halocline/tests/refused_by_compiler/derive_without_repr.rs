use halocline::Element;

#[derive(Clone, Copy, Element)]
struct Cell {
    temperature: f64,
    salinity: f64,
}

fn main() {}
