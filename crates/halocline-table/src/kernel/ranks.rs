//! Values by rank: a stretch of rows is sorted once. A window then is a set of ranks, and its quantile a position in that set.

use super::feed::Span;
use std::ops::Range;

/// The ranks of the values of consecutive rows among each other. Equal values have different ranks, -0.0 comes before 0.0, and NaN
/// comes last.
#[derive(Debug, Default)]
pub(crate) struct Ranks {
    rows: Range<usize>,
    /// The rank of the value of each row; [`NULL`] if it is null.
    of_rows: Vec<usize>,
    /// The values in order of their ranks.
    values: Vec<f64>,
    /// For each value the high bits of its order, then its row. Sorted to find the ranks.
    packed: Vec<u64>,
}

/// No rank.
const NULL: usize = usize::MAX;

/// Unsigned integers in the order of the values.
fn order(value: f64) -> u64 {
    let bits = value.to_bits();
    match value.is_nan() {
        true => u64::MAX,
        false if bits >> 63 == 1 => !bits,
        false => bits | 1 << 63,
    }
}

impl Ranks {
    /// Whether all these rows have been ranked.
    pub(crate) fn has(&self, rows: Range<usize>) -> bool {
        self.rows.start <= rows.start && rows.end <= self.rows.end
    }

    /// Ranks these rows, and no others.
    pub(crate) fn rank(&mut self, span: &Span<'_, f64>, rows: Range<usize>) {
        let row_bits = usize::BITS - rows.len().leading_zeros();
        let row_mask = (1u64 << row_bits) - 1;
        self.packed.clear();
        self.packed.extend(
            rows.clone()
                .enumerate()
                .filter_map(|(at, row)| span.get(row).map(|value| order(value) & !row_mask | at as u64)),
        );
        let value = |packed: u64| span.values[rows.start - span.first + (packed & row_mask) as usize];
        // Sorts integers, and only those whose high bits agree by their whole values: much faster than to sort rows by values.
        self.packed.sort_unstable();
        let is_tied = |a: &u64, b: &u64| a & !row_mask == b & !row_mask;
        for tied in self.packed.chunk_by_mut(is_tied).filter(|tied| tied.len() > 1) {
            tied.sort_unstable_by_key(|&packed| order(value(packed)));
        }
        self.of_rows.clear();
        self.of_rows.resize(rows.len(), NULL);
        self.values.clear();
        self.values.extend(self.packed.iter().map(|&packed| value(packed)));
        for (rank, packed) in self.packed.iter().enumerate() {
            self.of_rows[(packed & row_mask) as usize] = rank;
        }
        self.rows = rows;
    }

    /// The number of ranks.
    pub(crate) fn count(&self) -> usize {
        self.values.len()
    }

    /// The rank of the value of a row, unless it is null.
    #[inline]
    pub(crate) fn of_row(&self, row: usize) -> Option<usize> {
        Some(self.of_rows[row - self.rows.start]).filter(|&rank| rank != NULL)
    }

    /// The value of a rank.
    #[inline]
    pub(crate) fn value(&self, rank: usize) -> f64 {
        self.values[rank]
    }
}

/// A set of ranks, one bit for each, with a position in it that moves to the rank that is asked for. From row to row it moves by a
/// rank or two, so that the next one mostly is in the same word.
#[derive(Debug, Default)]
pub(crate) struct RankSet {
    words: Vec<u64>,
    count: usize,
    /// Any rank.
    at: usize,
    /// The ranks of the set below `at`.
    below: usize,
}

impl RankSet {
    /// Empties the set; it will have ranks below `ranks`.
    pub(crate) fn reset(&mut self, ranks: usize) {
        self.words.clear();
        self.words.resize(ranks.div_ceil(64), 0);
        (self.count, self.at, self.below) = (0, 0, 0);
    }

    /// The ranks in the set.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Adds a rank that is not in the set.
    #[inline]
    pub(crate) fn insert(&mut self, rank: usize) {
        self.words[rank / 64] |= 1 << (rank % 64);
        self.count += 1;
        self.below += usize::from(rank < self.at);
    }

    /// Removes a rank that is in the set.
    #[inline]
    pub(crate) fn remove(&mut self, rank: usize) {
        self.words[rank / 64] &= !(1 << (rank % 64));
        self.count -= 1;
        self.below -= usize::from(rank < self.at);
    }

    /// The rank that `place` others of the set precede, which has more ranks than that.
    #[inline]
    pub(crate) fn at(&mut self, place: usize) -> usize {
        self.at = match place.checked_sub(self.below) {
            Some(ahead) => self.ahead(self.at, ahead),
            None => self.behind(self.below - place - 1),
        };
        self.below = place;
        self.at
    }

    /// The rank of the set that follows another one.
    #[inline]
    pub(crate) fn after(&self, rank: usize) -> usize {
        self.ahead(rank + 1, 0)
    }

    /// The rank after `skipped` others from `from` on.
    #[inline]
    fn ahead(&self, from: usize, mut skipped: usize) -> usize {
        let mut index = from / 64;
        let mut word = self.words[index] & (!0 << (from % 64));
        while word.count_ones() as usize <= skipped {
            skipped -= word.count_ones() as usize;
            index += 1;
            word = self.words[index];
        }
        for _ in 0..skipped {
            word &= word - 1;
        }
        64 * index + word.trailing_zeros() as usize
    }

    /// The rank before `skipped` others below the position.
    #[inline]
    fn behind(&self, mut skipped: usize) -> usize {
        let mut index = self.at / 64;
        let mut word = self.words[index] & !(!0 << (self.at % 64));
        while word.count_ones() as usize <= skipped {
            skipped -= word.count_ones() as usize;
            index -= 1;
            word = self.words[index];
        }
        for _ in 0..skipped {
            word &= !(1 << (63 - word.leading_zeros()));
        }
        64 * index + 63 - word.leading_zeros() as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn a_set_of_ranks_finds_each_place(
            steps in proptest::collection::vec((0usize..500, any::<prop::sample::Index>()), 1..400),
        ) {
            let (mut set, mut plain) = (RankSet::default(), BTreeSet::new());
            set.reset(500);
            for (rank, place) in steps {
                if plain.remove(&rank) { set.remove(rank) } else { plain.insert(rank); set.insert(rank) }
                prop_assert_eq!(set.count(), plain.len());
                if !plain.is_empty() {
                    let place = place.index(plain.len());
                    let mut from = plain.iter().skip(place).copied();
                    let at = set.at(place);
                    prop_assert_eq!(Some(at), from.next());
                    if let Some(next) = from.next() {
                        prop_assert_eq!(set.after(at), next);
                    }
                }
            }
        }

        #[test]
        fn values_that_differ_in_their_last_bits_are_ranked(values in proptest::collection::vec(0u64..9, 1..300)) {
            let values: Vec<f64> = values.into_iter().map(|last| f64::from_bits(1.5f64.to_bits() + last)).collect();
            let mut ranks = Ranks::default();
            ranks.rank(&Span { values: &values, valid: None, first: 7 }, 7..7 + values.len());
            let ranked: Vec<f64> = (0..ranks.count()).map(|rank| ranks.value(rank)).collect();
            prop_assert!(ranked.is_sorted());
            for (row, &value) in values.iter().enumerate() {
                prop_assert_eq!(ranks.of_row(7 + row).map(|rank| ranks.value(rank)), Some(value));
            }
        }
    }

    #[test]
    fn nulls_have_no_rank_zeros_are_ordered_by_sign_and_nan_is_last() {
        let values = [f64::NAN, 0.0, -0.0, 9.0, f64::NEG_INFINITY, -1.0, f64::INFINITY, -f64::NAN];
        let valid = [true, true, true, false, true, true, true, true];
        let mut ranks = Ranks::default();
        ranks.rank(&Span { values: &values, valid: Some(&valid), first: 0 }, 0..8);
        let text: Vec<String> = (0..ranks.count()).map(|rank| ranks.value(rank).to_string()).collect();
        assert_eq!(text, ["-inf", "-1", "-0", "0", "inf", "NaN", "NaN"]);
        assert_eq!(ranks.of_row(3), None);
        assert!(ranks.has(2..8) && !ranks.has(2..9));
    }
}
