//! A message under the tag of somebody else's operation could say anything about layouts and memory.
#![forbid(unsafe_code)]

fn main() {
    let comm = halocline::Communicator::single();
    let _ = comm.link();
}
