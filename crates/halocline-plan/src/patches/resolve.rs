//! Finds the owner of each value of a region, across seams.
//!
//! A region is a rectangle of values of one component, in the numbering of the target patch. It is split until
//! each part has one owner, seen through one view.

use super::agreement::common;
use super::seam::{Crossing, View};
use super::{Along, Corners, PatchGrid, PatchSide, Quantity};
use crate::region::Span;

/// Values of one component of a patch, from the first along each axis.
pub(super) type Rectangle = [Span; 2];

/// Values and what they are copied from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Source {
    /// The values, in the target patch.
    pub target: Rectangle,
    /// The source patch as seen from the target.
    pub view: View,
    /// The component of the source.
    pub component: usize,
}

/// Where a coordinate lies along one axis of a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Zone {
    /// Behind a joined side.
    Behind { is_high: bool },
    /// On the line that two sides share.
    On { is_high: bool },
    /// Within the patch.
    Within,
    /// Where the patch has no values and nothing is joined.
    Nowhere,
}

/// Most seams from outside a patch to the values there. Around a corner, and on across a fold or a pole, there are fewer than
/// half as many. More are crossed only where patches behind a corner are narrower than the halo.
pub(super) const MOST_SEAMS: usize = 16;
/// Most places of one value, each with both signs: a line belongs to two patches, a corner to all that meet there.
pub(super) const MOST_PLACES: usize = 96;

/// Why the sources of a halo are not looked for. The limits bound time, memory and depth of the recursion for any patches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Limit {
    /// More than [`MOST_SEAMS`], one behind the other.
    Seams,
    /// More than [`MOST_PLACES`] of one value.
    Places,
    /// More parts than [`MAX_PIECES`](crate::regular::MAX_PIECES).
    Pieces,
}

/// Finds sources for values of one component of one patch.
#[derive(Clone, Copy)]
pub(super) struct Resolver<'a> {
    pub grid: &'a PatchGrid,
    pub quantity: &'a Quantity,
    pub patch: usize,
    pub component: usize,
    /// What fills halo cells behind corners where three patches meet.
    pub corners: Corners,
}

/// Views of the values of a rectangle.
struct Way {
    /// The last one is followed. The others show the same values, and each has one zone in the rectangle.
    views: Vec<View>,
    /// The number of seams that were crossed.
    seams: usize,
}

impl Way {
    fn last(&self) -> View {
        self.views[self.views.len() - 1]
    }

    /// Whether no values were found yet.
    fn is_first(&self) -> bool {
        self.views.len() == 1
    }

    /// Follows the last view across a seam.
    fn across(&self, crossing: &Crossing) -> Result<Self, Limit> {
        let most = if self.is_first() { MOST_SEAMS } else { MOST_PLACES };
        if self.seams == most {
            return Err(Limit::Seams);
        }
        let mut views = self.views.clone();
        views.pop();
        views.push(self.last().then(&crossing.view));
        Ok(Self { views, seams: self.seams + 1 })
    }

    /// Follows one more view of the same values.
    fn with(&self, view: View) -> Result<Self, Limit> {
        if self.views.len() == MOST_PLACES {
            return Err(Limit::Places);
        }
        Ok(Self { views: [&self.views[..], &[view]].concat(), seams: self.seams })
    }
}

/// Beyond all coordinates.
const END: i64 = i64::MAX / 4;

impl Resolver<'_> {
    /// The sources of all values of a rectangle that have an owner. Values that own themselves have the identity
    /// as view.
    pub fn sources(&self, target: Rectangle) -> Result<Vec<Source>, Limit> {
        let mut found = Vec::new();
        let way = Way { views: vec![View::of(self.patch)], seams: 0 };
        self.resolve(target, &way, &mut found)?;
        Ok(found)
    }

    /// The component of a source and where its values lie.
    fn component_of(&self, view: &View) -> (usize, [Along; 2]) {
        let component = self.quantity.source_component(self.component, view.map.swapped);
        (component, self.quantity.places[component])
    }

    /// The source's values that correspond to a rectangle of the target, along the source's axes.
    pub fn image(&self, target: &Rectangle, view: &View) -> Rectangle {
        let (_, places) = self.component_of(view);
        let own = self.quantity.places[self.component];
        let mut image = *target;
        for axis in 0..2 {
            let along = view.map.source_axis(axis);
            let index =
                |value: i64| (view.at(axis, 2 * value + own[axis].first()) - places[along].first()) / 2;
            let (first, last) = (index(target[axis].start), index(target[axis].end - 1));
            image[along] = Span::new(first.min(last), first.max(last) + 1);
        }
        image
    }

    /// Splits a rectangle where the source's axes change their zone in the view that is followed.
    fn resolve(&self, target: Rectangle, way: &Way, found: &mut Vec<Source>) -> Result<(), Limit> {
        let view = way.last();
        for (one, first) in self.zones(&view, 0, target[0]) {
            for (other, second) in self.zones(&view, 1, target[1]) {
                let mut zones = [Zone::Nowhere; 2];
                zones[view.map.source_axis(0)] = first;
                zones[view.map.source_axis(1)] = second;
                self.follow([one, other], zones, way, found)?;
            }
        }
        Ok(())
    }

    /// Continues with a rectangle whose source lies in one zone along each of the source's axes.
    fn follow(
        &self,
        target: Rectangle,
        zones: [Zone; 2],
        way: &Way,
        found: &mut Vec<Source>,
    ) -> Result<(), Limit> {
        let view = way.last();
        let behind = |axis: usize| match zones[axis] {
            Zone::Behind { is_high } => self.crossing(&view, axis, is_high),
            _ => None,
        };
        if zones.contains(&Zone::Nowhere) && way.is_first() {
            return Ok(());
        }
        match [behind(0), behind(1)] {
            // A view that reaches no values may show the way to further patches.
            [None, None] => self.settle(target, zones, way, found),
            [Some(one), None] | [None, Some(one)] => self.resolve(target, &way.across(&one)?, found),
            // The values are known already, and this view of them leads around a corner.
            [Some(_), Some(_)] if !way.is_first() => self.settle(target, zones, way, found),
            [Some(one), Some(other)] => {
                // The axis of the target that the source's axis 0 is.
                let axis = view.map.source_axis(0);
                let sides = if axis == 0 { [one, other] } else { [other, one] };
                found.extend(self.around_corner(target, way, &sides)?);
                Ok(())
            }
        }
    }

    /// The sources of a rectangle behind two sides: those behind axis 0 and behind axis 1 of the target.
    fn around_corner(
        &self,
        target: Rectangle,
        way: &Way,
        sides: &[Crossing; 2],
    ) -> Result<Vec<Source>, Limit> {
        let through = |axis: usize, target: Rectangle| -> Result<Vec<Source>, Limit> {
            let mut found = Vec::new();
            self.resolve(target, &way.across(&sides[axis])?, &mut found)?;
            Ok(found)
        };
        match self.corners {
            Corners::Open => self.agreed(through(0, target)?, |part| through(1, part)),
            Corners::ThroughAxis(axis) => through(axis.min(1), target),
        }
    }

    /// The parts of `one` way around a corner for which the other way leads to the same values.
    fn agreed(
        &self,
        one: Vec<Source>,
        other: impl Fn(Rectangle) -> Result<Vec<Source>, Limit>,
    ) -> Result<Vec<Source>, Limit> {
        let first = self.quantity.places[self.component].map(Along::first);
        let mut agreed = Vec::new();
        for source in one {
            for part in other(source.target)? {
                let is_alike = source.component == part.component
                    && self.is_negated(&source.view) == self.is_negated(&part.view);
                if is_alike {
                    let common = common(&part.target, first, [&source.view, &part.view])?;
                    agreed.extend(common.into_iter().map(|target| Source { target, ..part }));
                }
            }
        }
        Ok(agreed)
    }

    /// The last view reaches values of a patch. If they lie on a line that several patches share, looks for them in
    /// the other patches, too; then chooses the owner.
    fn settle(
        &self,
        target: Rectangle,
        zones: [Zone; 2],
        way: &Way,
        found: &mut Vec<Source>,
    ) -> Result<(), Limit> {
        let views = &way.views;
        let mut next = None;
        // All views of these values that are known, each with its zones: those of the last one are given.
        for (at, view) in views.iter().enumerate() {
            let zones = match at + 1 == views.len() {
                true => zones,
                false => self.zones_of(view, &target),
            };
            for (axis, zone) in zones.into_iter().enumerate() {
                if let Zone::On { is_high } = zone
                    && let Some(crossing) = self.crossing(view, axis, is_high)
                {
                    let there = self.normal(view.then(&crossing.view), &target);
                    next = next.or_else(|| there.filter(|there| !self.is_known(there, &target, views)));
                }
            }
        }
        match next {
            // Ends: each place is known once with each sign, and their number is limited.
            Some(view) => self.resolve(target, &way.with(view)?, found),
            None => {
                self.choose(target, views, found);
                Ok(())
            }
        }
    }

    /// Whether one of the views shows the same values of the same patch, with the same sign.
    fn is_known(&self, view: &View, target: &Rectangle, views: &[View]) -> bool {
        let of = |view: &View| {
            let image = self.image(target, view);
            let along = |axis: usize| image[view.map.source_axis(axis)];
            let is_backwards =
                |axis: usize| along(axis).end - along(axis).start > 1 && view.map.flipped[axis];
            (
                view.patch,
                self.component_of(view).0,
                image,
                [is_backwards(0), is_backwards(1)],
                self.is_negated(view),
            )
        };
        views.iter().any(|known| of(known) == of(view))
    }

    /// Whether values change their sign.
    pub fn is_negated(&self, view: &View) -> bool {
        self.quantity.is_vector() && view.is_negated[self.component]
    }

    /// A view that reaches the same values without leaving its patch: where it leaves it through one joined
    /// side, the view through that one. `None` if they are behind a corner, or if parts of the rectangle differ.
    fn normal(&self, mut view: View, target: &Rectangle) -> Option<View> {
        for _ in 0..MOST_SEAMS {
            let has_one_zone = |axis: usize| self.zones(&view, axis, target[axis]).nth(1).is_none();
            if !(has_one_zone(0) && has_one_zone(1)) {
                // Split by the caller when it follows this view.
                return Some(view);
            }
            let zones = self.zones_of(&view, target);
            let behind = |axis: usize| match zones[axis] {
                Zone::Behind { is_high } => self.crossing(&view, axis, is_high),
                _ => None,
            };
            match [behind(0), behind(1)] {
                [None, None] => return Some(view),
                [Some(one), None] | [None, Some(one)] => view = view.then(&one.view),
                [Some(_), Some(_)] => return None,
            }
        }
        None
    }

    /// Splits a rectangle so that each part has one owner among the views: the patch with the lowest number, and in
    /// it the lowest values.
    fn choose(&self, target: Rectangle, views: &[View], found: &mut Vec<Source>) {
        for (at, one) in views.iter().enumerate() {
            for other in &views[at + 1..] {
                if let Some(parts) = self.split_where_equal(&target, one, other) {
                    parts.into_iter().for_each(|part| self.choose(part, views, found));
                    return;
                }
            }
        }
        let held = views.iter().filter(|view| self.is_held(&target, view));
        let place = |view: &&View| {
            let image = self.image(&target, view);
            (view.patch, self.component_of(view).0, image[0].start, image[1].start, self.is_negated(view))
        };
        // Of equal ones the first that keeps the sign: a value that is its own partner owns itself.
        if let Some(view) = held.min_by_key(place) {
            found.push(Source { target, view: *view, component: self.component_of(view).0 });
        }
    }

    /// Two views may show the same values of one patch in opposite directions. Splits the rectangle at the value
    /// that both show at the same place, so that one of the views is lower in each part.
    fn split_where_equal(&self, target: &Rectangle, one: &View, other: &View) -> Option<Vec<Rectangle>> {
        let alike = one.patch == other.patch && one.map.swapped == other.map.swapped;
        let differs = |axis: &usize| one.map.flipped[*axis] != other.map.flipped[*axis];
        let is_long = |axis: &usize| target[*axis].end - target[*axis].start > 1;
        let axis = (0..2).filter(is_long).find(|axis| alike && differs(axis))?;
        let span = target[axis];
        // The coordinate where both are equal, from value 0 of the target.
        let own = self.quantity.places[self.component][axis].first();
        let (low, high) = if one.map.flipped[axis] { (other, one) } else { (one, other) };
        let middle = (high.offset[axis] - low.offset[axis]) / 2 - own;
        let low = middle.div_euclid(2) + i64::from(middle.rem_euclid(2) != 0);
        let high = middle.div_euclid(2) + 1;
        let parts = [Span::new(span.start, low), Span::new(low, high), Span::new(high, span.end)];
        let parts: Vec<Span> =
            parts.into_iter().map(|part| part.intersection(span)).filter(|part| !part.is_empty()).collect();
        let with = |part: Span| {
            let mut rectangle = *target;
            rectangle[axis] = part;
            rectangle
        };
        (parts.len() > 1).then(|| parts.into_iter().map(with).collect())
    }

    /// Whether the source has all these values.
    fn is_held(&self, target: &Rectangle, view: &View) -> bool {
        let (_, places) = self.component_of(view);
        let image = self.image(target, view);
        let zones = self.zones_of(view, target);
        (0..2).all(|axis| {
            let count = places[axis].count(self.grid.patches[view.patch][axis]) as i64;
            let is_inside = matches!(zones[axis], Zone::Within | Zone::On { .. });
            is_inside && image[axis].start >= 0 && image[axis].end <= count
        })
    }

    /// The zones of a rectangle that has one along each axis: those of its first value.
    fn zones_of(&self, view: &View, target: &Rectangle) -> [Zone; 2] {
        let mut zones = [Zone::Nowhere; 2];
        for axis in 0..2 {
            let own = self.quantity.places[self.component][axis].first();
            let first = view.at(axis, 2 * target[axis].start + own);
            let zone = self.bounds(view, axis).into_iter().find(|(end, _)| first < *end);
            zones[view.map.source_axis(axis)] = zone.map_or(Zone::Nowhere, |(_, zone)| zone);
        }
        zones
    }

    fn crossing(&self, view: &View, axis: usize, is_high: bool) -> Option<Crossing> {
        self.grid.crossing(PatchSide { patch: view.patch, axis, is_high })
    }

    /// The zones along the source's axis that an axis of the target is, ascending, each with the first coordinate of the next one. Some
    /// may be empty.
    fn bounds(&self, view: &View, axis: usize) -> [(i64, Zone); 5] {
        let along = view.map.source_axis(axis);
        let (_, places) = self.component_of(view);
        let count = places[along].count(self.grid.patches[view.patch][along]) as i64;
        let [before, low] = match self.crossing(view, along, false) {
            Some(Crossing { line, .. }) => {
                [(line, Zone::Behind { is_high: false }), (line + 1, Zone::On { is_high: false })]
            }
            None => [(places[along].first(), Zone::Nowhere); 2],
        };
        let [within, high, behind] = match self.crossing(view, along, true) {
            Some(Crossing { line, .. }) => [
                (line, Zone::Within),
                (line + 1, Zone::On { is_high: true }),
                (END, Zone::Behind { is_high: true }),
            ],
            None => {
                let last = (2 * count - 1 + places[along].first(), Zone::Within);
                [last, last, (END, Zone::Nowhere)]
            }
        };
        [before, low, within, high, behind]
    }

    /// Splits values along an axis of the target by the zones of the source.
    fn zones(&self, view: &View, axis: usize, values: Span) -> impl Iterator<Item = (Span, Zone)> + use<> {
        let own = self.quantity.places[self.component][axis].first();
        let (offset, is_flipped) = (view.offset[axis], view.map.flipped[axis]);
        let mut begin = -END;
        self.bounds(view, axis).into_iter().filter_map(move |(end, zone)| {
            // The target's coordinates for those of the source from `begin` to below `end`.
            let (first, last) = match is_flipped {
                false => (begin - offset, end - 1 - offset),
                true => (offset - (end - 1), offset - begin),
            };
            begin = end;
            let span = Span::new((first - own + 1).div_euclid(2), (last - own).div_euclid(2) + 1);
            let span = span.intersection(values);
            (!span.is_empty()).then_some((span, zone))
        })
    }
}
