//! Messages that ranks receive: plain values, messages of the directory, collective calls.

use crate::simulated::resolve_tampered;
use halocline_comm::call::fuzz::send_raw;
use halocline_comm::{CommError, Communicator, Reduce};
use halocline_plan::UnstructuredDomain;
use halocline_plan::directory::{Answer, Lookup, Message, Reply, Request};
use halocline_plan::wire::{Reader, Writer};

/// Up to eight kinds of values to read, then the bytes to read them from.
pub fn wire(bytes: &[u8]) {
    let (kinds, message) = bytes.split_at(bytes.len().min(8));
    let mut reader = Reader::new(message);
    for kind in kinds {
        let read = match kind % 6 {
            0 => reader.u32().map(drop),
            1 => reader.u64().map(drop),
            2 => reader.size().map(drop),
            3 => reader.count(usize::from(kind / 6)).map(drop),
            4 => reader.u32s().map(drop),
            _ => reader.u64s().map(drop),
        };
        if read.is_err() {
            return;
        }
    }
    let _ = reader.finish();
}

pub fn wire_seeds() -> Vec<Vec<u8>> {
    let mut writer = Writer::new();
    writer.u32(7);
    writer.u64s(&[1, 2]);
    writer.u32s(&[3]);
    vec![[&[0, 5, 4, 0, 0, 0, 0, 0][..], &writer.finish()].concat()]
}

/// The number of one message among all that four ranks send, and its new content.
pub fn directory(bytes: &[u8]) {
    let Some((&victim, content)) = bytes.split_first() else { return };
    canonical::<Lookup>(content);
    canonical::<Reply>(content);
    canonical::<Request>(content);
    canonical::<Answer>(content);
    let mut seen = 0;
    let outcomes = resolve_tampered(&ring(), &mut |_, _, _, message| {
        if seen == victim % MESSAGES {
            *message = content.to_vec();
        }
        seen = seen.saturating_add(1);
    });
    let failed = outcomes.iter().filter(|outcome| outcome.is_err()).count();
    assert!(failed == 0 || failed == outcomes.len() && outcomes.iter().any(|o| matches!(o, Err(Some(_)))));
    assert!(outcomes.iter().flatten().all(|pattern| pattern.check().is_ok()));
}

/// A decoded message survives encoding.
fn canonical<M: Message>(bytes: &[u8]) {
    if let Ok(message) = M::decode(bytes) {
        assert_eq!(M::decode(&message.encode()).map(|again| again.encode()), Ok(message.encode()));
    }
}

/// The most messages of the ranks of the ring.
const MESSAGES: u8 = 40;

pub fn directory_seeds() -> Vec<Vec<u8>> {
    let (mut seeds, mut at) = (Vec::new(), 0);
    resolve_tampered(&ring(), &mut |_, _, _, message| {
        seeds.push([&[at][..], message].concat());
        at += 1;
    });
    assert!(at <= MESSAGES);
    seeds
}

/// A ring of four ranks, two domains on the first.
fn ring() -> Vec<Vec<UnstructuredDomain>> {
    let piece = |number: u64| {
        let owned = (0..6).map(|cell| 6 * number + cell).collect();
        UnstructuredDomain::new(number, owned, vec![(6 * number + 29) % 30, (6 * number + 6) % 30])
    };
    vec![vec![piece(0), piece(1)], vec![piece(2)], vec![piece(3)], vec![piece(4)]]
}

/// The contribution of another rank to collective calls, and the result from another rank.
pub fn collectives(bytes: &[u8]) {
    let pair = || {
        let mut pair = Communicator::threads(2);
        let other = pair.pop().expect("two ranks");
        (pair.pop().expect("two ranks"), other)
    };
    let check = |outcome: Result<usize, CommError>, expected: usize| match outcome {
        Ok(count) => assert_eq!(count, expected),
        Err(CommError::Malformed { .. } | CommError::Arguments { .. }) => {}
        Err(other) => panic!("another error: {other}"),
    };
    let (first, second) = pair();
    send_raw(&second, 0, "all_gather", bytes);
    check(first.all_gather(b"mine").map(|all| all.len()), 2);
    let (first, second) = pair();
    send_raw(&first, 1, "all_gather", bytes);
    check(second.all_gather(b"mine").map(|all| all.len()), 2);
    let (first, second) = pair();
    send_raw(&second, 0, "all_reduce", bytes);
    check(first.all_reduce(&[u64::MAX, 2], Reduce::Sum).map(|all| all.len()), 2);
    let (first, second) = pair();
    send_raw(&first, 1, "all_reduce", bytes);
    check(second.all_reduce(&[u64::MAX, 2], Reduce::Max).map(|all| all.len()), 2);
}

pub fn collectives_seeds() -> Vec<Vec<u8>> {
    let words = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let tagged = |number: u64, bytes: &[u8]| [&words(&[number, bytes.len() as u64])[..], bytes].concat();
    let gathered = |rank: u64| tagged(rank, b"mine");
    // After the data come the name of the call and its length.
    let of = |data: Vec<u8>| [data, b"all_gather\x0a".to_vec()].concat();
    let arguments = tagged(0, b"4 u8 values");
    let differ = [tagged(1, b""), tagged(0, b"4 u8 values"), tagged(1, b"u8 values")].concat();
    let all = [gathered(0), gathered(1)].concat();
    let malformed = [tagged(2, b""), tagged(1, b"")].concat();
    [[arguments.clone(), gathered(1)].concat(), [arguments, all].concat(), differ, malformed].map(of).to_vec()
}
