//! Messages that cannot be sent, or have wrong contents: errors on all ranks.

use halocline::device::sim::{Options, World};
use halocline::{
    Array, BindError, BindOptions, CommError, Communicator, Decomposed, DeviceArray, Error, Halo,
    HaloExchange, LinkChoice, Ll, RegularGrid,
};
use halocline_comm::{Endpoint, Message};
use halocline_conformance::tampered::{short_of_memory, tampered};
use halocline_conformance::watchdog::{LIMIT, Watchdog};

const RANKS: usize = 3;

/// What each rank's bind ends with, where rank 1's messages are tampered with: their receiver, whether memory comes with them, their bytes.
fn binds(
    link: LinkChoice,
    tamper: impl Fn(usize, bool, &mut Vec<u8>) -> Result<(), CommError> + Copy + Send + Sync + 'static,
) -> Vec<Option<Error>> {
    let watchdog = Watchdog::new(LIMIT);
    watchdog.begin("a bind");
    let ranks = Communicator::threads(RANKS).into_iter().map(|comm| {
        std::thread::spawn(move || {
            let is_tampered = comm.rank() == 1;
            let comm = if is_tampered {
                tampered(comm, move |message| {
                    tamper(message.to, !message.segments.is_empty(), message.payload)
                })
            } else {
                comm
            };
            let bound = bind(&comm, link);
            // No message remains in an inbox.
            comm.barrier().expect("the communicator works");
            bound.err()
        })
    });
    let ranks: Vec<_> = ranks.collect();
    ranks.into_iter().map(|rank| rank.join().expect("no panic")).collect()
}

fn bind(comm: &Communicator, link: LinkChoice) -> Result<(), Error> {
    let grid = RegularGrid::new([2 * RANKS]).periodic([true]);
    let pattern = grid.decompose(RANKS)?.pattern(comm, Halo::uniform(1))?;
    let array = Array::<u64>::zeros(comm, &[4])?;
    HaloExchange::bind_with(comm, [(&pattern, &array)], &BindOptions::default().link(link)).map(drop)
}

#[test]
fn untampered_messages_bind() {
    assert!(binds(LinkChoice::Auto, |_, _, _| Ok(())).iter().all(Option::is_none));
}

#[test]
fn a_transport_that_allocates_too_little_is_refused() {
    let comm = short_of_memory(Communicator::single(), 8);
    match Array::<u64>::zeros(&comm, &[4]).map(|array| array.memory().len()) {
        Err(Error::Comm(CommError::ShortSegment { asked: 32, found: 24, .. })) => {}
        other => panic!("an array in too little memory: {other:?}"),
    }
}

#[test]
fn an_offer_that_cannot_be_sent_is_an_error_on_all_ranks() {
    let ended = binds(LinkChoice::Auto, |to, is_offer, _| match is_offer && to == 2 {
        true => Err(CommError::OutOfReach { rank: to, why: "the test says so".to_owned() }),
        false => Ok(()),
    });
    for (rank, error) in ended.iter().enumerate() {
        match error {
            Some(Error::Comm(CommError::OutOfReach { .. })) if rank == 1 => {}
            Some(Error::Elsewhere { rank: 1, message }) if rank != 1 => {
                assert!(message.contains("the test says so"), "{message}");
            }
            other => panic!("rank {rank}: {other:?}"),
        }
    }
}

#[test]
fn an_offer_of_endless_memory_is_refused() {
    let ended = binds(LinkChoice::Auto, |_, is_offer, payload| {
        if is_offer {
            payload[..8].copy_from_slice(&(u64::MAX / 2).to_le_bytes());
        }
        Ok(())
    });
    for (rank, error) in ended.iter().enumerate() {
        let text = error.as_ref().expect("an error on all ranks").to_string();
        assert!(text.contains("rank 1 sent a malformed offer"), "rank {rank}: {text}");
    }
}

#[test]
fn each_kind_of_wrong_word_in_an_offer_has_its_error() {
    let binds = |word: usize| {
        binds(LinkChoice::Push, move |_, is_offer, payload| {
            let bytes = payload.get_mut(8 * word..8 * word + 8);
            if let Some(bytes) = bytes.filter(|_| is_offer) {
                // An offset, a length or a number far away.
                bytes[5] = bytes[5].wrapping_add(1);
            }
            Ok(())
        })
    };
    let ended: Vec<Error> = (0..40).flat_map(binds).flatten().collect();
    let is_found = |is_kind: fn(&BindError) -> bool| {
        ended.iter().any(|error| matches!(error, Error::Bind(error) if is_kind(error)))
    };
    assert!(is_found(|error| matches!(error, BindError::Malformed { peer: 1, what: "offer", .. })));
    assert!(is_found(|error| matches!(
        error,
        BindError::OutsideMemory { peer: 1, what: "flags or a mailbox" }
    )));
    assert!(is_found(|error| matches!(error, BindError::Bytes { peer: 1, sends: 8, peer_sends: 8, .. })));
    assert!(is_found(|error| matches!(error, BindError::NoField { peer: 1, pattern: 0, field: 0, .. })));
    assert!(is_found(|error| matches!(error, BindError::FieldMemory { peer: 1, field: 0, .. })));
}

#[test]
fn memory_that_does_not_come_with_its_offer_is_named() {
    let [first, second] = <[Communicator; 2]>::try_from(Communicator::threads(2)).unwrap();
    let inbox_of_0 = first.clone();
    let second = tampered(second, move |message| {
        if !message.segments.is_empty() {
            let (tag, payload) = (message.tag, message.payload.clone());
            let missing = Some(CommError::OutOfMemory(4096));
            inbox_of_0.link().inbox().push(Message {
                source: 1,
                tag,
                payload,
                missing,
                ..Message::default()
            });
        }
        Ok(())
    });
    let bind = |comm: &Communicator| -> Result<(), Error> {
        let pattern = RegularGrid::new([4]).decompose(2)?.pattern(comm, Halo::uniform(1))?;
        let array = Array::<u64>::zeros(comm, &[4])?;
        HaloExchange::bind(comm, [(&pattern, &array)]).map(drop)
    };
    std::thread::scope(|threads| {
        threads.spawn(|| assert!(matches!(bind(&second), Err(Error::Elsewhere { rank: 0, .. }))));
        match bind(&first) {
            Err(Error::Bind(BindError::MissingMemory {
                peer: 1, what: "offer", number: 1, error, ..
            })) => {
                assert!(matches!(*error, CommError::OutOfMemory(4096)), "{error}");
            }
            other => panic!("instead of missing memory: {other:?}"),
        }
    });
}

/// What the ranks' binds of a device field end with, where something is added to one word of each message with memory of rank 1.
fn binds_on_devices(choice: (LinkChoice, Ll), word: usize) -> Vec<Option<Error>> {
    let watchdog = Watchdog::new(LIMIT);
    watchdog.begin("a bind of a device field");
    let world = World::live(7, &Options::default()).expect("a world");
    let world = world.world();
    std::thread::scope(|scope| {
        let ranks = Communicator::threads(2).into_iter().map(|comm| {
            scope.spawn(move || {
                let device = world.device(comm.rank() as u32).expect("a device");
                let comm = match comm.rank() {
                    1 => tampered(comm, move |message| {
                        let bytes = message.payload.get_mut(8 * word..8 * word + 8);
                        if let Some(bytes) = bytes.filter(|_| !message.segments.is_empty()) {
                            // An address, an offset or a number far away.
                            bytes[5] = bytes[5].wrapping_add(1);
                        }
                        Ok(())
                    }),
                    _ => comm,
                };
                let (link, ll) = choice;
                let bound = (|| {
                    let grid = RegularGrid::new([4]).periodic([true]);
                    let pattern = grid.decompose(2)?.pattern(&comm, Halo::uniform(1))?;
                    let array = DeviceArray::<u64>::zeros(&device, &[4])?;
                    let options = BindOptions::default().link(link).ll(ll);
                    HaloExchange::bind_with(&comm, [(&pattern, &array)], &options)
                })();
                comm.barrier().expect("the communicator works");
                bound.err()
            })
        });
        let ranks: Vec<_> = ranks.collect();
        ranks.into_iter().map(|rank| rank.join().expect("no panic")).collect()
    })
}

#[test]
fn flags_slots_and_mailboxes_outside_their_memory_are_refused() {
    let cases = [
        ((LinkChoice::Push, Ll::Never), "offers flags outside its memory"),
        ((LinkChoice::Auto, Ll::UpTo(1 << 10)), "offers slots outside its memory"),
        ((LinkChoice::DeviceMailbox, Ll::Never), "offers a mailbox outside its memory"),
    ];
    for (choice, expected) in cases {
        let mut found = 0;
        for word in 0..64 {
            let ended = binds_on_devices(choice, word);
            let refused = ended.iter().flatten().any(|error| error.to_string().contains(expected));
            found += usize::from(refused);
            // The rank that detects it notifies all others.
            assert!(!refused || ended.iter().all(Option::is_some), "{choice:?}, word {word}: {ended:?}");
        }
        assert!(found > 0, "{choice:?}: nothing was noticed of {expected:?}");
    }
}
