//! Which of the values that were measured to take. Pure: times come in, a choice and its reason go out.
//!
//! The value in force stays unless another one is better beyond doubt: noise does not move it.

use super::super::stats::median;

/// By how much another value must be faster, and no case slower.
pub(super) const MARGIN: f64 = 0.03;
/// In which share of the rounds it must be.
const ROUNDS: f64 = 0.75;

/// A value that was tried: for each case, us of each round. Rounds are comparable: in one, all candidates follow each other.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Candidate<T> {
    pub(super) value: T,
    pub(super) cases: Vec<Vec<f64>>,
}

/// What is taken, and why.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Choice<T> {
    pub(super) value: T,
    pub(super) why: String,
}

/// How two series of rounds compare: the median of what the other takes of the first, and the share of rounds in which it is faster.
fn compare(first: &[f64], other: &[f64]) -> (f64, f64) {
    let ratios: Vec<f64> = first.iter().zip(other).map(|(first, other)| other / first).collect();
    let faster = ratios.iter().filter(|&&ratio| ratio < 1.0).count();
    (median(&ratios), faster as f64 / ratios.len().max(1) as f64)
}

/// Whether the other series is faster beyond doubt.
fn beats(first: &[f64], other: &[f64]) -> bool {
    let (ratio, faster) = compare(first, other);
    ratio < 1.0 - MARGIN && faster >= ROUNDS
}

fn percent(ratio: f64) -> String {
    format!("{:.1}%", 100.0 * (1.0 - ratio).abs())
}

/// One of several values: that in force (the first candidate) unless another one is faster by more than [`MARGIN`] over all cases together,
/// in most rounds, and in no case slower by as much; of several such the fastest.
pub(super) fn best<T: Copy>(candidates: &[Candidate<T>]) -> Option<Choice<T>> {
    let (present, others) = candidates.split_first()?;
    let mut taken: Option<(f64, T)> = None;
    let mut tempting: Option<f64> = None;
    for other in others {
        let compared: Vec<(f64, f64)> =
            present.cases.iter().zip(&other.cases).map(|(first, other)| compare(first, other)).collect();
        if compared.is_empty() {
            continue;
        }
        let count = compared.len() as f64;
        let ratio = (compared.iter().map(|(ratio, _)| ratio.ln()).sum::<f64>() / count).exp();
        let rounds = compared.iter().map(|(_, faster)| faster).sum::<f64>() / count;
        if !ratio.is_finite() || ratio >= 1.0 {
            continue;
        }
        let slower = compared.iter().any(|&(ratio, _)| ratio > 1.0 + MARGIN);
        if ratio < 1.0 - MARGIN && rounds >= ROUNDS && !slower {
            if taken.is_none_or(|(best, _)| ratio < best) {
                taken = Some((ratio, other.value));
            }
        } else if tempting.is_none_or(|best| ratio < best) {
            tempting = Some(ratio);
        }
    }
    Some(match (taken, tempting) {
        (Some((ratio, value)), _) => Choice { value, why: format!("{} faster", percent(ratio)) },
        (None, Some(ratio)) => Choice {
            value: present.value,
            why: format!(
                "kept: another is {} faster, not in every case, or not beyond doubt",
                percent(ratio)
            ),
        },
        (None, None) => Choice { value: present.value, why: "kept: none is faster".to_owned() },
    })
}

/// A size, and the times of two ways over it: us of each round.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Sized {
    pub(super) bytes: u64,
    pub(super) usual: Vec<f64>,
    pub(super) other: Vec<f64>,
}

/// From which size on the other way is taken: the least from which on it is faster beyond doubt at every size; never if it is not so at the
/// largest. The threshold in force stays while neither way is, at any size, faster beyond doubt than the one that it says.
pub(super) fn from_size(sizes: &[Sized], present: Option<u64>) -> Choice<Option<u64>> {
    let is_right = |size: &Sized| match present.is_some_and(|from| size.bytes >= from) {
        true => !beats(&size.other, &size.usual),
        false => !beats(&size.usual, &size.other),
    };
    if sizes.iter().all(is_right) {
        return Choice { value: present, why: "kept: nothing else is faster at any size".to_owned() };
    }
    let faster = sizes.iter().rev().take_while(|size| beats(&size.usual, &size.other)).last();
    match faster {
        Some(first) => {
            let (ratio, _) = compare(&first.usual, &first.other);
            Choice {
                value: Some(first.bytes),
                why: format!("{} faster there, and more beyond", percent(ratio)),
            }
        }
        None => Choice { value: None, why: "not faster at the largest size".to_owned() },
    }
}

/// Up to which size the other way is taken, 0 if at none: the largest at which it is faster beyond doubt, of those up to which the usual way
/// nowhere is. What is in force stays while neither way is, at any size, faster beyond doubt than the one that it says.
pub(super) fn up_to_size(sizes: &[Sized], present: u64) -> Choice<u64> {
    let is_right = |size: &Sized| match size.bytes <= present {
        true => !beats(&size.other, &size.usual),
        false => !beats(&size.usual, &size.other),
    };
    if sizes.iter().all(is_right) {
        return Choice { value: present, why: "kept: nothing else is faster at any size".to_owned() };
    }
    let small = sizes.iter().take_while(|size| !beats(&size.other, &size.usual));
    match small.filter(|size| beats(&size.usual, &size.other)).last() {
        Some(last) => {
            let (ratio, _) = compare(&last.usual, &last.other);
            Choice { value: last.bytes, why: format!("{} faster there, not slower below", percent(ratio)) }
        }
        None => Choice { value: 0, why: "not faster at the smallest sizes".to_owned() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds around a time: so many percent up and down.
    fn rounds(time: f64, noise: f64) -> Vec<f64> {
        [0.0, 1.0, -1.0, 0.5, -0.5, 0.2, -0.7].iter().map(|at| time * (1.0 + at * noise / 100.0)).collect()
    }

    fn candidate(value: u32, times: &[f64], noise: f64) -> Candidate<u32> {
        Candidate { value, cases: times.iter().map(|&time| rounds(time, noise)).collect() }
    }

    fn value(candidates: &[Candidate<u32>]) -> u32 {
        best(candidates).expect("candidates").value
    }

    #[test]
    fn the_fastest_is_taken_if_it_is_faster_by_more_than_the_margin() {
        let present = candidate(50, &[10.0, 100.0], 0.5);
        let (good, better) = (candidate(25, &[9.5, 95.0], 0.5), candidate(75, &[9.0, 90.0], 0.5));
        let choice = best(&[present.clone(), good.clone(), better]).expect("candidates");
        assert_eq!((choice.value, &choice.why[..]), (75, "10.0% faster"));
        assert_eq!(value(&[present.clone(), candidate(25, &[9.8, 98.0], 0.5)]), 50);
        assert_eq!(value(&[present, good]), 25);
    }

    #[test]
    fn what_is_slower_in_one_case_is_not_taken() {
        let present = candidate(50, &[10.0, 100.0], 0.5);
        let mixed = candidate(25, &[8.0, 104.0], 0.5);
        let choice = best(&[present, mixed]).expect("candidates");
        assert!(choice.value == 50 && choice.why.starts_with("kept: another is"), "{choice:?}");
    }

    #[test]
    fn noise_moves_nothing_whichever_value_is_in_force() {
        // The same time for all, measured with as much noise as differs between candidates.
        let mut state = 7u64;
        let mut noise = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as f64 / (1u64 << 31) as f64 - 0.5
        };
        for _ in 0..200 {
            let noisy: Vec<Candidate<u32>> = (0..5)
                .map(|at| {
                    let series = |time: f64, noise: &mut dyn FnMut() -> f64| {
                        (0..11).map(|_| time * (1.0 + 0.06 * noise())).collect()
                    };
                    Candidate { value: at, cases: vec![series(8.0, &mut noise), series(34.0, &mut noise)] }
                })
                .collect();
            assert_eq!(value(&noisy), 0);
        }
    }

    #[test]
    fn a_choice_made_once_is_made_again() {
        let (slow, fast) = (candidate(1, &[10.0], 0.5), candidate(2, &[9.0], 0.5));
        assert_eq!(value(&[slow.clone(), fast.clone()]), 2);
        assert_eq!(value(&[fast, slow]), 2);
    }

    #[test]
    fn one_candidate_stays_and_none_is_no_choice() {
        assert_eq!(value(&[candidate(3, &[1.0], 0.0)]), 3);
        assert_eq!(best::<u32>(&[]), None);
        assert_eq!(value(&[candidate(3, &[], 0.0), candidate(4, &[], 0.0)]), 3);
        assert_eq!(value(&[candidate(3, &[0.0], 0.0), candidate(4, &[0.0], 0.0)]), 3);
    }

    fn sized(times: &[(u64, f64, f64)]) -> Vec<Sized> {
        let size = |&(bytes, usual, other): &(u64, f64, f64)| Sized {
            bytes,
            usual: rounds(usual, 0.5),
            other: rounds(other, 0.5),
        };
        times.iter().map(size).collect()
    }

    #[test]
    fn a_way_is_taken_from_the_size_on_from_which_it_is_always_faster() {
        let sizes =
            sized(&[(1, 8.0, 16.0), (2, 15.0, 14.0), (4, 30.0, 31.0), (8, 60.0, 55.0), (16, 120.0, 100.0)]);
        assert_eq!(from_size(&sizes, None).value, Some(8));
        assert_eq!(from_size(&sizes[..3], None).value, None);
        assert_eq!(from_size(&[], Some(4)).value, Some(4));
    }

    #[test]
    fn a_threshold_in_force_stays_until_one_of_its_sides_is_wrong() {
        let even = sized(&[(4, 30.0, 34.0), (8, 60.0, 59.0), (16, 120.0, 100.0)]);
        // About as fast at 8: both thresholds are right.
        assert_eq!(from_size(&even, Some(8)).value, Some(8));
        assert_eq!(from_size(&even, Some(16)).value, Some(16));
        assert_eq!(from_size(&even, Some(4)).value, Some(16));
        assert_eq!(from_size(&even, None).value, Some(16));
        let slower = sized(&[(4, 30.0, 34.0), (8, 60.0, 70.0), (16, 120.0, 130.0)]);
        assert_eq!(from_size(&slower, Some(8)).value, None);
        assert_eq!(from_size(&slower, None).value, None);
    }

    #[test]
    fn small_messages_take_the_other_way_up_to_where_it_is_last_faster() {
        let sizes = sized(&[(1, 6.6, 6.2), (2, 6.6, 6.5), (4, 7.0, 6.3), (8, 7.0, 7.1), (16, 7.0, 8.0)]);
        let choice = up_to_size(&sizes, 0);
        assert_eq!((choice.value, &choice.why[..]), (4, "10.0% faster there, not slower below"));
        // Where the usual way was faster in between, nothing above counts.
        let between = sized(&[(1, 6.6, 6.2), (2, 6.6, 7.5), (4, 7.0, 6.3)]);
        assert_eq!(up_to_size(&between, 0).value, 1);
        assert_eq!(up_to_size(&between, 4).value, 1);
        let slower = sized(&[(1, 6.6, 7.0), (2, 6.6, 7.2)]);
        assert_eq!(
            up_to_size(&slower, 2),
            Choice { value: 0, why: "not faster at the smallest sizes".to_owned() }
        );
        assert_eq!(up_to_size(&[], 2).value, 2);
    }

    #[test]
    fn a_bound_in_force_stays_until_one_of_its_sides_is_wrong() {
        let even = sized(&[(1, 6.6, 6.2), (2, 6.6, 6.5), (4, 7.0, 7.1), (8, 7.0, 8.0)]);
        for right in [1, 2, 3, 4, 7] {
            let choice = up_to_size(&even, right);
            assert!(choice.value == right && choice.why.starts_with("kept"), "{choice:?}");
        }
        assert_eq!([0, 8, u64::MAX].map(|wrong| up_to_size(&even, wrong).value), [1, 1, 1]);
    }
}
