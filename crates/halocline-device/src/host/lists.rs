//! Index lists of arrays in host memory.

use crate::lists::{Finds, Found, width};
use halocline_plan::ElementType;

/// Makes an index list of keys in host memory. `target` is the memory of the result, whose length is its capacity. Keys and results are
/// 32-bit or 64-bit integers; of other types nothing is found.
///
/// ```
/// use halocline_device::{Finds, host};
/// use halocline_plan::ElementType;
///
/// let owners: Vec<u8> = [2, 0, 1, 0_i32].iter().flat_map(|owner| owner.to_ne_bytes()).collect();
/// let mut cells = [0; 4 * 4];
/// let finds = Finds::Owned { ranks: &[0, 2], size: 3, index: ElementType::U32 };
/// let found = host::find_list(&owners, ElementType::I32, &finds, &mut cells);
/// assert_eq!(found.counts, [2, 1]);
/// // Cells 1 and 3 of rank 0, then cell 0 of rank 2.
/// let cells = cells.chunks(4).map(|cell| u32::from_ne_bytes(cell.try_into().expect("four bytes")));
/// assert_eq!(cells.take(3).collect::<Vec<_>>(), [1, 3, 0]);
/// ```
pub fn find_list(keys: &[u8], key: ElementType, finds: &Finds<'_>, target: &mut [u8]) -> Found {
    match *finds {
        Finds::Owned { ranks, size, index } => {
            positions((keys, key), size, ranks.len(), |owner| list_of(ranks, owner), (target, index))
        }
        Finds::Halo { rank, size, index } => {
            let is_other = |owner| (owner != u64::from(rank)).then_some(0);
            positions((keys, key), size, 1, is_other, (target, index))
        }
        Finds::Unique => {
            let count = match key {
                ElementType::I32 => unique(keys, i32::from_ne_bytes, i32::to_ne_bytes, target),
                ElementType::U32 => unique(keys, u32::from_ne_bytes, u32::to_ne_bytes, target),
                ElementType::I64 => unique(keys, i64::from_ne_bytes, i64::to_ne_bytes, target),
                ElementType::U64 => unique(keys, u64::from_ne_bytes, u64::to_ne_bytes, target),
                _ => 0,
            };
            Found { bad: None, counts: vec![count] }
        }
    }
}

/// The positions of the owners in each of so many lists. `list_of` tells the list of a rank.
fn positions(
    (keys, key): (&[u8], ElementType),
    size: u64,
    lists: usize,
    list_of: impl Fn(u64) -> Option<usize>,
    (target, index): (&mut [u8], ElementType),
) -> Found {
    let list_of = |owner: u64| if owner < size { list_of(owner) } else { None };
    match (width(key), width(index)) {
        (Some(4), Some(index)) => {
            let owners = keys.as_chunks().0.iter().map(|key| u64::from(u32::from_ne_bytes(*key)));
            split(owners, size, lists, list_of, (target, index))
        }
        (Some(8), Some(index)) => {
            let owners = keys.as_chunks().0.iter().map(|key| u64::from_ne_bytes(*key));
            split(owners, size, lists, list_of, (target, index))
        }
        _ => Found { bad: None, counts: vec![0; lists] },
    }
}

/// The list of an owner among those of these ranks.
fn list_of(ranks: &[u32], owner: u64) -> Option<usize> {
    match ranks {
        [] => None,
        [first, .., last] if (last - first) as usize == ranks.len() - 1 => {
            let list = usize::try_from(owner.wrapping_sub(u64::from(*first))).ok()?;
            (list < ranks.len()).then_some(list)
        }
        _ => ranks.binary_search(&u32::try_from(owner).ok()?).ok(),
    }
}

/// A negative owner is a large one here, so that it is no rank.
fn split(
    owners: impl Iterator<Item = u64> + Clone,
    size: u64,
    lists: usize,
    list_of: impl Fn(u64) -> Option<usize>,
    (target, index): (&mut [u8], usize),
) -> Found {
    let (mut counts, mut bad) = (vec![0u64; lists], None);
    for (cell, owner) in (0..).zip(owners.clone()) {
        if owner >= size {
            bad = bad.or(Some((cell, owner)));
        } else if let Some(list) = list_of(owner) {
            counts[list] += 1;
        }
    }
    let begin = |begin: &mut u64, count: &u64| {
        let own = *begin;
        *begin += count;
        Some(own)
    };
    let mut next: Vec<u64> = counts.iter().scan(0, begin).collect();
    for (cell, owner) in (0u64..).zip(owners) {
        let Some(list) = list_of(owner) else { continue };
        let at = next[list] as usize * index;
        next[list] += 1;
        if let Some(place) = target.get_mut(at..at + index) {
            match index {
                8 => place.copy_from_slice(&cell.to_ne_bytes()),
                _ => place.copy_from_slice(&(cell as u32).to_ne_bytes()),
            }
        }
    }
    Found { bad, counts }
}

fn unique<T: Ord + Copy, const N: usize>(
    keys: &[u8],
    read: fn([u8; N]) -> T,
    write: fn(T) -> [u8; N],
    target: &mut [u8],
) -> u64 {
    let mut all: Vec<T> = keys.as_chunks().0.iter().map(|key| read(*key)).collect();
    all.sort_unstable();
    all.dedup();
    target.as_chunks_mut().0.iter_mut().zip(&all).for_each(|(place, key)| *place = write(*key));
    all.len() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(owners: &[i64], ranks: &[u32], size: u64, capacity: usize) -> (Found, Vec<u32>) {
        let keys: Vec<u8> = owners.iter().flat_map(|owner| owner.to_ne_bytes()).collect();
        let mut target = vec![0xff; 4 * capacity];
        let finds = Finds::Owned { ranks, size, index: ElementType::U32 };
        let found = find_list(&keys, ElementType::I64, &finds, &mut target);
        (found, target.as_chunks().0.iter().map(|at| u32::from_ne_bytes(*at)).collect())
    }

    #[test]
    fn lists_are_stable_and_follow_one_another() {
        let (found, cells) = find(&[1, 5, 1, 0, 5], &[0, 1, 5], 6, 5);
        assert_eq!((found.bad, found.counts, cells), (None, vec![1, 2, 2], vec![3, 0, 2, 1, 4]));
    }

    #[test]
    fn owners_that_are_no_ranks_are_reported_and_what_does_not_fit_is_counted() {
        let (found, cells) = find(&[0, 7, -1, 0, 0], &[0], 6, 2);
        assert_eq!((found.bad, found.counts, cells), (Some((1, 7)), vec![3], vec![0, 3]));
        let (found, _) = find(&[0, -1, 7], &[], 6, 0);
        assert_eq!((found.bad, found.counts), (Some((1, u64::MAX)), vec![]));
    }

    #[test]
    fn unique_ids_ascend_by_their_sign() {
        let ids: Vec<u8> = [3_i32, -1, 3, 0, -7].iter().flat_map(|id| id.to_ne_bytes()).collect();
        let mut target = [0; 3 * 4];
        let found = find_list(&ids, ElementType::I32, &Finds::Unique, &mut target);
        let ids = target.as_chunks().0.iter().map(|id| i32::from_ne_bytes(*id));
        assert_eq!((found.counts, ids.collect::<Vec<_>>()), (vec![4], vec![-7, -1, 0]));
    }
}
