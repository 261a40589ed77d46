//! Tables of patches, owners, traffic and of the plan of a rank.

use super::super::plan::Part;
use super::super::report::number;
use super::super::traffic::Traffic;
use super::Case;
use super::plan::Region;
use crate::info::plural;
use crate::options::Grid;
use crate::table::table;
use halocline::plan::PatternPlan;
use halocline::{PatchSide, Pivot, Seam, SeamKind};
use serde_json::{Value, json};
use std::io::{self, Write};

/// Most ranks that the table lists. Lines for programs have all.
const LISTED: usize = 64;

/// The side of a patch as on a map whose rows go from south to north.
pub(super) fn side(side: PatchSide) -> &'static str {
    match (side.axis, side.is_high) {
        (0, false) => "south",
        (0, true) => "north",
        (_, false) => "west",
        (_, true) => "east",
    }
}

/// How a seam joins its sides.
pub(super) fn kind(seam: &Seam) -> &'static str {
    match seam.kind() {
        SeamKind::Join { is_reversed: false } => "joined",
        SeamKind::Join { is_reversed: true } => "joined, reversed",
        SeamKind::Fold(Pivot::Cell) => "folded about cell centres",
        SeamKind::Fold(Pivot::Corner) => "folded about corners",
        SeamKind::Pole => "pole: half the columns further",
    }
}

/// The name of a seam in tables and pictures.
pub(super) fn letter(seam: usize) -> String {
    match u8::try_from(seam) {
        Ok(seam @ 0..26) => char::from(b'A' + seam).to_string(),
        _ => seam.to_string(),
    }
}

fn line(out: &mut dyn Write, row: Value) -> io::Result<()> {
    writeln!(out, "{row}")
}

fn rows<const N: usize>(out: &mut dyn Write, header: [&str; N], rows: Vec<[String; N]>) -> io::Result<()> {
    let all = [header.map(str::to_owned)].into_iter().chain(rows);
    writeln!(out, "{}", table(&all.map(Vec::from).collect::<Vec<_>>()))
}

/// The patches and the seams.
pub(super) fn grid(out: &mut dyn Write, case: &Case<'_>, json: bool) -> io::Result<()> {
    let (cut, grid) = (&case.decomposition, case.decomposition.grid());
    let (mut patches, mut first) = (Vec::new(), 0);
    for (patch, &extents) in grid.extents().iter().enumerate() {
        let blocks = cut.blocks(patch);
        let end = first + (blocks[0] * blocks[1]) as u64;
        let owners = (cut.owner(first), cut.owner(end - 1));
        if json {
            line(
                out,
                json!({
                    "explain": "patch", "patch": patch, "extents": extents, "blocks": blocks,
                    "first_domain": first, "domains": end - first, "first_rank": owners.0, "last_rank": owners.1,
                }),
            )?;
        }
        patches.push([
            patch.to_string(),
            Grid(extents.to_vec()).to_string(),
            Grid(blocks.to_vec()).to_string(),
            format!("{first}..{end}"),
            format!("{}..{}", owners.0, owners.1 + 1),
        ]);
        first = end;
    }
    let mut seams = Vec::new();
    for (number, seam) in grid.seams().iter().enumerate() {
        let [one, other] = seam.sides();
        if json {
            let of =
                |side: PatchSide| json!({"patch": side.patch, "axis": side.axis, "is_high": side.is_high});
            let sides = [one, other].map(of);
            line(
                out,
                json!({"explain": "seam", "seam": letter(number), "sides": sides, "kind": kind(seam)}),
            )?;
        }
        let with = if one == other { String::new() } else { format!("{} {}", other.patch, side(other)) };
        seams.push([letter(number), format!("{} {}", one.patch, side(one)), with, kind(seam).to_owned()]);
    }
    if json {
        return Ok(());
    }
    writeln!(out, "{}\n", case.title())?;
    rows(out, ["patch", "cells", "blocks", "domains", "ranks"], patches)?;
    rows(out, ["seam", "side", "with", "is"], seams)
}

/// The traffic of each rank.
pub(super) fn ranks(out: &mut dyn Write, case: &Case<'_>, traffic: &Traffic, json: bool) -> io::Result<()> {
    let received = traffic.received();
    let mut table = Vec::new();
    for (rank, links) in traffic.sends.iter().enumerate() {
        let domains = case.decomposition.domains_of(rank);
        let blocks = domains.clone().filter_map(|domain| case.decomposition.block(domain));
        let cells: usize = blocks.map(|block| block.extents.iter().product::<usize>()).sum();
        let sent: u128 = links.iter().map(|(_, bytes)| bytes).sum();
        if json {
            line(
                out,
                json!({
                    "explain": "rank", "rank": rank, "first_domain": domains.start,
                    "domains": domains.end - domains.start, "cells": cells, "peers": links.len(),
                    "sends_bytes": number(sent), "receives_bytes": number(received[rank]),
                    "within_bytes": number(traffic.within[rank]),
                }),
            )?;
        } else if rank < LISTED {
            table.push([
                rank.to_string(),
                format!("{}..{}", domains.start, domains.end),
                cells.to_string(),
                links.len().to_string(),
                sent.to_string(),
                received[rank].to_string(),
                traffic.within[rank].to_string(),
            ]);
        }
    }
    if json {
        return Ok(());
    }
    let header = ["rank", "domains", "cells", "peers", "bytes sent", "received", "within"];
    rows(out, header, table)?;
    match traffic.ranks().saturating_sub(LISTED) {
        0 => Ok(()),
        more => writeln!(out, "and {more} more ranks, which `--json` lists\n"),
    }
}

/// The regions of one rank.
pub(super) fn plan(
    out: &mut dyn Write,
    case: &Case<'_>,
    pattern: &PatternPlan,
    regions: &[Region],
    json: bool,
) -> io::Result<()> {
    let (rank, ranks, cut) = (case.args.rank, case.decomposition.ranks(), &case.decomposition);
    if json {
        let regions: Vec<Value> = regions.iter().map(region_json).collect();
        return line(
            out,
            json!({
                "explain": "plan", "case": case.title(), "rank": rank, "ranks": ranks,
                "peers": pattern.peers.len(), "regions": regions,
            }),
        );
    }
    writeln!(out, "rank {rank} of {ranks}: {}", plural(pattern.peers.len(), "peer"))?;
    for domain in cut.domains_of(rank) {
        let Some(block) = cut.block(domain) else { continue };
        let of_axis =
            |axis: usize| format!("{}..{}", block.first[axis], block.first[axis] + block.extents[axis]);
        writeln!(
            out,
            "  domain {domain}: patch {}, rows {}, columns {}",
            block.patch,
            of_axis(0),
            of_axis(1)
        )?;
    }
    writeln!(out)?;
    let header = [
        "link",
        "domain",
        "rows from its first",
        "columns",
        "patch there",
        "change",
        "cells",
        "bytes",
        "blocks",
    ];
    rows(out, header, regions.iter().map(|region| region_row(case, region)).collect())
}

fn region_row(case: &Case<'_>, region: &Region) -> [String; 9] {
    let domain = match case.quantity.components() {
        1 => region.domain.to_string(),
        _ => format!("{}, component {}", region.domain, region.component),
    };
    let Part { low, extent, .. } = &region.part;
    let span = |axis: usize| format!("{}..{}", low[axis], low[axis] + extent[axis] as i64);
    let there =
        case.decomposition.block(region.other).map_or_else(String::new, |block| block.patch.to_string());
    let [cells, bytes, blocks] = region.part.counts();
    [region.part.link(), domain, span(0), span(1), there, region.change(), cells, bytes, blocks]
}

fn region_json(region: &Region) -> Value {
    region.part.to_json(json!({
        "domain": region.domain,
        "other_domain": region.other,
        "component": region.component,
        "swapped": region.map.swapped,
        "flipped": region.map.flipped,
        "negated": region.is_negated,
    }))
}
