//! What a bound exchange does, in a table.

use crate::bound::Bound;
use crate::link::{Direction, Link, Way};
use std::fmt::Write;

/// One line for each link of this rank, and one for what stays within it.
pub(crate) fn explain(bound: &Bound) -> String {
    let comm = &bound.comm;
    let mut text = format!("rank {} of {}, transport {}\n", comm.rank(), comm.size(), comm.transport());
    let header = ["link", "way", "through", "bytes", "copies here", "why not better"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    rows.extend(bound.links.iter().map(|link| row(link, comm.transport())));
    if !bound.local.ops.is_empty() {
        let (bytes, blocks) = extent(&bound.local.ops);
        let local = ["within this rank", "direct, copy", "own memory", &bytes.to_string(), &blocks, "-"];
        rows.push(local.map(str::to_owned).to_vec());
    }
    let widths: Vec<usize> =
        (0..header.len()).map(|column| rows.iter().map(|row| row[column].len()).max().unwrap_or(0)).collect();
    for row in &rows {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:width$}")).collect();
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}", cells.join("  ").trim_end());
    }
    text
}

fn row(link: &Link, transport: &str) -> Vec<String> {
    let name = match link.direction {
        Direction::Send => format!("to rank {}", link.peer),
        Direction::Receive => format!("from rank {}", link.peer),
    };
    let through = match (link.way, transport) {
        (Way::Message, name) => format!("messages of {name}"),
        (Way::Mailbox { .. }, "thread") => "a buffer of the receiver".to_owned(),
        (Way::Mailbox { .. }, _) => "a buffer of the receiver in shared memory".to_owned(),
        (_, "thread") => "memory of this process".to_owned(),
        _ => "shared memory".to_owned(),
    };
    let (_, blocks) = extent(&link.work.ops);
    let copies = if link.work.ops.is_empty() { "none, the peer copies".to_owned() } else { blocks };
    let why = link.why.clone().unwrap_or_else(|| "-".to_owned());
    vec![name, link.way.to_string(), through, link.bytes.to_string(), copies, why]
}

fn extent(ops: &[halocline_plan::copy::CopyOp]) -> (usize, String) {
    let bytes = ops.iter().map(|op| op.bytes()).sum();
    let blocks: usize = ops.iter().map(|op| op.blocks()).sum();
    (bytes, format!("{} regions, {blocks} blocks", ops.len()))
}
