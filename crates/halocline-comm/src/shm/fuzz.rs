//! Access of `fuzz/` to the private parsers. Only in fuzzing builds.

use super::Job;
use super::arrivals::Arrivals;
use super::control::Control;
use super::frame::{Announced, Decoder, encode};
use super::ring::Ring;
use super::socket::check_hello;
use crate::inbox::Tag;
use crate::segment::Segment;

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// A connection: the first byte is the size of the pieces in which the other bytes are received.
pub fn frames(bytes: &[u8]) {
    let Some((&piece, stream)) = bytes.split_first() else { return };
    let mut decoder = Decoder::default();
    for piece in stream.chunks(usize::from(piece).max(1)) {
        decoder.feed(piece);
        loop {
            let frame = match decoder.next() {
                Ok(Some(frame)) => frame,
                Ok(None) => break,
                Err(_) => return,
            };
            // The claimed rank may be any number.
            let _ = check_hello(&frame, TOKEN);
            let mut again = Decoder::default();
            again.feed(&encode(frame.sequence, frame.tag, &frame.segments, &frame.payload));
            assert_eq!(again.next(), Ok(Some(frame)));
        }
    }
}

/// Connections as ranks make them.
pub fn connections() -> Vec<Vec<u8>> {
    let hello = [&3u64.to_le_bytes()[..], TOKEN.as_bytes()].concat();
    let hello = encode(0, Tag { operation: u64::MAX, round: u64::MAX }, &[], &hello);
    let segments = [Announced { id: 7, len: 4096 }, Announced { id: 8, len: 1 }];
    let message = encode(0, Tag { operation: 5, round: 1 }, &segments, b"payload");
    [1, 200].map(|piece| [&[piece][..], &hello, &message].concat()).to_vec()
}

/// A control segment with arbitrary content.
pub fn control(bytes: &[u8]) {
    const RANKS: usize = 3;
    let len = Job::segment_bytes(RANKS);
    let Ok(segment) = Segment::shared(len) else { return };
    let count = bytes.len().min(len);
    // SAFETY: the segment has at least `count` bytes, and nothing else accesses it.
    unsafe { segment.base().as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), count) };
    let Some(control) = segment.descriptor().and_then(|fd| fd.try_clone_to_owned().ok()) else { return };
    let Ok(control) = Control::map(control, RANKS) else { panic!("a segment of the right size") };
    for slot in control.slots() {
        // Impossible process ids are refused.
        assert!(slot.pid().is_none_or(|pid| pid.as_raw_nonzero().get() > 0));
        let _ = slot.has_left();
    }
    assert!(control.slot(RANKS).is_none());
    let _ = (control.cores(), control.absent(), control.departures());
    (0..RANKS).for_each(|rank| control.ended(rank));
    control.depart(0, super::LEFT);
}

/// A message ring with arbitrary content, and numbers of messages that come from the socket meanwhile.
pub fn ring(bytes: &[u8]) {
    let Some((&numbers, bytes)) = bytes.split_first() else { return };
    let Ok(ring) = Ring::create() else { return };
    ring.overwrite(bytes);
    let arrivals = Arrivals::default();
    if arrivals.attach(std::sync::Arc::clone(ring.memory())).is_err() {
        return;
    }
    let mut delivered = 0u64;
    for number in 0..u64::from(numbers) {
        let came = arrivals.arrived(number, || {}, |_, _| delivered += 1);
        if came.is_err() || arrivals.poll(|_, _| delivered += 1).is_err() {
            break;
        }
    }
    assert!(delivered <= (Ring::BYTES / 64) as u64);
}

/// A ring as a rank makes it.
pub fn rings() -> Vec<Vec<u8>> {
    let Ok(ring) = Ring::create() else { return Vec::new() };
    let mut written = 0;
    for sequence in [0, 2] {
        assert!(ring.push(&mut written, sequence, Tag { operation: 5, round: 1 }, b"payload"));
    }
    [1, 200].map(|numbers| [&[numbers][..], &ring.bytes()[..1024]].concat()).to_vec()
}
