//! Invalid messages of the directory cause errors, never a panic, a hang or a huge allocation.

use crate::simulated::{Random, resolve_tampered};
use halocline_plan::directory::{
    Answer, Clash, Directory, Lookup, Message, Owner, OwnerRun, Reply, Request, RequestPart,
};
use halocline_plan::wire::{Reader, WireError, Writer};
use halocline_plan::{UnstructuredDomain, UnstructuredError};
use proptest::collection::vec;
use proptest::prelude::*;

fn decode_everything(bytes: &[u8]) -> [Result<(), WireError>; 4] {
    [
        Lookup::decode(bytes).map(drop),
        Reply::decode(bytes).map(drop),
        Request::decode(bytes).map(drop),
        Answer::decode(bytes).map(drop),
    ]
}

fn samples() -> (Lookup, Reply, Request, Answer) {
    let owner = Owner { rank: 3, domain: 40 };
    let lookup = Lookup { domains: vec![1, 2], owned: vec![(1, vec![5, 6]), (2, vec![])], queries: vec![9] };
    let clashes = vec![Clash::Cell { id: 7, domain: 1, other: owner }, Clash::Domain { domain: 2, other: 5 }];
    let owners = vec![OwnerRun { count: 4, owner: Some(owner) }, OwnerRun { count: 1, owner: None }];
    let part = |to, from| RequestPart { to, from, ids: vec![9, 4], targets: vec![0, 6] };
    let request = Request { parts: vec![part(1, 40), part(1, 41), part(2, 0)] };
    (lookup, Reply { clashes, owners }, request, Answer { parts: vec![vec![2, 0], vec![], vec![8]] })
}

#[test]
fn messages_survive_the_wire() {
    let (lookup, reply, request, answer) = samples();
    assert_eq!(Lookup::decode(&lookup.encode()), Ok(lookup));
    assert_eq!(Reply::decode(&reply.encode()), Ok(reply));
    assert_eq!(Request::decode(&request.encode()), Ok(request));
    assert_eq!(Answer::decode(&answer.encode()), Ok(answer));
}

fn sample_bytes() -> [Vec<u8>; 4] {
    let (lookup, reply, request, answer) = samples();
    [lookup.encode(), reply.encode(), request.encode(), answer.encode()]
}

#[test]
fn a_message_of_any_other_length_or_kind_is_refused() {
    for (kind, bytes) in sample_bytes().iter().enumerate() {
        for end in 0..bytes.len() {
            assert!(decode_everything(&bytes[..end])[kind].is_err(), "{end} bytes of kind {kind}");
        }
        let longer = [bytes.as_slice(), &[0]].concat();
        assert_eq!(decode_everything(&longer)[kind], Err(WireError::Trailing(1)));
        let accepted = decode_everything(bytes).iter().filter(|result| result.is_ok()).count();
        assert_eq!(accepted, 1);
    }
}

#[test]
fn a_bogus_count_is_refused_before_memory_is_taken() {
    for count in [u64::MAX, u64::MAX / 8, 1 << 40, 2] {
        let mut writer = Writer::new();
        writer.u64(count);
        writer.u64(0);
        let bytes = writer.finish();
        let refused = Err(WireError::Count { count, size: 8, left: 8 });
        assert_eq!(Reader::new(&bytes).u64s(), refused);
    }
}

#[test]
fn parts_that_break_the_rules_of_a_request_are_refused() {
    let part = |to, ids: &[u64], targets: &[u32]| RequestPart {
        to,
        from: 0,
        ids: ids.to_vec(),
        targets: targets.to_vec(),
    };
    for parts in [
        vec![],
        vec![part(1, &[], &[])],
        vec![part(1, &[5, 6], &[5])],
        vec![part(1, &[5, 6], &[3, 3])],
        vec![part(1, &[5], &[u32::MAX])],
        vec![part(1, &[5], &[0]), part(1, &[6], &[1])],
        vec![part(2, &[5], &[0]), part(1, &[6], &[0])],
    ] {
        let request = Request { parts };
        assert!(matches!(Request::decode(&request.encode()), Err(WireError::Content(_))), "{request:?}");
    }
    let indices = Answer { parts: vec![vec![0, u32::MAX]] };
    assert!(matches!(Answer::decode(&indices.encode()), Err(WireError::Content(_))));
    let none = Reply { clashes: vec![], owners: vec![OwnerRun { count: 0, owner: None }] };
    assert!(matches!(Reply::decode(&none.encode()), Err(WireError::Content(_))));
}

/// A ring of four ranks, two domains on the first, whose messages use every kind.
fn ring() -> Vec<Vec<UnstructuredDomain>> {
    let piece = |number: u64| {
        let owned = (0..6).map(|cell| 6 * number + cell).collect();
        UnstructuredDomain::new(number, owned, vec![(6 * number + 29) % 30, (6 * number + 6) % 30])
    };
    vec![vec![piece(0), piece(1)], vec![piece(2)], vec![piece(3)], vec![piece(4)]]
}

fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    let at = random.below(bytes.len());
    match random.below(4) {
        0 => bytes.truncate(at),
        1 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
        2 if at < bytes.len() => bytes[at] = [0, 1, 0x7f, 0xff][random.below(4)],
        _ => {
            let eight = random.next().to_le_bytes();
            bytes.splice(at..at, eight);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn random_bytes_never_panic(mut bytes in vec(any::<u8>(), 0..200), kind in 0usize..5) {
        if let Some(sample) = sample_bytes().get(kind) {
            // With the right magic number, so that the rest is decoded as well.
            bytes.splice(0..0, sample[..4].iter().copied());
        }
        let _ = decode_everything(&bytes);
    }

    #[test]
    fn mutated_messages_never_panic(kind in 0usize..4, seed: u64, times in 1usize..5) {
        let mut bytes = sample_bytes()[kind].clone();
        let mut random = Random(seed);
        (0..times).for_each(|_| mutate(&mut bytes, &mut random));
        let _ = decode_everything(&bytes);
    }

    #[test]
    fn a_mutated_message_gives_errors_on_all_ranks_or_patterns_on_all(seed: u64, victim in 0usize..16) {
        let (mut random, mut seen) = (Random(seed), 0);
        let outcomes = resolve_tampered(&ring(), &mut |_, _, _, bytes| {
            if seen == victim {
                mutate(bytes, &mut random);
            }
            seen += 1;
        });
        let failed = outcomes.iter().filter(|outcome| outcome.is_err()).count();
        prop_assert!(failed == 0 || failed == 4);
        prop_assert!(failed == 0 || outcomes.iter().any(|outcome| matches!(outcome, Err(Some(_)))));
    }
}

/// The errors of the ring's ranks when the first message of `step` is replaced.
fn with_first(step: usize, replace: impl Fn(&[u8]) -> Vec<u8>) -> Vec<UnstructuredError> {
    let mut done = false;
    let outcomes = resolve_tampered(&ring(), &mut |at, _, _, bytes| {
        if at == step && !done {
            *bytes = replace(bytes);
            done = true;
        }
    });
    outcomes.into_iter().filter_map(|outcome| outcome.expect_err("an error on every rank")).collect()
}

fn is_message(errors: &[UnstructuredError], wanted: &str) -> bool {
    errors.iter().any(|e| matches!(e, UnstructuredError::Message { name, .. } if *name == wanted))
}

#[test]
fn a_reply_that_does_not_come_is_named() {
    let domain = |number, owned, halo| [UnstructuredDomain::new(number, vec![owned], vec![halo])];
    let domains = [domain(0, 0, 3), domain(1, 3, 0)];
    let start = |rank: usize| Directory::new(rank, 2, &domains[rank]).unwrap();
    let (asking, asked) = (start(0), start(1));
    let bounds = std::array::from_fn(|at| asking.bounds()[at].min(asked.bounds()[at]));
    let counts = std::array::from_fn(|at| asking.counts()[at] + asked.counts()[at]);
    let (registered, _) = asking.register(bounds, counts);
    let (replied, _) = registered.reply(&[]).unwrap();
    let error = replied.request(&[]).unwrap_err();
    assert_eq!(error, UnstructuredError::NoMessage { from: 1, name: "reply" });
}

#[test]
fn well_formed_messages_that_lie_are_refused() {
    // A lookup at a rank that is not the home.
    let errors =
        with_first(1, |_| Lookup { owned: vec![(0, (0..30).collect())], ..Lookup::default() }.encode());
    assert!(is_message(&errors, "lookup"), "{errors:?}");

    // Owners that do not exist; fewer and more owners than queried.
    let reply = |count, rank| Reply {
        clashes: vec![],
        owners: vec![OwnerRun { count, owner: Some(Owner { rank, domain: 0 }) }],
    };
    for reply in [reply(1, 4), reply(u64::MAX, 1), Reply::default()] {
        assert!(is_message(&with_first(2, |_| reply.encode()), "reply"), "{reply:?}");
    }

    // A request for a domain, or a cell, that does not exist there.
    let change = |edit: fn(&mut RequestPart)| {
        with_first(3, |bytes| {
            let mut request = Request::decode(bytes).expect("a request");
            edit(&mut request.parts[0]);
            request.encode()
        })
    };
    assert!(is_message(&change(|part| part.from = 99), "request"));
    assert!(is_message(&change(|part| part.ids[0] = 99), "request"));

    // An answer to another request.
    let errors = with_first(4, |_| Answer { parts: vec![vec![0; 9]] }.encode());
    assert!(is_message(&errors, "answer"), "{errors:?}");
}
