//! Parts of error messages.

use crate::link::Direction;

/// What to do with a field that names no domain, on a rank with these domains.
pub(crate) fn which_domain(domains: &[u64]) -> &'static str {
    match domains {
        [] => "give a field only where this rank has a domain",
        _ => "say which one a field belongs to with `Field::on_domain`",
    }
}

/// What to do about a component that the pattern does not have.
pub(super) fn components_of(components: &usize) -> &'static str {
    match components {
        0 => "only a pattern of vectors on patches has components (`Quantity::vector`)",
        _ => "give one of them, counted from 0",
    }
}

/// The direction of a message, as a verb.
pub(super) fn verb(direction: Direction) -> &'static str {
    match direction {
        Direction::Send => "sent to",
        Direction::Receive => "received from",
    }
}

/// The ranks of a direction.
pub(super) fn known(direction: Direction, peers: &[usize]) -> String {
    let to = match direction {
        Direction::Send => "to",
        Direction::Receive => "from",
    };
    match peers {
        [] => format!("nor {to} any other; leave this call out"),
        peers => format!("only {to} ranks {peers:?}; give one of these"),
    }
}
