//! All owned cells of the fields in flight, whether an exchange sends them or not.

use super::cells::{SUM_OF_NOTHING, add_byte};
use crate::bind::Bindable;
use crate::set::InFlight;
use std::ops::Range;

/// For each field in flight, a checksum of each row of its owned elements; none for a field whose bytes lie among those of another
/// one, which may fill some of them.
pub(super) fn row_sums(in_flight: &InFlight) -> Vec<Vec<u64>> {
    let spans = spans(in_flight);
    let overlaps = |field: usize| {
        let (own, mut others) = (&spans[field], spans.iter().enumerate());
        others.any(|(other, span)| other != field && span.start < own.end && own.start < span.end)
    };
    let fields =
        (0..spans.len()).map(|field| if overlaps(field) { Vec::new() } else { sums(in_flight, field) });
    fields.collect()
}

/// The first field with an owned element that has changed since `before`, and the positions of the elements in its row.
pub(super) fn first_changed(in_flight: &InFlight, before: &[Vec<u64>]) -> Option<(usize, Range<usize>)> {
    before.iter().enumerate().filter(|(_, sums)| !sums.is_empty()).find_map(|(field, before)| {
        let row = sums(in_flight, field).iter().zip(before).position(|(now, before)| now != before)?;
        Some((field, in_flight.set().owned(field)?.rows().nth(row)?))
    })
}

/// The addresses of each field.
fn spans(in_flight: &InFlight) -> Vec<Range<isize>> {
    let fields = in_flight.set().local.fields.iter().zip(in_flight.bases());
    let span = |(field, base): (&Bindable, &*mut u8)| {
        let (base, span) = (base.addr() as isize, field.layout.span());
        base + span.start..base + span.end
    };
    fields.map(span).collect()
}

fn sums(in_flight: &InFlight, field: usize) -> Vec<u64> {
    let (set, base) = (in_flight.set(), in_flight.bases()[field]);
    let layout = &set.local.fields[field].layout;
    let (size, lowest) = (layout.element().size(), base.wrapping_offset(layout.span().start));
    let sum = |row: Range<usize>| {
        let first = lowest.wrapping_add(row.start * size);
        // SAFETY: bind has checked the layout against the memory, which the exchange in flight holds, and positions of owned
        // elements lie within the layout. The user writes no owned cells before the wait has returned, and the exchange fills
        // other cells.
        let bytes = unsafe { std::slice::from_raw_parts(first, row.len() * size) };
        bytes.iter().fold(SUM_OF_NOTHING, |sum, &byte| add_byte(sum, byte))
    };
    set.owned(field).into_iter().flat_map(|owned| owned.rows()).map(sum).collect()
}
