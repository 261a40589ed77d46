//! A peer, a message or a view of the memory could put a 2 into an array of `bool`.
#![forbid(unsafe_code)]

fn main() {
    let comm = halocline::Communicator::single();
    let _ = halocline::Array::<bool>::zeros(&comm, &[4]);
}
