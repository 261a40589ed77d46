//! Which values of a rectangle two views of a patch show alike.

use super::resolve::{Limit, Rectangle};
use super::seam::View;
use crate::region::Span;
use crate::regular::MAX_PIECES;

/// The parts of a rectangle in which two views show the same values. `first` is the coordinate of value 0 along each
/// axis of the target.
pub(super) fn common(
    target: &Rectangle,
    first: [i64; 2],
    views: [&View; 2],
) -> Result<Vec<Rectangle>, Limit> {
    let [one, other] = views;
    if one.patch != other.patch {
        return Ok(Vec::new());
    }
    match one.map.swapped == other.map.swapped {
        true => Ok(in_rectangle(target, first, views).into_iter().collect()),
        false => on_diagonal(target, first, views),
    }
}

/// Of views that both turn the axes, or both do not.
fn in_rectangle(target: &Rectangle, first: [i64; 2], [one, other]: [&View; 2]) -> Option<Rectangle> {
    let mut common = *target;
    for axis in 0..2 {
        if one.map.flipped[axis] == other.map.flipped[axis] {
            if one.offset[axis] != other.offset[axis] {
                return None;
            }
            continue;
        }
        // In opposite directions they meet at one coordinate.
        let (upwards, downwards) = if one.map.flipped[axis] { (other, one) } else { (one, other) };
        let value = value_at_half(downwards.offset[axis] - upwards.offset[axis], first[axis])?;
        common[axis] = common[axis].intersection(Span::new(value, value + 1));
    }
    common.iter().all(|span| !span.is_empty()).then_some(common)
}

/// Of a view that turns the axes and one that does not.
fn on_diagonal(
    target: &Rectangle,
    first: [i64; 2],
    [one, other]: [&View; 2],
) -> Result<Vec<Rectangle>, Limit> {
    let sign = |view: &View, axis: usize| if view.map.flipped[axis] { -1 } else { 1 };
    // Along each axis of the source, the views are equal on a line: coordinate 1 is `start + slope * coordinate 0`.
    let slopes = [sign(one, 0) * sign(other, 1), sign(one, 1) * sign(other, 0)];
    let starts = [
        sign(other, 1) * (one.offset[0] - other.offset[1]),
        sign(one, 1) * (other.offset[0] - one.offset[1]),
    ];
    // The same line for values: value 1 is `start + slope * value 0`.
    let twice = starts[0] + slopes[0] * first[0] - first[1];
    let (start, slope) = (twice.div_euclid(2), slopes[0]);
    let mut rows = target[0];
    if slopes[0] != slopes[1] {
        let Some(row) = value_at_half(slope * (starts[1] - starts[0]), first[0]) else {
            return Ok(Vec::new());
        };
        rows = rows.intersection(Span::new(row, row + 1));
    } else if starts[0] != starts[1] {
        return Ok(Vec::new());
    }
    if twice.rem_euclid(2) != 0 {
        return Ok(Vec::new());
    }
    let Span { start: low, end: high } = target[1];
    rows = rows.intersection(match slope {
        1 => Span::new(low - start, high - start),
        _ => Span::new(start - high + 1, start - low + 1),
    });
    if rows.end - rows.start > MAX_PIECES as i64 {
        return Err(Limit::Pieces);
    }
    let place = |row: i64| [row, start + slope * row].map(|value| Span::new(value, value + 1));
    Ok((rows.start..rows.end).map(place).collect())
}

/// The value whose coordinate is half of `twice`, if there is one there.
fn value_at_half(twice: i64, first: i64) -> Option<i64> {
    let quadruple = twice - 2 * first;
    (quadruple.rem_euclid(4) == 0).then_some(quadruple / 4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AxisMap;
    use proptest::prelude::*;

    fn view() -> impl Strategy<Value = View> {
        (any::<bool>(), prop::array::uniform2(any::<bool>()), prop::array::uniform2(-12i64..12)).prop_map(
            |(swapped, flipped, offset)| View {
                patch: 0,
                map: AxisMap { swapped, flipped },
                offset,
                is_negated: [false; 2],
            },
        )
    }

    /// The place that a view shows for a value, along the axes of its patch.
    fn shown(view: &View, first: [i64; 2], value: [i64; 2]) -> [i64; 2] {
        let mut place = [0; 2];
        for axis in 0..2 {
            place[view.map.source_axis(axis)] = view.at(axis, 2 * value[axis] + first[axis]);
        }
        place
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            failure_persistence: None,
            cases: 4 * ProptestConfig::default().cases,
            ..ProptestConfig::default()
        })]

        #[test]
        fn common_values_are_those_that_both_views_show_at_one_place(
            views in prop::array::uniform2(view()),
            first in prop::array::uniform2(0i64..3),
            corner in prop::array::uniform2(-6i64..6),
            extents in prop::array::uniform2(1i64..6),
        ) {
            let target = [0, 1].map(|axis| Span::new(corner[axis], corner[axis] + extents[axis]));
            let found = common(&target, first, [&views[0], &views[1]]).expect("few parts");
            for row in target[0].start..target[0].end {
                for column in target[1].start..target[1].end {
                    let is_in = |part: &&Rectangle| {
                        part[0].start <= row && row < part[0].end && part[1].start <= column && column < part[1].end
                    };
                    let value = [row, column];
                    let is_same = shown(&views[0], first, value) == shown(&views[1], first, value);
                    prop_assert_eq!(found.iter().filter(is_in).count(), usize::from(is_same), "{:?}", value);
                }
            }
            let cells = |part: &Rectangle| part.iter().map(|span| span.end - span.start).product::<i64>();
            prop_assert!(found.iter().all(|part| cells(part) > 0));
        }
    }

    #[test]
    fn a_long_diagonal_is_refused() {
        let target = [Span::new(0, 1 << 40); 2];
        let turned = View { map: AxisMap { swapped: true, flipped: [false; 2] }, ..View::of(0) };
        assert_eq!(common(&target, [1, 1], [&View::of(0), &turned]), Err(Limit::Pieces));
        assert_eq!(common(&target, [1, 1], [&View::of(0), &View::of(1)]), Ok(Vec::new()));
    }
}
