//! Tables for people and lines for programs.

use super::bound::traffic;
use super::plan::{Direction, Part, Region};
use super::traffic::Traffic;
use crate::error::CommandError;
use crate::info::plural;
use crate::options::{AXES, Grid};
use crate::table::table;
use halocline::DomainShape;
use halocline::plan::PatternPlan;
use serde_json::{Value, json};
use std::io::{self, Write};

/// The plan of one rank.
pub(super) struct Planned<'a> {
    pub(super) title: &'a str,
    pub(super) rank: usize,
    pub(super) ranks: usize,
    pub(super) pattern: &'a PatternPlan,
    pub(super) regions: &'a [Region],
}

/// Calls `write` with standard output.
pub(super) fn print(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), CommandError> {
    let mut stdout = io::BufWriter::new(io::stdout().lock());
    write(&mut stdout).and_then(|()| stdout.flush()).map_err(CommandError::Report)
}

impl Planned<'_> {
    fn sum(&self, wanted: fn(&Direction) -> bool) -> (usize, u128) {
        let regions = || self.regions.iter().filter(|region| wanted(&region.part.direction));
        (regions().count(), regions().map(|region| region.part.bytes).sum())
    }

    fn parts(&self) -> [(&'static str, (usize, u128)); 3] {
        [
            ("sends", self.sum(|direction| matches!(direction, Direction::To(_)))),
            ("receives", self.sum(|direction| matches!(direction, Direction::From(_)))),
            ("moves within itself", self.sum(|direction| matches!(direction, Direction::Within))),
        ]
    }
}

/// The table of one rank.
pub(super) fn plan(out: &mut dyn Write, planned: &Planned<'_>, json: bool) -> io::Result<()> {
    let (_, shape) = &planned.pattern.domains[0];
    let DomainShape::Regular { first, owned, .. } = shape else { return Ok(()) };
    if json {
        let [sends, receives, within] = planned.parts().map(|(_, (_, bytes))| number(bytes));
        let line = json!({
            "explain": "plan",
            "case": planned.title,
            "rank": planned.rank,
            "ranks": planned.ranks,
            "first": first,
            "owned": owned,
            "array": shape.extents(),
            "peers": planned.pattern.peers.len(),
            "regions": planned.regions.iter().map(region_json).collect::<Vec<_>>(),
            "sends_bytes": sends,
            "receives_bytes": receives,
            "within_bytes": within,
        });
        return writeln!(out, "{line}");
    }
    writeln!(out, "{}", planned.title)?;
    let ranges: Vec<String> = first
        .iter()
        .zip(owned)
        .zip(AXES)
        .map(|((&first, &owned), axis)| format!("{axis} {first}..{}", first + owned as i64))
        .collect();
    writeln!(
        out,
        "rank {} of {}: owns {}; array with halo {}; {} peers\n",
        planned.rank,
        planned.ranks,
        ranges.join(", "),
        Grid(shape.extents()),
        planned.pattern.peers.len(),
    )?;
    let header = ["link", "side", "cells from the first owned", "cells", "bytes", "blocks"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    rows.extend(planned.regions.iter().map(region_row));
    write!(out, "{}", table(&rows))?;
    writeln!(out)?;
    for (what, (regions, bytes)) in planned.parts().into_iter().filter(|(_, (regions, _))| *regions > 0) {
        writeln!(out, "{what} {bytes} bytes in {}", plural(regions, "region"))?;
    }
    Ok(())
}

fn region_json(Region { part, side }: &Region) -> Value {
    part.to_json(json!({"side": side}))
}

fn region_row(Region { part, side }: &Region) -> Vec<String> {
    let cells = part.low.iter().zip(&part.extent).zip(AXES);
    let cells = cells.map(|((&low, &extent), axis)| format!("{axis} {low}..{}", low + extent as i64));
    [part.link(), side.clone(), cells.collect::<Vec<_>>().join(", ")]
        .into_iter()
        .chain(part.counts())
        .collect()
}

impl Part {
    /// The link, for a table.
    pub(super) fn link(&self) -> String {
        match self.direction {
            Direction::To(rank) => format!("to rank {rank}"),
            Direction::From(rank) => format!("from rank {rank}"),
            Direction::Within => "within this rank".to_owned(),
        }
    }

    /// Cells, bytes and blocks, for a table.
    pub(super) fn counts(&self) -> [String; 3] {
        [self.cells.to_string(), self.bytes.to_string(), self.blocks.to_string()]
    }

    /// The object for programs. `own` are the members that only regions of this grid have.
    pub(super) fn to_json(&self, own: Value) -> Value {
        let (direction, rank) = match self.direction {
            Direction::To(rank) => ("to", Some(rank)),
            Direction::From(rank) => ("from", Some(rank)),
            Direction::Within => ("within", None),
        };
        let mut all = json!({"direction": direction, "rank": rank});
        let end = json!({
            "low": self.low,
            "extent": self.extent,
            "cells": self.cells,
            "bytes": number(self.bytes),
            "blocks": self.blocks,
        });
        if let Value::Object(all) = &mut all {
            all.extend(
                [own, end]
                    .iter()
                    .filter_map(Value::as_object)
                    .flatten()
                    .map(|(name, value)| (name.clone(), value.clone())),
            );
        }
        all
    }
}

/// Prints the tables of ranks that have bound, and the bytes between them.
pub(super) fn print_bound(said: &[Vec<Value>], json: bool) -> Result<(), CommandError> {
    print(|out| {
        bound(out, said, json)?;
        totals(out, &traffic(said), json)
    })
}

fn bound(out: &mut dyn Write, said: &[Vec<Value>], json: bool) -> io::Result<()> {
    for (rank, exchange) in said.iter().enumerate().flat_map(|(rank, one)| one.iter().map(move |x| (rank, x)))
    {
        if json {
            let mut line = exchange.clone();
            line["on_rank"] = rank.into();
            if let Some(line) = line.as_object_mut() {
                line.remove("table");
            }
            writeln!(out, "{line}")?;
        } else {
            let text = |key: &str| exchange[key].as_str().unwrap_or_default();
            writeln!(out, "{}\n{}", text("exchange"), text("table"))?;
        }
    }
    Ok(())
}

/// The bytes between all ranks.
pub(super) fn totals(out: &mut dyn Write, traffic: &Traffic, json: bool) -> io::Result<()> {
    let links = traffic.links().count();
    let most = traffic.of_ranks().into_iter().max().unwrap_or(0);
    let mean = 2.0 * traffic.total() as f64 / traffic.ranks() as f64;
    let peers = traffic.sends.iter().map(Vec::len).max().unwrap_or(0);
    if json {
        let line = json!({
            "explain": "all",
            "ranks": traffic.ranks(),
            "links": links,
            "bytes": number(traffic.total()),
            "within_bytes": number(traffic.within.iter().sum()),
            "most_peers": peers,
            "most_bytes": number(most),
            "mean_bytes": mean,
            "imbalance": traffic.imbalance(),
        });
        return writeln!(out, "{line}");
    }
    writeln!(
        out,
        "total of {}: {} bytes over {}, at most {} a rank; a rank sends and receives {mean:.0} bytes on average, {most} at most: max/mean {:.3}",
        plural(traffic.ranks(), "rank"),
        traffic.total(),
        plural(links, "link"),
        plural(peers, "peer"),
        traffic.imbalance()
    )
}

/// A JSON number. Above 64 bits it is the nearest floating-point number.
pub(super) fn number(value: u128) -> Value {
    u64::try_from(value).map_or_else(|_| Value::from(value as f64), Value::from)
}
