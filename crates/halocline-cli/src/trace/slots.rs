//! Where the stamps of rounds lie. Once there are more rounds than slots, only every second round keeps its slot, then every fourth,
//! and so on: those whose epochs the rest of the trace shows, too.

/// Rounds that are kept at most.
pub(super) const MOST: usize = 1 << 15;

/// The round whose stamps lie in a slot.
#[derive(Debug, Clone)]
struct Held {
    round: u64,
    /// The moments that were stamped, a bit each: the others of the slot are of an earlier round.
    stamped: u32,
}

/// A round whose stamps are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kept {
    pub(super) slot: usize,
    pub(super) round: u64,
    pub(super) epoch: u64,
    pub(super) stamped: u32,
}

/// The slots of a rank's rounds.
#[derive(Debug)]
pub(super) struct Slots {
    /// What they hold.
    held: Vec<Option<Held>>,
    free: Vec<usize>,
    /// Later rounds are not stamped.
    rounds: u64,
    /// Of the epochs, by [`super::notes`].
    stride: u64,
    /// The epoch of round 0, once an exchange has told it.
    first: Option<u64>,
    round: u64,
    /// Where the stamps of this round lie, if they are kept; unknown before its first one.
    current: Option<Option<usize>>,
}

impl Slots {
    /// For so many rounds, of which `most` are kept.
    pub(super) fn new(rounds: usize, most: usize) -> Self {
        let count = rounds.clamp(1, most);
        let (held, free) = (vec![None; count], (0..count).rev().collect());
        Self { held, free, rounds: rounds as u64, stride: 1, first: None, round: 0, current: None }
    }

    pub(super) fn count(&self) -> usize {
        self.held.len()
    }

    pub(super) fn stride(&self) -> u64 {
        self.stride
    }

    /// The exchange of this round has this epoch.
    pub(super) fn observe(&mut self, epoch: u64) {
        self.first.get_or_insert(epoch.saturating_sub(self.round));
    }

    pub(super) fn next(&mut self) {
        self.round += 1;
        self.current = None;
    }

    /// Where a moment of this round is to be stamped, if it is.
    pub(super) fn stamp(&mut self, moment: usize) -> Option<usize> {
        let current = self.current.unwrap_or_else(|| self.place());
        self.current = Some(current);
        let slot = current?;
        self.held[slot].as_mut()?.stamped |= 1 << moment;
        Some(slot)
    }

    /// The last epoch that is stamped, if there were more rounds.
    pub(super) fn end(&self) -> Option<u64> {
        (self.round > self.rounds).then(|| self.epoch(self.rounds).saturating_sub(1))
    }

    /// The rounds that are over and kept, in their order.
    pub(super) fn kept(&self) -> Vec<Kept> {
        let held = self.held.iter().enumerate().filter_map(|(slot, held)| Some((slot, held.as_ref()?)));
        let over = held.filter(|(_, held)| held.round < self.round);
        let mut kept: Vec<Kept> = over
            .map(|(slot, &Held { round, stamped })| Kept { slot, round, epoch: self.epoch(round), stamped })
            .collect();
        kept.sort_by_key(|kept| kept.round);
        kept
    }

    fn epoch(&self, round: u64) -> u64 {
        self.first.unwrap_or(1) + round
    }

    fn keeps(&self, round: u64) -> bool {
        self.epoch(round).saturating_sub(1).is_multiple_of(self.stride)
    }

    /// A slot for this round, if it is kept.
    fn place(&mut self) -> Option<usize> {
        if self.round >= self.rounds {
            return None;
        }
        while self.keeps(self.round) {
            if let Some(slot) = self.free.pop() {
                self.held[slot] = Some(Held { round: self.round, stamped: 0 });
                return Some(slot);
            }
            self.thin();
        }
        None
    }

    /// Doubles the stride. What was given to streams for a freed slot is stored before what comes later on the same streams.
    fn thin(&mut self) {
        self.stride *= 2;
        for slot in 0..self.held.len() {
            if self.held[slot].as_ref().is_some_and(|held| !self.keeps(held.round)) {
                self.held[slot] = None;
                self.free.push(slot);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds of two moments, the second one of the even rounds only.
    fn play(slots: &mut Slots, rounds: std::ops::Range<u64>, first: u64) {
        for round in rounds {
            slots.stamp(0);
            slots.observe(first + round);
            if round.is_multiple_of(2) {
                slots.stamp(1);
            }
            slots.next();
        }
    }

    fn epochs(slots: &Slots) -> Vec<u64> {
        slots.kept().iter().map(|kept| kept.epoch).collect()
    }

    #[test]
    fn more_rounds_than_slots_keep_the_epochs_that_the_trace_shows() {
        // An object that is new, and one that has made exchanges before.
        for (first, due) in [(1, [1, 9, 17]), (4, [9, 17, 25])] {
            let mut slots = Slots::new(1000, 4);
            play(&mut slots, 0..23, first);
            assert_eq!((epochs(&slots), slots.stride(), slots.end()), (due.to_vec(), 8, None), "{first}");
            for kept in slots.kept() {
                let both = kept.round.is_multiple_of(2);
                assert_eq!((kept.epoch, kept.stamped), (first + kept.round, 1 + 2 * u32::from(both)));
            }
        }
    }

    #[test]
    fn rounds_after_the_last_one_are_not_stamped_and_that_is_known() {
        let mut slots = Slots::new(3, 4);
        play(&mut slots, 0..3, 6);
        assert_eq!((epochs(&slots), slots.end()), (vec![6, 7, 8], None));
        play(&mut slots, 3..5, 6);
        assert_eq!((epochs(&slots), slots.end(), slots.stride()), (vec![6, 7, 8], Some(8), 1));
    }

    #[test]
    fn one_slot_holds_one_round() {
        let mut slots = Slots::new(9, 1);
        play(&mut slots, 0..9, 1);
        assert_eq!(epochs(&slots), [1]);
    }
}
