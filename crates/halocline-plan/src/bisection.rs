//! Partitions by coordinates.

use crate::{Partition, PartitionError};
use std::cmp::Ordering;

impl Partition {
    /// Recursive coordinate bisection. Cell `i` lies at point `i` of `points`. The cells are halved
    /// across the axis along which they are spread the most, then each half likewise, until there
    /// are `ranks` parts; `ranks` need not be a power of two. Part sizes differ by at most one
    /// cell; if there are fewer cells than ranks, the last ranks get none. With weights, one for
    /// each cell, each cut is where the weights on both sides come closest to their shares, and
    /// leaves at least one cell for every part.
    ///
    /// Deterministic: among cells at one coordinate the lower number comes first. Every rank passes
    /// all points and computes the same result without communication. Takes time n log n for each
    /// halving.
    ///
    /// Source: M. J. Berger and S. H. Bokhari, "A partitioning strategy for nonuniform problems on
    /// multiprocessors", IEEE Trans. Comput. C-36 (1987).
    ///
    /// Errors: 0 ranks, a coordinate that is not finite, a number of weights other than the number
    /// of cells, or a weight that is negative or not finite.
    pub fn bisection<const D: usize>(
        points: &[[f64; D]],
        weights: Option<&[f64]>,
        ranks: usize,
    ) -> Result<Self, PartitionError> {
        if ranks == 0 {
            return Err(PartitionError::NoRanks);
        }
        if let Some(cell) = points.iter().position(|point| !point.iter().all(|x| x.is_finite())) {
            return Err(PartitionError::Coordinate { cell });
        }
        if let Some(weights) = weights {
            if weights.len() != points.len() {
                let (weights, cells) = (weights.len(), points.len());
                return Err(PartitionError::WeightCount { weights, cells });
            }
            if let Some(cell) = weights.iter().position(|weight| !(0.0..f64::INFINITY).contains(weight)) {
                return Err(PartitionError::Weight { cell, weight: weights[cell].to_string() });
            }
        }
        let mut bisection = Bisection { points, weights, owners: vec![0; points.len()] };
        let mut cells: Vec<usize> = (0..points.len()).collect();
        bisection.part(&mut cells, 0, ranks);
        Self::given(bisection.owners, ranks)
    }
}

struct Bisection<'a, const D: usize> {
    points: &'a [[f64; D]],
    weights: Option<&'a [f64]>,
    owners: Vec<usize>,
}

impl<const D: usize> Bisection<'_, D> {
    /// Assigns `cells` to the ranks `first..first + ranks`.
    fn part(&mut self, cells: &mut [usize], first: usize, ranks: usize) {
        if ranks == 1 || cells.is_empty() {
            cells.iter().for_each(|&cell| self.owners[cell] = first);
            return;
        }
        let points = self.points;
        let low = ranks / 2;
        if let Some(axis) = self.widest(cells) {
            cells.sort_unstable_by(|&a, &b| {
                // Finite numbers are totally ordered.
                let along = points[a][axis].partial_cmp(&points[b][axis]).unwrap_or(Ordering::Equal);
                along.then(a.cmp(&b))
            });
        }
        let (below, above) = cells.split_at_mut(self.cut(cells, low, ranks));
        self.part(below, first, low);
        self.part(above, first + low, ranks - low);
    }

    /// The axis along which the cells are spread the most, the first one of equals; `None` without
    /// axes.
    fn widest(&self, cells: &[usize]) -> Option<usize> {
        let spread = |axis: usize| {
            let along = cells.iter().map(|&cell| self.points[cell][axis]);
            let (low, high) =
                along.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), x| (low.min(x), high.max(x)));
            // Halves, so that the difference of large numbers is finite.
            high / 2.0 - low / 2.0
        };
        (0..D).rev().max_by(|&a, &b| spread(a).total_cmp(&spread(b)))
    }

    /// How many of the sorted cells go to the first `low` of `ranks` ranks.
    fn cut(&self, cells: &[usize], low: usize, ranks: usize) -> usize {
        // As for blocks: the first ranks get one additional cell if the division leaves a
        // remainder.
        let (size, longer) = (cells.len() / ranks, cells.len() % ranks);
        let even = low * size + longer.min(low);
        let Some(weights) = self.weights else { return even };
        // Scaled, so that no sum of large numbers overflows.
        let largest = cells.iter().map(|&cell| weights[cell]).fold(0.0, f64::max);
        if size == 0 || largest == 0.0 {
            return even;
        }
        let weight = |cell: &usize| weights[*cell] / largest;
        let total: f64 = cells.iter().map(weight).sum();
        let target = total * (low as f64 / ranks as f64);
        let (least, most) = (low, cells.len() - (ranks - low));
        let mut below: f64 = cells[..least].iter().map(weight).sum();
        let mut count = least;
        for cell in &cells[least..most] {
            let with = below + weight(cell);
            if (with - target).abs() > (below - target).abs() {
                break;
            }
            (below, count) = (with, count + 1);
        }
        count
    }
}
