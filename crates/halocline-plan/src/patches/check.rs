//! What a grid of patches cannot have: quantities that its seams do not continue, halos that are too wide, corners of three
//! patches that are none.

use super::resolve::Resolver;
use super::seam::Crossing;
use super::{Along, Corners, PatchError, PatchGrid, PatchSide, Quantity};
use crate::region::Span;

/// Whether a halo as wide as the patch behind a side needs values on the far side of that patch, which has none there: high faces leave
/// out the low side, low faces the high side. `enters_high` says by which of its sides the halo enters the patch.
fn is_one_short(place: Along, side: PatchSide, source: Along, enters_high: bool) -> bool {
    let begins_on_line = place == if side.is_high { Along::LowFaces } else { Along::HighFaces };
    let ends_before_far_side = source == if enters_high { Along::HighFaces } else { Along::LowFaces };
    ends_before_far_side && !begins_on_line
}

impl PatchGrid {
    /// Checks that values of each component continue as values across each seam.
    pub(super) fn check_quantity(&self, quantity: &Quantity) -> Result<(), PatchError> {
        for side in self.joined_sides() {
            let Some(Crossing { view, .. }) = self.crossing(side) else { continue };
            for (component, place) in quantity.places.iter().enumerate() {
                let source = quantity.places[quantity.source_component(component, view.map.swapped)];
                let meets = |axis: usize| {
                    let there =
                        view.at(axis, place[axis].first()) - source[view.map.source_axis(axis)].first();
                    there.rem_euclid(2) == 0
                };
                if !meets(0) || !meets(1) {
                    return Err(PatchError::Places { side, place: *place });
                }
                // Values on the line must be those of one of its sides.
                let behind = view.map.source_axis(side.axis);
                let is_high = side.is_high == view.map.flipped[side.axis];
                let other = PatchSide { patch: view.patch, axis: behind, is_high };
                if !self.holds(place[side.axis], side) && !self.holds(source[behind], other) {
                    return Err(PatchError::NotHeld { side, place: *place });
                }
            }
        }
        Ok(())
    }

    /// Whether values at this place along the axis that leaves a patch include those on the line of its side, if any lie there.
    fn holds(&self, place: Along, side: PatchSide) -> bool {
        let last = 2 * place.count(self.patches[side.patch][side.axis]) as i64 - 2 + place.first();
        match self.crossing(side) {
            Some(Crossing { line, .. }) if (line - place.first()).rem_euclid(2) == 0 => {
                if side.is_high {
                    last >= line
                } else {
                    place.first() <= line
                }
            }
            _ => true,
        }
    }

    /// Checks that no halo reaches through the patch behind a seam.
    pub(super) fn check_widths(
        &self,
        quantity: &Quantity,
        widths: &[(usize, usize); 2],
    ) -> Result<(), PatchError> {
        for side in self.joined_sides() {
            let Some(crossing) = self.crossing(side) else { continue };
            let behind = crossing.view.map.source_axis(side.axis);
            let cells = self.patches[crossing.view.patch][behind];
            // A fold on cells takes one of them away.
            let is_short = (0..quantity.components()).any(|component| {
                let source = quantity.source_component(component, crossing.view.map.swapped);
                let enters_high = side.is_high == crossing.view.map.flipped[side.axis];
                is_one_short(
                    quantity.places[component][side.axis],
                    side,
                    quantity.places[source][behind],
                    enters_high,
                )
            });
            let most = cells.saturating_sub(crossing.line.rem_euclid(2) as usize + usize::from(is_short));
            let (low, high) = widths[side.axis];
            let width = if side.is_high { high } else { low };
            if width > most {
                return Err(PatchError::HaloTooWide { side, width, most });
            }
        }
        Ok(())
    }

    /// Whether a corner of a patch has no diagonal neighbour, because three patches meet there, and this choice fills it.
    pub(super) fn has_corner_filled_by(&self, corners: Corners) -> bool {
        let quantity = Quantity::cells();
        (0..self.patches.len()).any(|patch| {
            let resolver =
                |corners| Resolver { grid: self, quantity: &quantity, patch, component: 0, corners };
            [[false, false], [false, true], [true, false], [true, true]].into_iter().any(|ends| {
                let joined =
                    |axis: usize| self.crossing(PatchSide { patch, axis, is_high: ends[axis] }).is_some();
                let beyond = |axis: usize| match ends[axis] {
                    true => {
                        let cells = self.patches[patch][axis] as i64;
                        Span::new(cells, cells + 1)
                    }
                    false => Span::new(-1, 0),
                };
                let cell = [beyond(0), beyond(1)];
                let is_filled =
                    |corners| resolver(corners).sources(cell).is_ok_and(|sources| !sources.is_empty());
                joined(0) && joined(1) && !is_filled(Corners::Open) && is_filled(corners)
            })
        })
    }
}
