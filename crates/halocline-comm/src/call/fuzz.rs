//! What `fuzz/` reaches of the messages of collective calls. Part of no ordinary build.

use super::Call;
use crate::collective::{DOWN, UP};
use crate::communicator::Communicator;
use crate::endpoint::Endpoint;

/// Sends bytes in the place of what the next collective call of this rank sends to another one: to rank 0 a contribution, from
/// rank 0 the result.
pub fn say(from: &Communicator, to: usize, method: &str, bytes: &[u8]) {
    let round = if to == 0 { UP } else { DOWN };
    let tag = Call::begin(from, method).tag(round);
    from.send(to, tag, bytes.to_vec()).expect("it is there");
}
