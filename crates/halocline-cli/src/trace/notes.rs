//! What a rank has written down, within a limit: once it is reached, every second epoch is dropped, and from then on only every
//! second one is recorded; then every fourth, and so on.

use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Most entries of a rank: some 100 MB.
pub(super) const MOST: usize = 1 << 17;

/// What the span is called in which an exchange is begun.
const EXCHANGE: &str = "exchange";

/// A span from its entry to its exit, or an event.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    pub(super) rank: usize,
    /// Of the exchange that it belongs to. Without one it goes with the exchange that its rank began last.
    pub(super) epoch: Option<u64>,
    pub(super) name: String,
    pub(super) target: &'static str,
    /// By the monotonic clock, ns.
    pub(super) begin: u64,
    /// Of a span.
    pub(super) end: Option<u64>,
    pub(super) thread: u64,
    pub(super) fields: Map<String, Value>,
}

impl Entry {
    /// The object and the epoch of the exchange that this is the begin of.
    fn begins(&self) -> Option<(Option<&Value>, u64)> {
        let epoch = self.epoch.filter(|_| self.name == EXCHANGE)?;
        Some((self.fields.get("object"), epoch))
    }
}

/// What a rank has written down.
#[derive(Debug)]
pub(super) struct Notes {
    pub(super) entries: Vec<Entry>,
    /// The names of its threads.
    pub(super) threads: BTreeMap<u64, String>,
    /// Most entries.
    most: usize,
    /// The epochs 1, 1 + stride, 1 + 2 stride, ... of each object are recorded. A power of two.
    stride: u64,
    /// The object and the epoch of the exchange that was begun last.
    latest: (Option<Value>, u64),
    /// The highest epoch of all objects.
    highest: u64,
    /// Exchanges that were begun.
    exchanges: u64,
    /// Entries of recorded epochs that found no room.
    without_room: u64,
    /// The last epoch that a device has told the times of, if there were more.
    device_end: Option<u64>,
}

impl Notes {
    /// Of so many entries at most.
    pub(super) fn new(most: usize) -> Self {
        Self {
            entries: Vec::new(),
            threads: BTreeMap::new(),
            most,
            stride: 1,
            latest: (None, 0),
            highest: 0,
            exchanges: 0,
            without_room: 0,
            device_end: None,
        }
    }

    /// Adds an entry; `name`: of its thread.
    pub(super) fn add(&mut self, mut entry: Entry, name: impl FnOnce() -> String) {
        if let Some((object, epoch)) = entry.begins()
            && (self.latest.0.as_ref(), self.latest.1) != (object, epoch)
        {
            self.latest = (object.cloned(), epoch);
            self.exchanges += 1;
        }
        let epoch = *entry.epoch.get_or_insert(self.latest.1);
        self.highest = self.highest.max(epoch);
        // A larger stride than the highest epoch would drop nothing more.
        while self.keeps(epoch) && self.entries.len() >= self.most && self.stride < self.highest {
            self.thin(2 * self.stride);
        }
        if !self.keeps(epoch) {
            return;
        }
        if self.entries.len() >= self.most {
            self.without_room += 1;
            return;
        }
        self.threads.entry(entry.thread).or_insert_with(name);
        self.entries.push(entry);
    }

    /// What comes before the first exchange has the epoch 0, and stays.
    fn keeps(&self, epoch: u64) -> bool {
        epoch == 0 || (epoch - 1).is_multiple_of(self.stride)
    }

    /// From now on this stride, at least; what was recorded of other epochs is dropped.
    pub(super) fn thin(&mut self, stride: u64) {
        if stride <= self.stride {
            return;
        }
        self.stride = stride;
        let mut entries = std::mem::take(&mut self.entries);
        entries.retain(|entry| self.keeps(entry.epoch.unwrap_or(0)));
        self.entries = entries;
        let threads: BTreeSet<u64> = self.entries.iter().map(|entry| entry.thread).collect();
        self.threads.retain(|thread, _| threads.contains(thread));
    }

    /// A device has told no times after this epoch.
    pub(super) fn device_ends(&mut self, epoch: u64) {
        self.device_end = Some(self.device_end.map_or(epoch, |end| end.min(epoch)));
    }

    pub(super) fn stride(&self) -> u64 {
        self.stride
    }

    pub(super) fn without_room(&self) -> u64 {
        self.without_room
    }

    pub(super) fn device_end(&self) -> Option<u64> {
        self.device_end
    }

    /// Exchanges that were begun and are not recorded.
    pub(super) fn left_out(&self) -> u64 {
        let recorded = self.entries.iter().filter_map(Entry::begins);
        let recorded: BTreeSet<_> =
            recorded.map(|(object, epoch)| (object.map(Value::to_string), epoch)).collect();
        self.exchanges.saturating_sub(recorded.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The begin of an exchange, or what belongs to it or to none.
    fn entry(name: &str, object: &str, epoch: Option<u64>) -> Entry {
        let fields = Map::from_iter([("object".to_owned(), object.into())]);
        let (name, target) = (name.to_owned(), "halocline");
        Entry { rank: 0, epoch, name, target, begin: 0, end: Some(1), thread: 1, fields }
    }

    fn recorded(notes: &Notes, name: &str) -> Vec<u64> {
        let entries = notes.entries.iter().filter(|entry| entry.name == name);
        entries.map(|entry| entry.epoch.unwrap()).collect()
    }

    fn add(notes: &mut Notes, name: &str, epoch: Option<u64>) {
        notes.add(entry(name, "a", epoch), || "main".to_owned());
    }

    #[test]
    fn a_full_record_keeps_every_second_epoch_and_goes_on_with_these() {
        let mut notes = Notes::new(12);
        add(&mut notes, "bind", None);
        let mut strides = Vec::new();
        for epoch in 1..=23 {
            add(&mut notes, EXCHANGE, Some(epoch));
            // It goes with the exchange.
            add(&mut notes, "interior", None);
            strides.push(notes.stride());
        }
        let turns: Vec<_> =
            strides.windows(2).filter(|pair| pair[0] != pair[1]).map(|pair| pair[1]).collect();
        assert_eq!(turns, [2, 4, 8]);
        for name in [EXCHANGE, "interior"] {
            assert_eq!(recorded(&notes, name), [1, 9, 17], "{name}");
        }
        assert_eq!(recorded(&notes, "bind"), [0]);
        assert_eq!((notes.left_out(), notes.without_room()), (20, 0));
        notes.thin(16);
        assert_eq!((recorded(&notes, EXCHANGE), notes.left_out()), (vec![1, 17], 21));
    }

    #[test]
    fn what_belongs_to_one_epoch_alone_is_counted_once_it_finds_no_room() {
        let mut notes = Notes::new(4);
        (0..10).for_each(|_| add(&mut notes, "wait", Some(1)));
        assert_eq!((notes.entries.len(), notes.without_room(), notes.stride()), (4, 6, 1));
        // A later epoch cannot make room, either, and is not kept.
        (2..100).for_each(|epoch| add(&mut notes, EXCHANGE, Some(epoch)));
        assert_eq!((notes.entries.len(), notes.left_out()), (4, 98));
        assert!(notes.stride() <= 128, "{}", notes.stride());
    }
}
