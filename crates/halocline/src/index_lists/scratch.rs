//! Device memory of index lists, and where the work that uses it ends.

use crate::error::Error;
use crate::field::Field;
use crate::lock::lock;
use halocline_device::{Device, Event, EventPool, Found, ListSpec, Memory, Stream};
use std::collections::VecDeque;
use std::sync::Mutex;

/// Memory of one device, which the lists of an object use one after the other.
pub(super) struct Scratch {
    device: Device,
    memory: Memory,
    /// Pinned: the words of the results.
    results: Memory,
    words: usize,
    events: EventPool,
    /// Where each list ends that may be in flight, with its arrays. Each waits for the one before.
    in_flight: VecDeque<(Event, [Field; 2])>,
}

/// Scratches of objects that were dropped while a device used them.
static RETIRED: Mutex<Vec<Scratch>> = Mutex::new(Vec::new());

/// Begins a list, whose scratch address is not given yet, in the scratch of an object.
pub(super) fn begin(
    own: &mut Option<Scratch>,
    (device, stream): (&Device, &Stream),
    mut spec: ListSpec<'_>,
    fields: [&Field; 2],
) -> Result<(), Error> {
    free_retired();
    let (bytes, words) = (device.list_scratch(&spec)?, spec.finds.words());
    if !own.as_ref().is_some_and(|scratch| scratch.fits(device, bytes, words)) {
        let made = Scratch::new(device, bytes, words)?;
        own.replace(made).into_iter().for_each(retire);
    }
    let Some(scratch) = own else { return Ok(()) };
    // Kernels belong to the driver object that has loaded them: that of the scratch, whichever of the device the stream came with.
    // SAFETY: the stream lives longer than this call.
    let stream = &unsafe { scratch.device.borrow_stream(stream.raw()) }?;
    scratch.forget_over();
    let end = scratch.events.take()?;
    if let Some((before, _)) = scratch.in_flight.back() {
        stream.wait(before)?;
    }
    spec.scratch = scratch.memory.at(0);
    scratch.words = words;
    // SAFETY: the scratch has the bytes, and the stream waits for the list before, which used it. The arrays are held until the event behind
    // all this work is over. Streams order other work on their memory, by the contract of `Field::from_device` and `DeviceArray`.
    let begun = unsafe {
        let made = stream.find_list(&spec);
        made.and_then(|()| stream.copy(scratch.results.at(0), scratch.memory.at(0), 8 * words))
    };
    // Also after an error: some of the work may have begun.
    let recorded = stream.record(&end);
    if recorded.is_err() && device.failure().is_none() {
        // The event says nothing of this work.
        stream.synchronise()?;
    }
    scratch.in_flight.push_back((end, fields.map(Field::clone)));
    Ok(begun.and(recorded)?)
}

/// Keeps a scratch until its device is through with it.
fn retire(scratch: Scratch) {
    lock(&RETIRED).push(scratch);
    free_retired();
}

/// Frees the scratches that no device uses any more.
fn free_retired() {
    let over: Vec<Scratch> = lock(&RETIRED).extract_if(.., |scratch| scratch.is_over()).collect();
    // Fields of other libraries may run any code when they are dropped, so no lock is held.
    drop(over);
}

impl Scratch {
    fn new(device: &Device, bytes: usize, words: usize) -> Result<Self, Error> {
        Ok(Self {
            device: device.clone(),
            memory: device.allocate(bytes)?,
            results: device.allocate_pinned(8 * words)?,
            words: 0,
            events: device.events(),
            in_flight: VecDeque::new(),
        })
    }

    fn fits(&self, device: &Device, bytes: usize, words: usize) -> bool {
        self.device == *device
            && self.memory.place().bytes >= bytes
            && self.results.place().bytes >= 8 * words
    }

    /// Lets go of the arrays of lists that are over. The last one stays: its event tells when there are counts.
    fn forget_over(&mut self) {
        while self.in_flight.len() > 1 && self.in_flight[0].0.query().unwrap_or(false) {
            self.in_flight.pop_front();
        }
    }

    /// Whether no device uses it. A device that has failed does nothing more.
    fn is_over(&self) -> bool {
        let end = self.in_flight.back();
        end.is_none_or(|(end, _)| end.query().unwrap_or(false)) || self.device.failure().is_some()
    }

    /// The results of the last list, once it is made.
    pub(super) fn found(&self) -> Result<Found, Error> {
        if let Some((end, _)) = self.in_flight.back() {
            while !end.query()? {
                std::thread::yield_now();
            }
        }
        // SAFETY: the list, which wrote the words, is over, and no other begins while this object is borrowed.
        let bytes = unsafe { self.results.bytes(0..8 * self.words) };
        let words: Vec<u64> = bytes.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word)).collect();
        Ok(Found::of_words(&words))
    }
}

impl Drop for super::IndexLists {
    fn drop(&mut self) {
        self.scratch.take().into_iter().for_each(retire);
    }
}
