//! Access of `fuzz/` to the messages of collective calls. Only in fuzzing builds.

use super::Call;
use crate::collective::{DOWN, UP};
use crate::communicator::Communicator;
use crate::endpoint::Endpoint;

/// Sends bytes as the message of this rank's next collective call: to rank 0 a contribution, from
/// rank 0 the result.
pub fn send_raw(from: &Communicator, to: usize, method: &str, bytes: &[u8]) {
    let round = if to == 0 { UP } else { DOWN };
    let tag = Call::begin(from, method).tag(round);
    from.send(to, tag, bytes.to_vec()).expect("the rank exists");
}
