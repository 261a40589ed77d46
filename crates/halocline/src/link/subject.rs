//! What the two sides of a link must agree on in each epoch.

use crate::error::Fault;
use halocline_plan::ReduceOp;

/// The set of fields of an epoch, and its operation: an exchange, or a reduce. It travels with flags and messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Subject(u64);

/// Bits of the set.
const SET: u32 = 32;

/// Of the receiver in a reduce: its halo cells stay as they are. The two sides need not agree on it.
const KEEPS: u64 = 1 << 62;
/// Of the sender in a reduce: it has combined the receiver's halo.
const COMBINED: u64 = 1 << 63;

impl Subject {
    /// Of an exchange, or of a reduce by `op`.
    pub(crate) fn new(set: usize, op: Option<ReduceOp>) -> Self {
        Self((set as u64 & ((1 << SET) - 1)) | op.map_or(0, ReduceOp::code) << SET)
    }

    /// The same, of a receiver whose halo cells stay as they are.
    pub(super) fn keeping(self, keeps_halo: bool) -> Self {
        if keeps_halo { Self(self.0 | KEEPS) } else { self }
    }

    /// The same, of a sender that has combined the receiver's halo.
    pub(super) fn combined(self) -> Self {
        Self(self.0 | COMBINED)
    }

    pub(super) fn keeps_halo(self) -> bool {
        self.0 & KEEPS != 0
    }

    pub(super) fn is_combined(self) -> bool {
        self.0 & COMBINED != 0
    }

    /// What the two sides must agree on.
    pub(super) fn agreed(self) -> Self {
        Self(self.0 & !(KEEPS | COMBINED))
    }

    pub(super) fn word(self) -> u64 {
        self.0
    }

    pub(super) fn from_word(word: u64) -> Self {
        Self(word)
    }

    pub(super) fn to_bytes(self) -> [u8; 8] {
        self.0.to_le_bytes()
    }

    pub(super) fn from_bytes(bytes: [u8; 8]) -> Self {
        Self(u64::from_le_bytes(bytes))
    }

    fn set(self) -> u64 {
        self.0 & ((1 << SET) - 1)
    }

    fn operation(self) -> String {
        match self.0 >> SET {
            0 => "exchanges".to_owned(),
            code => match ReduceOp::from_code(code) {
                Some(op) => format!("reduces by {op}"),
                None => format!("begins an unknown operation ({code})"),
            },
        }
    }

    /// What is wrong, and a report, if the subject of a peer differs from this rank's.
    pub(super) fn clash(self, (rank, peer): (usize, usize), theirs: Self) -> (Fault, String) {
        let theirs = theirs.agreed();
        if self.0 >> SET == theirs.0 >> SET {
            let (ours, theirs) = (self.set(), theirs.set());
            let report = format!(
                "rank {peer} exchanges set {theirs} of the fields, rank {rank} set {ours}; all ranks must choose the same"
            );
            return (Fault::OtherSet, report);
        }
        let (ours, theirs) = (self.operation(), theirs.operation());
        let report = format!(
            "rank {peer} {theirs}, rank {rank} {ours}; all ranks must begin the same operations in one order"
        );
        (Fault::OtherOperation, report)
    }
}
