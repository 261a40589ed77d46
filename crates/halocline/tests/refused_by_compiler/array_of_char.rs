//! A peer, a message or a view of the memory could put 0xd800 into an array of `char` that is no character.
#![forbid(unsafe_code)]

fn main() {
    let comm = halocline::Communicator::single();
    let _ = halocline::Array::<char>::zeros(&comm, &[4]);
}
